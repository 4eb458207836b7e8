"""Rows of the store -> a static site that needs no server: an overview, and a page for each month.

    pages(rows, involved, now, Path("/srv/fleet"))  ->  {"index.html": "<!doctype …", "2026-11.html": …}

Each page is one file that loads nothing, in the style of the report. Names and texts come from logs: they reach
a page only through autoescape, and a link is the quoted path of a report, relative to the folder of the site.

    figures(rows, involved, now)  ->  {"failed": 212, "periods": [(date(2026, 3, 9), {"hang": 3}), …], …}

Only filed jobs count. Where jobs that went well are not filed, the time to a failure is that of failed jobs.
"""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from postmortem.fleet.history import lemons
from postmortem.fleet.history.lemons import gamma_quantile
from postmortem.fleet.history.rows import clean, stamp
from postmortem.report import text
from postmortem.report.labels import CATEGORIES, OUTCOMES
from postmortem.report.templates import environment, policy, sheets
from postmortem.system import resources

if TYPE_CHECKING:
    import pandas as pd

INDEX = "index.html"
SHOWN = 30  # rows of a table of the overview
COLORS = 6  # categories with a color of their own
HEADLINE, SHORT = 150, 120
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 1080, 260, 44, 30, 10  # pixels of the chart
OTHERS = "others"


def pages(
    rows: Sequence[Row], involved: Iterable[Row], now: float, folder: Path, resolved: Sequence[Row] = ()
) -> dict[str, str]:
    """Return all pages by name. `rows` and `involved` are those of the store, `resolved` the table of true causes;
    `folder` is the place of the pages."""
    from markupsafe import Markup

    months = _months(rows)
    style, dark, theme = sheets()
    style += (resources.folder("reports") / "styles" / "fleet.css").read_text(encoding="utf-8")
    templates = environment()
    templates.filters["amount"] = amount
    common = {
        "made": f"{text.day(now)} {text.utc(now, '%H:%M')} UTC",
        "months": [(name, f"{name}.html", len(group)) for name, group in months.items()],
        "policy": policy((style, dark), (theme,)),
        **{name: Markup(content) for name, content in (("style", style), ("dark", dark), ("theme", theme))},
    }
    overview = _overview(rows, list(involved), now, folder)
    site = {INDEX: templates.get_template("fleet.html").render(common, resolved=resolved, **overview)}
    month = templates.get_template("fleet-month.html")
    for name, group in months.items():
        lines = [_line(row, folder) for row in group]
        site[f"{name}.html"] = month.render(common, name=name, lines=lines)
    return site


