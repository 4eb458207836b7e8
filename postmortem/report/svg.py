"""The timeline picture as one inline SVG, for paper and for readers without the script: lanes by host, marks, the
decisive moment, the time.

Severity is shown by shape as well as by color. Every text passes through `_safe`.
"""

from __future__ import annotations

import html
import math
from typing import Any

from postmortem.report import lanes, text
from postmortem.report.templates import environment

WIDTH = 1080
LEFT = 158
PLOT = WIDTH - LEFT - 14
STEPS = [
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 21600, 86400),
]
TONES = {"cause": "#b3261e", "victim": "#7d5200", "silent": "#6438a0", "healthy": "#17673f", "unknown": "#5a626c"}
LABEL = 22  # characters of a lane's label


def draw(picture: lanes.Picture) -> str:
    """Return the SVG element. It is self-contained and has no link, script or style attribute."""
    top, step = 30, 24 if len(picture.lanes) <= 20 else 18
    where = "" if picture.zero is None else f" The decisive line is at {_decisive(picture)} UTC."
    span = f"{text.clock(picture.start, 0)} to {text.clock(picture.end, 0)} UTC"
    size = f"{text.plural(picture.events, 'event')} on {text.plural(len(picture.lanes), 'lane')}"
    drawn = (
        environment()
        .get_template("timeline.svg")
        .render(
            width=WIDTH,
            left=LEFT,
            plot=PLOT,
            tones=TONES,
            top=top,
            step=step,
            bottom=top + step * len(picture.lanes),
            description=_safe(f"{size}, {span}.{where} The table below lists the main events."),
            day=_safe(day) if (day := text.day(picture.start)) != text.day(picture.end) else "",
            ticks=_ticks(picture),
            zero=_zero(picture),
            lanes=[_lane(picture, lane, top + step * place, step) for place, lane in enumerate(picture.lanes)],
        )
    )
    return drawn.replace("\n", "")


def _decisive(picture: lanes.Picture) -> str:
    return text.mark(picture.zero or 0.0, picture.slack)


def _x(picture: lanes.Picture, moment: float) -> float:
    share = (moment - picture.start) / (picture.end - picture.start)
    return round(LEFT + min(max(share, 0.0), 1.0) * PLOT, 1)


def _ticks(picture: lanes.Picture) -> list[tuple[float, Any]]:
    """Return round moments in the window, in UTC, with room for their labels at both ends."""
    span = picture.end - picture.start
    step = next((step for step in STEPS if span / step <= 9), 86400.0 * math.ceil(span / 86400 / 8))
    first = math.ceil((picture.start + span * 0.03) / step)
    last = math.floor((picture.end - span * 0.03) / step)
    moments = (step * count for count in range(first, min(last, first + 40) + 1))
    return [(_x(picture, moment), _safe(_stamp(moment, step))) for moment in moments]


def _stamp(moment: float, step: float) -> str:
    if step >= 86400:
        return text.utc(moment, "%m-%d")
    return text.clock(moment, 0)[:5] if step >= 60 else text.clock(moment, 0 if step >= 1 else 3)


def _zero(picture: lanes.Picture) -> dict[str, Any] | None:
    """Return the decisive moment, which is drawn through all lanes."""
    if picture.zero is None or not picture.start <= picture.zero <= picture.end:
        return None
    x = _x(picture, picture.zero)
    left, right = (_x(picture, picture.zero + sign * picture.slack) for sign in (-1, 1))
    return {
        "x": x,
        "left": left,
        "right": right,
        "broad": picture.slack >= text.BROAD,
        "label_x": min(max(x, LEFT + 40), WIDTH - 40),
        "label": _safe(_decisive(picture)),
    }


def _lane(picture: lanes.Picture, lane: lanes.Lane, top: int, step: int) -> dict[str, Any]:
    label = text.visible(lane.label)
    state = lane.state if lane.state in TONES else "unknown"
    notable = [mark for mark in lane.marks if mark.row.severity != "info" or mark.decisive]
    placed = [mark for mark in notable if mark.row.sigma < text.BROAD]  # a mark at one moment would be true
    spans = {mark: _span(picture, mark) for mark in notable}
    # the last of each place, which is the worst
    intervals = {spans[mark]: mark for mark in notable if mark.row.sigma >= text.BROAD}
    return {
        "top": top,
        "middle": top + step / 2,
        "state": state,
        "refused": lane.refused,
        "is_host": lane.is_host,
        "title": _safe(lane.title),
        "label": _safe(label if len(label) <= LABEL else label[: LABEL - 1] + "…"),
        "first": _x(picture, lane.first),
        "last": _x(picture, lane.last),
        "bands": sorted({spans[mark] for mark in placed if spans[mark][1] - spans[mark][0] > 6}),
        "info": [_x(picture, mark.row.time) for mark in lane.marks if mark.row.severity == "info"],
        "intervals": [
            (left, right, "cause" if mark.decisive else state, mark.decisive, _title(mark))
            for (left, right), mark in sorted(intervals.items())
        ],
        "marks": [(_x(picture, mark.row.time), mark.row.severity, mark.decisive, _title(mark)) for mark in placed],
    }


def _span(picture: lanes.Picture, mark: lanes.Mark) -> tuple[float, float]:
    return _x(picture, mark.row.time - mark.row.sigma), _x(picture, mark.row.time + mark.row.sigma)


def _title(mark: lanes.Mark) -> Any:
    row = mark.row
    clock = f"{text.mark(row.time, row.sigma)} UTC"
    sigma = f" ± {text.seconds(row.sigma)}" if row.sigma >= 0.0005 else ""
    more = f" (and {mark.more} more here)" if mark.more else ""
    return _safe(f"{clock}{sigma}, {row.severity}: {text.line(row.text or row.pattern, 160)} [{row.address}]{more}")


def _safe(words: str) -> Any:
    from markupsafe import Markup

    return Markup(html.escape(text.visible(words), quote=True))
