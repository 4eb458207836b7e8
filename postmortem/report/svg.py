"""A `Picture` -> one inline SVG: an overview strip, lanes host by host, marks,
the decisive moment, two time axes.

Colours come from classes, so that dark mode and print work; presentation attributes stand below them for
readers that strip style sheets. Severity is told by shape as well as by colour. Every text passes through
`_safe`.
"""

from __future__ import annotations

import html
import math

from postmortem.report import lanes, text
from postmortem.report.events import SEVERITIES

WIDTH = 1080
LEFT = 158
RIGHT = 14
PLOT = WIDTH - LEFT - RIGHT
STEPS = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    21600,
    86400,
)
GLYPHS = {"cause": "◆", "victim": "▽", "silent": "◌", "healthy": "●", "unknown": "·"}
FILLS = {"fatal": "#b3261e", "error": "#b3261e", "warning": "#8a5a00", "info": "#7a828c"}
TONES = {
    "cause": "#b3261e",
    "victim": "#7d5200",
    "silent": "#6438a0",
    "healthy": "#17673f",
    "unknown": "#5a626c",
}
LABEL = 22  # characters of a lane's label


def draw(picture: lanes.Picture, offset: str = "") -> str:
    """Return the SVG element; it is self-contained and holds no link, script or style attribute."""
    strip = picture.whole[1] - picture.whole[0] > 1.5 * (picture.end - picture.start)
    top = 52 if strip else 30
    step = 24 if len(picture.lanes) <= 20 else 18
    bottom = top + step * len(picture.lanes)
    body = [_overview(picture) if strip else "", _axes(picture, top, bottom)]
    body += [_lane(picture, lane, top + step * place, step) for place, lane in enumerate(picture.lanes)]
    body.append(_zero(picture, top, bottom))
    height = bottom + 24
    return (
        f'<svg class="timeline" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-labelledby="tl-title tl-desc" font-family="system-ui, sans-serif" font-size="11">'
        f'<title id="tl-title">Timeline of the job</title>'
        f'<desc id="tl-desc">{_safe(_described(picture))}</desc>{_defs()}{"".join(body)}</svg>'
    )


def _described(picture: lanes.Picture) -> str:
    where = "" if picture.zero is None else f" The decisive line is at {_decisive(picture)} UTC."
    span = f"{text.clock(picture.start, 0)} to {text.clock(picture.end, 0)} UTC"
    size = f"{text.plural(picture.events, 'event')} on {text.plural(len(picture.lanes), 'lane')}"
    return f"{size}, {span}.{where} The table below says the same in words."


def _decisive(picture: lanes.Picture) -> str:
    return text.mark(picture.zero or 0.0, picture.slack)


def _defs() -> str:
    return (
        '<defs><pattern id="tl-hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)">'
        '<path class="hatch" d="M0 0v6" stroke="#9aa1aa" stroke-width="1.4"/></pattern></defs>'
    )


def _x(picture: lanes.Picture, moment: float) -> float:
    share = (moment - picture.start) / (picture.end - picture.start)
    return round(LEFT + min(max(share, 0.0), 1.0) * PLOT, 1)


def _overview(picture: lanes.Picture) -> str:
    """The whole job as a strip, and the window that is drawn below as a frame in it."""
    start, end = picture.whole
    length = max(end - start, 1e-6)
    marks = "".join(_ticked(picture, level) for level in SEVERITIES)
    left = LEFT + max((picture.start - start) / length, 0) * PLOT
    right = LEFT + min((picture.end - start) / length, 1) * PLOT
    width = max(right - left, 3) + 4
    frame = (
        f'<rect class="frame" x="{left - 2:.1f}" y="5" width="{width:.1f}" height="16" rx="3" fill="none" '
        'stroke="#1f5fbf" stroke-width="1.5"/>'
    )
    name = f'<text class="lane-host" x="0" y="17" fill="#4a525c">whole job, {_safe(text.seconds(end - start))}</text>'
    return (
        f'<g>{name}<rect class="track" x="{LEFT}" y="8" width="{PLOT}" height="10" fill="#f0f1f3"/>{marks}{frame}</g>'
    )


def _ticked(picture: lanes.Picture, level: str) -> str:
    path = "".join(f"M{LEFT + share * PLOT:.0f} 8v10" for share, worst in picture.overview if worst == level)
    return f'<path class="o-{level}" d="{path}" stroke="{FILLS[level]}" stroke-width="2.4"/>' if path else ""


