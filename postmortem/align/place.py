"""Corrections of clocks -> corrected events.

An event gets the time of its clock's segment and one standard deviation: resolution of the stamp, uncertainty of the
correction at that moment, and the floor that comparing clocks cannot get under. A line without a stamp gets the interval
between its neighbours in the file. What was written between the last common line before a step and the first behind it may
belong to either side, so it carries the jump. Raw stamps stay as they are.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from postmortem.align.owners import ClockId, Owners
from postmortem.model import Event

UNBOUNDED = 60.0  # sigma of a line that has a stamped neighbour on one side only
UNSEEN = 0.05  # one standard deviation of what a host may print late for good without any line showing it (see docs/clocks.md)
UNSTAMPED = 0.5  # least sigma of a line without a stamp


@dataclass(frozen=True)
class Correction:
    """`true = origin + (t - shift - origin - offset) / (1 + drift)`; `shift` is the zone. One for each segment of a clock."""

    shift: float = 0.0
    offset: float = 0.0
    drift: float = 0.0
    origin: float = 0.0
    centre: float = 0.0
    var: float = 0.0
    var_drift: float = 0.0
    floor: float = 0.0
    centred: bool = False  # stamps of coarse resolution are moved to the middle of their interval
    bends: tuple[tuple[float, float, float], ...] = ()  # moment behind the origin, seconds on top, their variance

    def apply(self, t: float, sigma: float) -> tuple[float, float]:
        """Corrected time and its standard deviation."""
        from_origin = (t - self.shift - self.origin - self.offset) / (1 + self.drift)
        if self.centred and sigma < 0.45:
            from_origin += sigma / 0.6
        at = self.origin + from_origin - self._bend(from_origin)[0]
        return at, math.hypot(sigma, self.sigma_at(at))

    def offset_at(self, moment: float) -> float:
        return self.offset + self.drift * (moment - self.origin) + self._bend(moment - self.origin)[0]

    def sigma_at(self, moment: float) -> float:
        away = moment - self.origin - self.centre
        return float((self.var + away * away * self.var_drift + self._bend(moment - self.origin)[1] + self.floor * self.floor) ** 0.5)

    def _bend(self, moment: float) -> tuple[float, float]:
        """Seconds on top of offset and drift, and their variance; beyond the last knot the line goes on."""
        if len(self.bends) < 2:
            return 0.0, 0.0
        i = min(max(bisect_right(self.bends, (moment,)) - 1, 0), len(self.bends) - 2)
        (a, low, var), (b, high, other) = self.bends[i : i + 2]
        share = (moment - a) / (b - a)
        return low + share * (high - low), var + min(max(share, 0.0), 1.0) * (other - var)


def regauged(c: Correction, shift: float, rate: float) -> Correction:
    """The same correction against another reference, exactly: `u' - origin = (u - origin) (1 + rate) + shift`.

    With offsets of hours a linear shift would be seconds off: 50 ppm times 12 h are 2 s.
    """
    drift = (1 + c.drift) / (1 + rate) - 1
    bends = tuple((at * (1 + rate) + shift, extra, var) for at, extra, var in c.bends)
    return replace(c, drift=drift, offset=c.offset - (1 + drift) * shift, centre=c.centre * (1 + rate) + shift, bends=bends)


@dataclass(frozen=True)
class Pieces:
    """The segments of one clock. `lines` gives for each source the lines whose segment is known; `edges` are the raw times
    between which each change happened. A last common line that lies off alone (`alone`: the one before it, and how far) may be the
    first behind a step: what is written behind the one before it carries that as error."""

    corrections: tuple[Correction, ...]
    lines: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
    edges: tuple[tuple[float, float], ...] = ()
    alone: tuple[float, float] | None = None

    def choose(self, source: str, line: int | None, t: float) -> tuple[int, int]:
        """The earliest and the latest segment the line may belong to: by its place in the file, else by its stamp."""
        if line is not None and source in self.lines:
            numbers, segments = self.lines[source]
            i = bisect_right(numbers, line)
            if i and numbers[i - 1] == line:
                return segments[i - 1], segments[i - 1]
            low = segments[i - 1] if i else 0
            high = segments[i] if i < len(segments) else len(self.corrections) - 1
            return (low, high) if low <= high else (high, low)
        low = high = 0
        for k, (before, behind) in enumerate(self.edges):
            if t > max(before, behind):
                low = high = k + 1
            elif t >= min(before, behind):
                high = k + 1
        return low, high

    def apply(self, source: str, line: int | None, t: float, sigma: float) -> tuple[float, float]:
        low, high = self.choose(source, line, t)
        first, spread = self.corrections[low].apply(t, sigma)
        if low == high:
            return first, spread + (self.alone[1] / 2 if self.alone and t > self.alone[0] else 0.0)
        times = [c.apply(t, sigma)[0] for c in self.corrections[low : high + 1]]
        return (min(times) + max(times)) / 2, spread + (max(times) - min(times)) / 2


def placed(e: Event, clock: ClockId | None, pieces: Mapping[ClockId, Pieces]) -> Event:
    """The event with its corrected time; unchanged where its clock is not understood."""
    if clock is None or e.time is None or clock not in pieces:
        return e
    at, sigma = pieces[clock].apply(e.where.source, e.where.line, e.time, e.sigma)
    return e._replace(at=at, at_sigma=sigma)


def fill_gaps(events: Sequence[Event]) -> list[Event]:
    """Give events without a stamp the interval between their neighbours in the file: its middle, and half of it as sigma."""
    by_source: dict[str, list[int]] = defaultdict(list)
    for i, e in enumerate(events):
        if e.where.line is not None:
            by_source[e.where.source].append(i)
    out = list(events)
    for indices in by_source.values():
        indices.sort(key=lambda i: out[i].where.line or 0)
        behind: list[float | None] = []
        after: float | None = None
        for i in reversed(indices):
            behind.append(after)
            after = out[i].at if out[i].at is not None else after
        before: float | None = None
        for i, after in zip(indices, reversed(behind), strict=True):
            e = out[i]
            if e.at is not None:
                before = e.at
            elif e.clock == "none":
                out[i] = _between(e, before, after)
    return out


def _between(e: Event, before: float | None, after: float | None) -> Event:
    if before is not None and after is not None and after >= before:
        return e._replace(at=(before + after) / 2, at_sigma=max((after - before) / 2, UNSTAMPED))
    known = before if before is not None else after
    return e if known is None else e._replace(at=known, at_sigma=UNBOUNDED)


def counted(events: Sequence[Event], owners: Owners) -> dict[ClockId, tuple[tuple[float, float], int]]:
    """First and last stamp of each clock, and how many there are."""
    found: dict[ClockId, tuple[tuple[float, float], int]] = {}
    for e in events:
        if e.time is not None and (clock := owners.of(e)) is not None:
            (lo, hi), n = found.get(clock, ((e.time, e.time), 0))
            found[clock] = ((min(lo, e.time), max(hi, e.time)), n + 1)
    return found
