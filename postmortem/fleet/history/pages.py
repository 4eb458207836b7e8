"""Rows of the store -> a static site that needs no server: an overview, and a page for each month.

    pages(rows, involved, now, Path("/srv/fleet"))  ->  {"index.html": "<!doctype …", "2026-11.html": …}

Each page is one file without a network, in the style of the report. Names and texts come from logs: they
reach a page through autoescape only, and a link is a quoted path of a report, relative to the folder of the
site.
"""

from __future__ import annotations

import html
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from postmortem.fleet.history import lemons, trends
from postmortem.fleet.history.trends import Cause, Figures, Period, Row
from postmortem.report import text
from postmortem.report.labels import CATEGORIES, OUTCOMES
from postmortem.report.templates import environment, policy, sheets
from postmortem.system import resources

INDEX = "index.html"
SHOWN = 30  # rows of a table of the overview
COLOURS = 6  # categories with one of their own; the rest is one
HEADLINE, SHORT = 150, 120
WIDTH, HEIGHT, LEFT, BOTTOM = 1080, 260, 44, 30
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a column of the picture."""

    x: float
    y: float
    width: float
    height: float
    tone: int
    said: str


def pages(rows: Sequence[Row], involved: Iterable[Row], now: float, folder: Path) -> dict[str, str]:
    """All pages by their names. `rows` and `involved` are what the store gives; `folder` is where the pages
    will lie."""
    known = list(involved)
    found = trends.figures(rows, known, now)
    months = _months(rows)
    told = {
        "made": f"{text.day(now)} {text.utc(now, '%H:%M')} UTC",
        "months": [(name, f"{name}.html", len(those)) for name, those in months.items()],
    }
    made = {INDEX: _page("fleet.html", {**told, **_overview(rows, known, found, folder)})}
    for name, those in months.items():
        lines = [_line(row, folder) for row in those]
        made[f"{name}.html"] = _page("fleet-month.html", {**told, "name": name, "lines": lines})
    return made


def _page(name: str, parts: Mapping[str, Any]) -> str:
    from markupsafe import Markup

    style, dark, theme = sheets()
    style += (resources.folder("reports") / "styles" / "fleet.css").read_text(encoding="utf-8")
    made = environment()
    made.filters["amount"] = amount
    return made.get_template(name).render(
        parts,
        policy=policy((style, dark), (theme,)),
        style=Markup(style),
        dark=Markup(dark),
        theme=Markup(theme),
    )


def _months(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each month; of runs that went well, those alone that have a report to lead to."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["when"], row["uid"]), reverse=True):
        if row["outcome"] != "healthy" or row["report"]:
            found[row["when"][:7]].append(row)
    return found


def _overview(rows: Sequence[Row], involved: Sequence[Row], found: Figures, folder: Path) -> dict[str, Any]:
    from markupsafe import Markup

    judged = lemons.judge(lemons.fleet(rows, involved, {}))
    tones = {cause.name: tone for tone, cause in enumerate(found.categories[:COLOURS])}
    return {
        "figures": found,
        "begin": min((row["when"][:10] for row in rows), default=""),
        "drawing": Markup(_drawing(found.periods, tones, found.monthly)),
        "legend": [(tone, category(name)) for name, tone in tones.items()]
        + ([(COLOURS, OTHERS)] if len(found.categories) > COLOURS else []),
        "categories": [(cause, category(cause.name)) for cause in found.categories],
        "recurring": [_cause(cause, folder) for cause in found.causes[:SHOWN]],
        "unshown": len(found.causes) - SHOWN,
        "new": [_cause(cause, folder) for cause in found.new[:SHOWN]],
        "hosts": [(each, lemons.sentence(each)) for each in judged if each.kind == "host"][:SHOWN],
        "sizes": [(size, trends.said(size), _between(size)) for size in found.sizes],
        "columns": [(period.begin.isoformat(), period.counts) for period in found.periods if period.counts],
    }


def category(name: str) -> str:
    return CATEGORIES.get(name, name)


def _cause(cause: Cause, folder: Path) -> dict[str, Any]:
    last = cause.last
    return {
        "cause": cause,
        "headline": text.sentence(last["headline"], HEADLINE),
        "category": category(last["category"] or trends.NOTHING),
        "link": link(last["report"], folder),
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
    """The address of a report from the folder of the site; none of what is no path of a file."""
    if not report or not report.startswith("/") or "\0" in report:
        return ""
    return quote(os.path.relpath(report, folder).encode("utf-8", "surrogatepass"))


def amount(hours: float) -> str:
    """Hours with as many digits as matter."""
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"


def _between(size: trends.Size) -> str:
    if size.between is None:
        return "none failed"
    mean, low, high = size.between
    return f"{amount(mean)} h ({amount(low)} to {amount(high)})"


# ── the picture ─────────────────────────────────────────────────────────────────────────────────────────────


def _drawing(periods: Sequence[Period], tones: Mapping[str, int], monthly: bool) -> str:
    """Columns of incidents by cause. The table below it says the same in numbers."""
    if not periods:
        return ""
    most = _rounded(max(sum(period.counts.values()) for period in periods))
    tall = HEIGHT - BOTTOM - 10
    body = []
    for step in range(5):
        value = most * step / 4
        y = 10 + tall * (1 - step / 4)
        body.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        if value == int(value):
            body.append(f'<text class="axis" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.0f}</text>')
    wide = (WIDTH - LEFT) / len(periods)
    every = max(1, math.ceil(70 / wide))
    for place, period in enumerate(periods):
        x = LEFT + place * wide
        body += map(_rect, _column(period, tones, x, wide, tall / most))
        if place % every == 0:
            name = period.begin.strftime("%Y-%m" if monthly else "%m-%d")
            body.append(f'<text class="axis" x="{x:.1f}" y="{HEIGHT - 8}">{name}</text>')
    total = sum(sum(period.counts.values()) for period in periods)
    said = f"{total:,} incidents in {len(periods)} {'months' if monthly else 'weeks'}, by cause"
    return (
        f'<svg class="timeline" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{said}" font-size="11">{"".join(body)}</svg>'
    )


def _column(period: Period, tones: Mapping[str, int], x: float, wide: float, scale: float) -> list[Bar]:
    bars, y = [], float(HEIGHT - BOTTOM)
    counts: Counter[str] = Counter()
    for name, count in period.counts.items():
        counts[name if name in tones else OTHERS] += count
    for name, count in sorted(counts.items(), key=lambda item: tones.get(item[0], COLOURS)):
        y -= count * scale
        said = f"{period.begin.isoformat()}: {category(name)}, {count}"
        bars.append(Bar(x + wide * 0.08, y, wide * 0.84, count * scale, tones.get(name, COLOURS), said))
    return bars


def _rect(bar: Bar) -> str:
    return (
        f'<rect class="c{bar.tone}" x="{bar.x:.1f}" y="{bar.y:.1f}" width="{bar.width:.1f}" '
        f'height="{bar.height:.1f}"><title>{html.escape(text.line(bar.said, 120))}</title></rect>'
    )


def _rounded(most: int) -> int:
    """The top of the axis: a number of four equal whole steps."""
    step = 1
    while 4 * step < most:
        step = next(n for n in (2 * step, 5 * step // 2, 5 * step) if n > step) if most > 40 else step + 1
    return 4 * step
