"""Values that a rank prints beside its steps: loss, gradient norm, and times of its own work.

    step 12 loss 2.2822 grad_norm 0.98 fwd 0.512 s          step 13 loss nan grad_norm nan fwd 0.498 s
    ->  {"steps": [12, 13], "lines": [40, 41], "loss": [2.2822, nan], "grad_norm": [0.98, nan], "fwd": [0.512, 0.498], …}

In: the lines of one writer that have a step. Out: a `Series`, times in seconds. `between` is the time since the line
before by the stamps, for each step. A step that was printed twice counts where it was printed first.
"""

from __future__ import annotations

import math
import zlib
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from postmortem.blocks import signs
from postmortem.formats.excerpt import Line
from postmortem.model.details import ABSENT, BETWEEN, Series
from postmortem.model.digits import KEPT, key_of
from postmortem.system import forms

LEAST = 3  # steps
POINTS, RECENT, NAMES = 128, 16, 6  # of one writer
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
_REGEXES = forms.regexes("blocks/measures")
_TIMES = ("time-of", "time", "time-per", "rate")
Point = tuple[int, Line, dict[str, float]]  # step, its line, values


def series(lines: Sequence[Line]) -> Series | None:
    """The values of a writer's steps; None for fewer than three steps."""
    if len(lines) < LEAST:
        return None
    points: dict[int, Point] = {}
    for line in lines:
        if (step := signs.step(line.envelope.body)) is not None:
            points.setdefault(step, (step, line, _values(line.envelope.body)))
    if len(points) < LEAST:
        return None
    ordered = list(points.values())
    for before, after in pairwise(ordered):
        if (took := _between(before, after)) is not None:
            after[2][BETWEEN] = took
    chosen = _chosen(ordered)
    names = list(dict.fromkeys(name for _, _, values in chosen for name in values))[:NAMES]
    return {
        "steps": array("q", [step for step, _, _ in chosen]),
        "lines": array("q", [line.number for _, line, _ in chosen]),
        "values": {name: array("d", [values.get(name, ABSENT) for _, _, values in chosen]) for name in names},
    }


def _values(body: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, place, unit in _places(key_of(body)):
        if (value := _number(body[place])) is not None:
            found.setdefault(name, value * unit)
    return found


@lru_cache(KEPT)
def _places(key: bytes) -> list[tuple[str, slice, float]]:
    """The names of the values in lines that differ in digits only, their places and units."""
    body = key.decode("utf-8", "surrogatepass")
    found = []
    for name, m in (("loss", signs.LOSS.search(body)), ("grad_norm", _REGEXES["grad-norm"].search(body))):
        if m:
            found.append((name, slice(*m.span("loss" if name == "loss" else "n")), 1.0))
    for form in _TIMES:
        for m in _REGEXES[form].finditer(body, 0, 400):
            parts = m.groupdict()
            unit = (parts.get("unit") or parts.get("of") or parts.get("short") or "s").lower()
            found.append((parts["name"].lower(), slice(*m.span("n")), UNITS[unit]))
    return found


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # `2.-3`
        return None


def _between(before: Point, after: Point) -> float | None:
    """Seconds per step by the stamps of two lines."""
    (step, line, _), (next_step, next_line, _) = before, after
    a, b = line.envelope.stamp, next_line.envelope.stamp
    if a is None or b is None or a.clock != b.clock or next_step <= step or b.time < a.time:
        return None
    return (b.time - a.time) / (next_step - step)


def _chosen(points: list[Point]) -> list[Point]:
    """Of many the same steps on every rank, the first step that is not a number, and the last ones."""
    if len(points) <= POINTS:
        return points
    odd = next((p for p in points if not all(map(math.isfinite, p[2].values()))), None)
    kept = {p[0] for p in (*points[-RECENT:], *([odd] if odd else ()))}
    ordered = sorted((p[0] for p in points), key=lambda step: (zlib.crc32(b"%d" % step), step))
    kept.update(ordered[: POINTS - RECENT])
    return [p for p in points if p[0] in kept]
