"""Rows of the store -> a static site that needs no server: an overview, and a page for each month.

    pages(rows, involved, now, Path("/srv/fleet"))  ->  {"index.html": "<!doctype …", "2026-11.html": …}

Each page is one file that loads nothing, in the style of the report. Names and texts come from logs: they reach
a page only through autoescape, and a link is the quoted path of a report, relative to the folder of the site.
"""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import quote

from postmortem.fleet.history import lemons, trends
from postmortem.fleet.history.trends import Row
from postmortem.report import text
from postmortem.report.labels import CATEGORIES, OUTCOMES
from postmortem.report.templates import environment, policy, sheets
from postmortem.system import resources

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
    found = trends.figures(rows, involved, now)
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
    if (found := trends.between(size)) is None:
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