def _months(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each month, without runs that went well and have no report."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["when"], row["uid"]), reverse=True):
        if row["outcome"] != "healthy" or row["report"]:
            found[row["when"][:7]].append(row)
    return found


def _overview(rows: Sequence[Row], involved: Sequence[Row], now: float, folder: Path) -> dict[str, Any]:
    found = figures(rows, involved, now)
    judged = [each for each in lemons.judge(lemons.fleet(rows, involved, {})) if each.kind == "host"]
    tones = {cause["name"]: tone for tone, cause in enumerate(found["categories"][:COLORS])}
    legend = [(tone, category(name)) for name, tone in tones.items()]
    return {
        "figures": found,
        "begin": min((row["when"][:10] for row in rows), default=""),
        "chart": _chart(found, tones) if found["periods"] else None,
        "legend": legend + ([(COLORS, OTHERS)] if len(found["categories"]) > COLORS else []),
        "categories": [(cause, category(cause["name"])) for cause in found["categories"]],
        "recurring": [_cause(cause, folder) for cause in found["causes"][:SHOWN]],
        "unshown": len(found["causes"]) - SHOWN,
        "new": [_cause(cause, folder) for cause in found["new"][:SHOWN]],
        "hosts": [(each, lemons.sentence(each)) for each in judged[:SHOWN]],
        "sizes": [(size, _between(size)) for size in found["sizes"]],
        "columns": [(begin.isoformat(), counts) for begin, counts in found["periods"] if counts],
    }


def category(name: str) -> str:
    """Return the category as people write it."""
    return CATEGORIES.get(name, name)


def _cause(cause: Row, folder: Path) -> dict[str, Any]:
    return {
        **cause,
        "headline": text.sentence(cause["headline"], HEADLINE),
        "category": category(cause["category"]),
        "link": link(cause["report"], folder),
    }


def _line(row: Row, folder: Path) -> dict[str, Any]:
    hours = row["lost_rank_hours"]
    return {
        "when": f"{row['when'][5:10]} {row['when'][11:16]}",
        "link": link(row["report"], folder),
        "headline": text.sentence(row["headline"], SHORT),
        "what": category(row["category"] or "") or OUTCOMES.get(row["outcome"], ""),
        "job": text.line(row["job"] or "", 40),
        "ranks": row["world_size"] or "",
        "hours": "" if hours is None else amount(hours),
    }


def link(report: str | None, folder: Path) -> str:
    """Return the address of a report relative to the site; empty for anything but the path of a file."""
    if not report or not report.startswith("/") or "\0" in report:
        return ""
    return quote(os.path.relpath(report, folder).encode("utf-8", "surrogatepass"))


def amount(hours: float) -> str:
    """Return hours with as many digits as matter."""
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"


def _between(size: Row) -> str:
    if (found := between(size)) is None:
        return "none failed"
    return "{} h ({} to {})".format(*map(amount, found))


def _chart(found: Row, tones: Mapping[str, int]) -> dict[str, Any]:
    """Return positions of stacked columns, in pixels. The table below the chart has the same numbers."""
    periods = found["periods"]
    most = _axis(max(sum(counts.values()) for _, counts in periods))
    scale, wide = (HEIGHT - BOTTOM - TOP) / most, (WIDTH - LEFT) / len(periods)
    every = max(1, math.ceil(70 / wide))  # has a label
    total = sum(sum(counts.values()) for _, counts in periods)
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "label": f"{total:,} incidents in {len(periods)} {'months' if found['monthly'] else 'weeks'}, by cause",
        "grid": [(HEIGHT - BOTTOM - most * step / 4 * scale, most * step // 4) for step in range(5)],
        "bar": wide * 0.84,
        "columns": [
            {
                "x": LEFT + place * wide,
                "name": begin.strftime("%Y-%m" if found["monthly"] else "%m-%d") if place % every == 0 else "",
                "bars": _bars(begin, counts, tones, scale),
            }
            for place, (begin, counts) in enumerate(periods)
        ],
        "inset": wide * 0.08,
    }


def _bars(
    begin: date, found: Mapping[str, int], tones: Mapping[str, int], scale: float
) -> list[tuple[int, float, float, str]]:
    """Return color, y, height and tooltip of each part of a column."""
    counts: Counter[str] = Counter()
    for name, count in found.items():
        counts[name if name in tones else OTHERS] += count
    bars, y = [], float(HEIGHT - BOTTOM)
    for name, count in sorted(counts.items(), key=lambda item: tones.get(item[0], COLORS)):
        y -= count * scale
        tooltip = text.line(f"{begin.isoformat()}: {category(name)}, {count}", 120)
        bars.append((tones.get(name, COLORS), y, count * scale, tooltip))
    return bars


def _axis(most: int) -> int:
    """Return the top of the axis: four equal whole steps."""
    step = 1
    while 4 * step < most:
        step = next(n for n in (2 * step, 5 * step // 2, 5 * step) if n > step) if most > 40 else step + 1
    return 4 * step


# ── figures ─────────────────────────────────────────────────────────────────────────────────────────────────

Row = Mapping[str, Any]
WEEK_S = 7 * 86400
WEEKS = 60  # a longer time is divided into months
SIZES = (1, 2, 9, 65, 513, 4097)  # smallest number of ranks of each class of size
EXACT = 200  # failures up to which the interval is exact
UNKNOWN = "unknown"
COLUMNS = (
    "uid", "when", "outcome", "category", "cause", "headline", "report", "world_size", "hours", "lost_rank_hours",
)  # fmt: skip


def figures(rows: Sequence[Row], involved: Iterable[Row], now: float) -> dict[str, Any]:
    """Return the content of the overview of rows as `Store.rows` gives them, the latest first."""
    import pandas as pd

    every = pd.DataFrame(rows, columns=COLUMNS, dtype=object).astype(dict.fromkeys(COLUMNS[-3:], "float64"))
    failed = every[every["outcome"] != "healthy"].copy()
    week, two = str(stamp(now - WEEK_S)), str(stamp(now - 2 * WEEK_S))
    failed[["category", "cause"]] = failed[["category", "cause"]].map(clean)  # indexes take no halves of surrogates
    failed["category"] = failed["category"].fillna(UNKNOWN)
    failed["recent"] = failed["when"] >= week
    at_fault = [(e["uid"], clean(e["name"])) for e in involved if e["fault"] and e["kind"] == "host"]
    blamed = failed.merge(pd.DataFrame(at_fault, columns=["uid", "host"], dtype=object), on="uid")
    causes = _grouped(failed, blamed, "cause")
    days = pd.to_datetime(failed["when"].str[:10])
    monthly = bool(len(days)) and (days.max() - days.min()).days > 7 * WEEKS
    return {
        "filed": len(every),
        "failed": len(failed),
        "hours": float(failed["lost_rank_hours"].sum()),
        "unknown_hours": int(failed["lost_rank_hours"].isna().sum()),
        "recent": int(failed["recent"].sum()),
        "before": int(failed["when"].between(two, week, inclusive="left").sum()),
        "monthly": monthly,
        "periods": _periods(days, failed["category"], "M" if monthly else "W") if len(days) else [],
        "categories": _grouped(failed, blamed, "category"),
        "causes": [cause for cause in causes if cause["count"] > 1],
        "new": [cause for cause in causes if cause["first"] >= week],
        "sizes": _sizes(every),
    }


def _grouped(failed: pd.DataFrame, blamed: pd.DataFrame, name: str) -> list[dict[str, Any]]:
    """Return a record for each value of a column, the most frequent first: its number of incidents, in all and in the
    last week, the rank-hours lost, the latest incident, and the host most often at fault, if more than once."""
    latest = failed.sort_values("when", ascending=False, kind="stable").drop_duplicates(name).set_index(name)
    sums = {"count": ("uid", "size"), "hours": ("lost_rank_hours", "sum"), "recent": ("recent", "sum")}
    found = failed.groupby(name).agg(**sums, first=("when", "min"))
    hosts = blamed.groupby([name, "host"]).size().rename("there").reset_index().sort_values(["there", "host"])
    hosts = hosts[hosts["there"] > 1].drop_duplicates(name, keep="last").set_index(name)
    found = found.join(hosts).join(latest[["when", "headline", "report"]])
    found = found.fillna({"host": "", "there": 0}).astype({"there": int})
    found["category"] = found.index if name == "category" else latest["category"]
    found = found.rename_axis("name").reset_index().sort_values("name")
    found = found.sort_values(["count", "hours"], ascending=False, kind="stable")
    return found.to_dict("records")  # type: ignore[return-value]


def _periods(days: pd.Series[Any], categories: pd.Series[Any], unit: str) -> list[tuple[date, dict[str, int]]]:
    """Return every week or month by its first day, from the first incident to the last, with its counts."""
    import pandas as pd

    periods = days.dt.to_period(unit)
    every = pd.period_range(periods.min(), periods.max(), freq=unit)
    counts = pd.crosstab(periods, categories).reindex(every, fill_value=0)
    rows = zip(every, counts.to_dict("records"), strict=True)
    return [(period.start_time.date(), {str(k): n for k, n in row.items() if n}) for period, row in rows]


def _sizes(every: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the classes of jobs of about the same number of ranks, of those with a known size and time."""
    timed = every[(every["world_size"] > 0) & (every["hours"] > 0)]
    found = []
    for low, above in zip(SIZES, (*SIZES[1:], math.inf), strict=True):
        own = timed[(timed["world_size"] >= low) & (timed["world_size"] < above)]
        if len(own):
            failures, hours = int((own["outcome"] != "healthy").sum()), float(own["hours"].sum())
            found.append({"ranks": _ranks(low, above), "jobs": len(own), "failures": failures, "hours": hours})
    return found


def _ranks(low: int, above: float) -> str:
    """Return `2–8`."""
    if above == math.inf:
        return f"{low:,} or more"
    return text.ranges(range(low, int(above))) if above <= 9 else f"{low:,}–{int(above) - 1:,}"


def between(size: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """Return mean hours to a failure, and its 95 % interval; None without a failure."""
    if not size["failures"]:
        return None
    low, high = interval(size["failures"])
    return size["hours"] / size["failures"], size["hours"] / high, size["hours"] / low


def interval(count: int) -> tuple[float, float]:
    """Return the 95 % interval of a Poisson mean from one count: Garwood's, or Wilson and Hilferty's if it is large."""
    if count > EXACT:
        return gamma_quantile(count, -1.959964), gamma_quantile(count + 1, 1.959964)
    low = _root(lambda mean: 1 - _at_most(count - 1, mean) - 0.025, 0.0, float(count)) if count else 0.0
    return low, _root(lambda mean: 0.025 - _at_most(count, mean), float(count), 2.0 * count + 10)


def _at_most(count: int, mean: float) -> float:
    """Return the Poisson probability of at most `count`."""
    term = total = math.exp(-mean)
    for k in range(1, count + 1):
        term *= mean / k
        total += term
    return total if count >= 0 else 0.0


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2