def _axes(picture: lanes.Picture, top: int, bottom: int) -> str:
    """Above: time from the decisive line. Below: UTC."""
    out = [(f'<text class="axis" x="0" y="{bottom + 17}" fill="#5a626c">UTC {_safe(text.day(picture.start))}</text>')]
    step = _step(picture.end - picture.start)
    for moment in _ticks(picture.start, picture.end, 0.0, step):
        x = _x(picture, moment)
        out.append(f'<path class="grid" d="M{x} {top}V{bottom}" stroke="#e4e6ea"/>')
        out.append(
            f'<text class="axis" x="{x}" y="{bottom + 17}" text-anchor="middle" '
            f'fill="#5a626c">{_safe(_stamp(moment, step))}</text>'
        )
    if picture.zero is not None and picture.start <= picture.zero <= picture.end:
        out.append(f'<text class="axis" x="0" y="{top - 9}" fill="#5a626c">from the decisive line</text>')
        for moment in _ticks(picture.start, picture.end, picture.zero, step):
            offset = moment - picture.zero
            if abs(offset) > step / 2:
                label = ("+" if offset > 0 else "−") + text.seconds(offset)
                out.append(
                    f'<text class="axis" x="{_x(picture, moment)}" y="{top - 9}" text-anchor="middle" '
                    f'fill="#5a626c">{label}</text>'
                )
    return "".join(out)


def _step(span: float) -> float:
    return next((step for step in STEPS if span / step <= 9), 86400.0 * math.ceil(span / 86400 / 8))


def _ticks(start: float, end: float, origin: float, step: float) -> list[float]:
    """Round moments inside the window, with room for their labels at both ends."""
    margin = (end - start) * 0.03
    first = math.ceil((start + margin - origin) / step)
    last = math.floor((end - margin - origin) / step)
    return [origin + step * count for count in range(first, min(last, first + 40) + 1)]


def _stamp(moment: float, step: float) -> str:
    if step >= 86400:
        return text.utc(moment, "%m-%d")
    return text.clock(moment, 0)[:5] if step >= 60 else text.clock(moment, 0 if step >= 1 else 3)


def _lane(picture: lanes.Picture, lane: lanes.Lane, top: int, step: int) -> str:
    middle = top + step / 2
    out = []
    if lane.state == "cause":
        out.append(
            f'<rect class="culprit" x="0" y="{top + 1}" width="{WIDTH}" height="{step - 2}" rx="4" fill="#fdeceb"/>'
        )
    if lane.refused:
        out.append(f'<rect x="{LEFT}" y="{top + 3}" width="{PLOT}" height="{step - 6}" fill="url(#tl-hatch)"/>')
    out.append(_label(lane, middle))
    state = lane.state if lane.state in TONES else "unknown"
    out += [
        f'<rect class="sigma t-{state}" x="{left}" y="{middle - 5}" width="{right - left:.1f}" height="10" '
        f'rx="5" fill="{TONES[state]}" '
        'fill-opacity="0.16"/>'
        for left, right in _bands(picture, lane)
    ]
    first, last = _x(picture, lane.first), _x(picture, lane.last)
    if not lane.is_host:
        out.append(f'<path class="life" d="M{first} {middle}H{last}" stroke="#b9bfc7" stroke-width="2"/>')
        out.append(
            f'<path class="silence" d="M{last} {middle}H{LEFT + PLOT}" stroke="#c9ced5" stroke-dasharray="1 4"/>'
        )
    plain = "".join(
        f"M{_x(picture, mark.row.time)} {middle - 4}v8" for mark in lane.marks if mark.row.severity == "info"
    )
    if plain:
        out.append(f'<path class="info" d="{plain}" stroke="#7a828c" stroke-width="1.3"/>')
    out += _intervals(picture, lane, middle, state)
    out += [_mark(picture, mark, middle, state) for mark in lane.marks if _placed(mark)]
    return f"<g>{''.join(out)}</g>"


def _told_of(mark: lanes.Mark) -> bool:
    return mark.row.severity != "info" or mark.decisive


def _placed(mark: lanes.Mark) -> bool:
    """Whether a mark at one moment would be true."""
    return _told_of(mark) and mark.row.sigma < text.BROAD


def _label(lane: lanes.Lane, middle: float) -> str:
    label = text.visible(lane.label)
    short = label if len(label) <= LABEL else label[: LABEL - 1] + "…"
    told = f"<title>{_safe(lane.title)}</title>"
    if lane.is_host:
        return (
            f'<text class="lane-host" x="4" y="{middle + 4}" font-weight="600" '
            f'fill="#2b3138">{told}{_safe(short)}</text>'
        )
    state = lane.state if lane.state in GLYPHS else "unknown"
    return (
        f'<text class="lane s-{state}" x="16" y="{middle + 4}" '
        f'fill="#2b3138">{told}{GLYPHS[state]} {_safe(short)}</text>'
    )


