"""The timeline picture as one inline SVG: an overview strip, lanes by host, marks, the decisive moment, two time axes.

Severity is shown by shape as well as by color. Every text passes through `_safe`.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from typing import Any

from postmortem.report import lanes, text
from postmortem.report.events import SEVERITIES
from postmortem.report.templates import environment

WIDTH = 1080
LEFT = 158
PLOT = WIDTH - LEFT - 14
STEPS = [
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 21600, 86400),
]
FILLS = {"fatal": "#b3261e", "error": "#b3261e", "warning": "#8a5a00", "info": "#7a828c"}
TONES = {"cause": "#b3261e", "victim": "#7d5200", "silent": "#6438a0", "healthy": "#17673f", "unknown": "#5a626c"}
LABEL = 22  # characters of a lane's label


def draw(picture: lanes.Picture) -> str:
    """Return the SVG element. It is self-contained and has no link, script or style attribute."""
    strip = picture.whole[1] - picture.whole[0] > 1.5 * (picture.end - picture.start)
    top, step = 52 if strip else 30, 24 if len(picture.lanes) <= 20 else 18
    drawn = (
        environment()
        .get_template("timeline.svg")
        .render(
            width=WIDTH,
            left=LEFT,
            plot=PLOT,
            fills=FILLS,
            tones=TONES,
            top=top,
            step=step,
            bottom=top + step * len(picture.lanes),
            description=_safe(_described(picture)),
            strip=_strip(picture) if strip else None,
            day=_safe(text.day(picture.start)),
            ticks=_ticks(picture, 0.0),
            zero=_zero(picture),
            lanes=[_lane(picture, lane, top + step * place, step) for place, lane in enumerate(picture.lanes)],
        )
    )
    return drawn.replace("\n", "")


def _described(picture: lanes.Picture) -> str:
    where = "" if picture.zero is None else f" The decisive line is at {_decisive(picture)} UTC."
    span = f"{text.clock(picture.start, 0)} to {text.clock(picture.end, 0)} UTC"
    size = f"{text.plural(picture.events, 'event')} on {text.plural(len(picture.lanes), 'lane')}"
    return f"{size}, {span}.{where} The table below lists the main events."


def _decisive(picture: lanes.Picture) -> str:
    return text.mark(picture.zero or 0.0, picture.slack)


def _x(picture: lanes.Picture, moment: float) -> float:
    share = (moment - picture.start) / (picture.end - picture.start)
    return round(LEFT + min(max(share, 0.0), 1.0) * PLOT, 1)


def _strip(picture: lanes.Picture) -> dict[str, Any]:
    """Return the whole job as a strip, and the window that is drawn below as a frame in it."""
    start, end = picture.whole
    length = max(end - start, 1e-6)
    left = LEFT + max((picture.start - start) / length, 0) * PLOT
    right = LEFT + min((picture.end - start) / length, 1) * PLOT
    paths = {
        level: "".join(f"M{LEFT + share * PLOT:.0f} 8v10" for share, worst in picture.overview if worst == level)
        for level in SEVERITIES
    }
    return {
        "length": _safe(text.seconds(end - start)),
        "ticks": [(level, path) for level, path in paths.items() if path],
        "left": left - 2,
        "width": max(right - left, 3) + 4,
    }


def _ticks(picture: lanes.Picture, origin: float) -> list[tuple[float, Any]]:
    """Return round moments in the window with room for their labels at both ends: UTC, or from the `origin`."""
    span = picture.end - picture.start
    step = next((step for step in STEPS if span / step <= 9), 86400.0 * math.ceil(span / 86400 / 8))
    first = math.ceil((picture.start + span * 0.03 - origin) / step)
    last = math.floor((picture.end - span * 0.03 - origin) / step)
    found = []
    for moment in (origin + step * count for count in range(first, min(last, first + 40) + 1)):
        if not origin:
            found.append((_x(picture, moment), _safe(_stamp(moment, step))))
        elif abs(moment - origin) > step / 2:
            sign = "+" if moment > origin else "−"
            found.append((_x(picture, moment), sign + text.seconds(moment - origin)))
    return found


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
        "ticks": _ticks(picture, picture.zero),
    }


def _lane(picture: lanes.Picture, lane: lanes.Lane, top: int, step: int) -> dict[str, Any]:
    label = text.visible(lane.label)
    state = lane.state if lane.state in TONES else "unknown"
    notable = [mark for mark in lane.marks if mark.row.severity != "info" or mark.decisive]
    placed = [mark for mark in notable if mark.row.sigma < text.BROAD]  # a mark at one moment would be true
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
        # overlapping uncertainties as one band, if it is wide enough to be seen
        "bands": [(left, right - left) for left, right, _ in _joined(picture, placed) if right - left > 6],
        "info": [_x(picture, mark.row.time) for mark in lane.marks if mark.row.severity == "info"],
        "intervals": _intervals(picture, [mark for mark in notable if mark.row.sigma >= text.BROAD], state),
        "marks": [(_x(picture, mark.row.time), mark.row.severity, mark.decisive, _title(mark)) for mark in placed],
    }


def _joined(picture: lanes.Picture, marks: Iterable[lanes.Mark]) -> list[tuple[float, float, list[lanes.Mark]]]:
    """Return overlapping uncertainties as one, with its marks."""
    joined: list[tuple[float, float, list[lanes.Mark]]] = []
    for mark in sorted(marks, key=lambda mark: mark.row.time - mark.row.sigma):
        left, right = (_x(picture, mark.row.time + sigma) for sigma in (-mark.row.sigma, mark.row.sigma))
        if joined and left <= joined[-1][1]:
            start, end, own = joined[-1]
            joined[-1] = (start, max(end, right), [*own, mark])
        else:
            joined.append((left, right, [mark]))
    return joined


def _intervals(picture: lanes.Picture, marks: list[lanes.Mark], state: str) -> list[tuple[Any, ...]]:
    """Return the times in which lines without a usable time can have been written."""
    out = []
    for left, right, joined in _joined(picture, marks):
        decisive = any(mark.decisive for mark in joined)
        worst = max(joined, key=lambda mark: (mark.decisive, SEVERITIES.index(mark.row.severity)))
        more = len(joined) - 1 + sum(mark.more for mark in joined)
        out.append((left, right, "cause" if decisive else state, decisive, _title(worst._replace(more=more))))
    return out


def _title(mark: lanes.Mark) -> Any:
    row = mark.row
    clock = f"{text.mark(row.time, row.sigma)} UTC"
    sigma = f" ± {text.seconds(row.sigma)}" if row.sigma >= 0.0005 else ""
    more = f" (and {mark.more} more here)" if mark.more else ""
    return _safe(f"{clock}{sigma}, {row.severity}: {text.line(row.text or row.pattern, 160)} [{row.address}]{more}")


def _safe(words: str) -> Any:
    from markupsafe import Markup

    return Markup(html.escape(text.visible(words), quote=True))