def _mark(picture: lanes.Picture, mark: lanes.Mark, y: float, state: str) -> str:
    """The shape says how bad, the colour whose;
    the decisive line is larger and in the colour of the cause."""
    x, severity = _x(picture, mark.row.time), mark.row.severity
    told = f"<title>{_safe(_told(mark))}</title>"
    if mark.decisive:
        return (
            f'<g><path class="m-fatal t-cause" d="M{x} {y - 10}l10 10l-10 10l-10 -10z" '
            f'fill="{TONES["cause"]}"/>{told}</g>'
        )
    shape = {
        "fatal": f"M{x} {y - 6}l6 6l-6 6l-6 -6z",
        "error": f"M{x - 5} {y - 4.5}h10l-5 9z",
        "warning": f"M{x - 4} {y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
    }[severity]
    if severity == "warning":
        return (
            f'<g><path class="m-warning u-{state}" d="{shape}" fill="#ffffff" stroke="{TONES[state]}" '
            f'stroke-width="1.6"/>{told}</g>'
        )
    return f'<g><path class="m-{severity} t-{state}" d="{shape}" fill="{TONES[state]}"/>{told}</g>'


def _bands(picture: lanes.Picture, lane: lanes.Lane) -> list[tuple[float, float]]:
    """Where the marks of a lane may really lie: overlapping uncertainties as one band,
    where wide enough to see."""
    spans = _joined(picture, [mark for mark in lane.marks if _placed(mark)])
    return [(left, right) for left, right, _ in spans if right - left > 6]


def _joined(picture: lanes.Picture, marks: list[lanes.Mark]) -> list[tuple[float, float, list[lanes.Mark]]]:
    """Uncertainties that overlap as one, with the marks in it."""
    joined: list[tuple[float, float, list[lanes.Mark]]] = []
    for mark in sorted(marks, key=lambda mark: mark.row.time - mark.row.sigma):
        left, right = (_x(picture, mark.row.time + sigma) for sigma in (-mark.row.sigma, mark.row.sigma))
        if joined and left <= joined[-1][1]:
            start, end, own = joined[-1]
            joined[-1] = (start, max(end, right), [*own, mark])
        else:
            joined.append((left, right, [mark]))
    return joined


def _intervals(picture: lanes.Picture, lane: lanes.Lane, y: float, state: str) -> list[str]:
    """Lines without a usable time: from when to when they were written, and no mark."""
    out = []
    for left, right, marks in _joined(picture, [m for m in lane.marks if _told_of(m) and not _placed(m)]):
        decisive = any(mark.decisive for mark in marks)
        worst = max(marks, key=lambda mark: (mark.decisive, SEVERITIES.index(mark.row.severity)))
        tone = "cause" if decisive else state
        more = len(marks) - 1 + sum(mark.more for mark in marks)
        told = _told(worst._replace(more=more))
        out.append(
            f'<g><path class="u-{tone}" d="M{left} {y - 5}v10M{left} {y}H{right}M{right} {y - 5}v10" '
            f'fill="none" stroke="{TONES[tone]}" stroke-width="{3 if decisive else 1.8}" '
            'stroke-dasharray="5 3"/>'
            f"<title>{_safe(told)}</title></g>"
        )
    return out


def _told(mark: lanes.Mark) -> str:
    row = mark.row
    clock = f"{text.mark(row.time, row.sigma)} UTC"
    sigma = f" ± {text.seconds(row.sigma)}" if row.sigma >= 0.0005 else ""
    more = f" (and {mark.more} more here)" if mark.more else ""
    said = text.line(row.text or row.pattern, 160)
    return f"{clock}{sigma}, {row.severity}: {said} [{row.address}]{more}"


def _zero(picture: lanes.Picture, top: int, bottom: int) -> str:
    """The decisive moment, through all lanes."""
    if picture.zero is None or not picture.start <= picture.zero <= picture.end:
        return ""
    x = _x(picture, picture.zero)
    label = min(max(x, LEFT + 40), WIDTH - 40)
    left, right = (_x(picture, picture.zero + sign * picture.slack) for sign in (-1, 1))
    band = (
        f'<rect class="t-cause" x="{left}" y="{top}" width="{right - left:.1f}" height="{bottom - top}" '
        f'fill="{TONES["cause"]}" fill-opacity="0.08"/>'
    )
    line = (
        f'<path class="zero" d="M{x} {top - 4}V{bottom + 3}" stroke="#b3261e" stroke-width="1.4" '
        f'stroke-dasharray="4 3"/>'
    )
    return (band if picture.slack >= text.BROAD else line) + (
        f'<text class="zero-label" x="{label}" y="{top - 9}" text-anchor="middle" font-weight="600" '
        f'fill="#b3261e">'
        f"{_safe(_decisive(picture))}</text>"
    )


def _safe(words: str) -> str:
    return html.escape(text.visible(words), quote=True)
