"""Corrections of clocks -> corrected events.

An event gets the time of its clock's segment and one standard deviation: resolution of the stamp, uncertainty
of the correction at that moment, and the floor that comparing clocks cannot get under. A line without a stamp
gets the interval between its neighbors in the file. Lines between the last common line before a
step and the first after it may belong to either side, so they have the jump as error. Raw stamps stay as they are.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from postmortem.align.owners import ClockId
from postmortem.model import Event

Line = tuple[str, int | None]  # source and line
Lines = Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]  # source -> lines in order, and the segment of each
Moment = tuple[float, float]  # on the job's clock, and one standard deviation

UNBOUNDED = 60.0  # sigma of a line that has a stamped neighbor on one side only
UNSEEN = 0.05  # one standard deviation of a constant delay of a host that no line shows (see docs/clocks.md)
IN_ORDER = 5.0  # seconds by which stamps of one file may go back (interleaved writers)
UNSTAMPED = 0.5  # least sigma of a line without a stamp
# moments behind the origin, seconds on top, their variances
Bends = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]


class Correction(NamedTuple):
    """Of one segment: `true = origin + (t - shift - origin - offset) / (1 + drift)`; `shift` is the zone."""

    shift: float = 0.0
    offset: float = 0.0
    drift: float = 0.0
    origin: float = 0.0
    centre: float = 0.0
    var: float = 0.0
    var_drift: float = 0.0
    floor: float = 0.0
    centred: bool = False  # stamps of coarse resolution are moved to the middle of their interval
    bends: Bends = ((), (), ())

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
        bend = self._bend(moment - self.origin)[1]
        return float((self.var + away * away * self.var_drift + bend + self.floor * self.floor) ** 0.5)

    def _bend(self, moment: float) -> tuple[float, float]:
        """Seconds on top of offset and drift, and their variance; beyond the last knot the line goes on."""
        at, extra, var = self.bends
        if len(at) < 2:
            return 0.0, 0.0
        i = bisect_left(at, moment, 1, len(at) - 1) - 1
        share = (moment - at[i]) / (at[i + 1] - at[i])
        inside = 0.0 if share < 0 else min(share, 1.0)
        return extra[i] + share * (extra[i + 1] - extra[i]), var[i] + inside * (var[i + 1] - var[i])


def regauged(c: Correction, shift: float, rate: float) -> Correction:
    """The same correction against another reference, exactly: `u' - origin = (u - origin) (1 + rate) + shift`.

    With offsets of hours a linear shift would be seconds off: 50 ppm times 12 h are 2 s.
    """
    drift = (1 + c.drift) / (1 + rate) - 1
    at, extra, var = c.bends
    moved = tuple(moment * (1 + rate) + shift for moment in at)
    centre = c.centre * (1 + rate) + shift
    return c._replace(drift=drift, offset=c.offset - (1 + drift) * shift, centre=centre, bends=(moved, extra, var))


@dataclass(frozen=True)
class Pieces:
    """The segments of one clock. `lines` gives for each source the lines with a known segment; `edges` are the raw
    times between which each change happened. A last common line that lies off alone (`alone`: the one before it, and
    how far) may be the first behind a step: a line behind the one before it has that as error."""

    corrections: tuple[Correction, ...]
    lines: Lines
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
        low, high = self.choose(source, line, t) if len(self.corrections) > 1 else (0, 0)
        first, spread = self.corrections[low].apply(t, sigma)
        if low == high:
            return first, spread + (self.alone[1] / 2 if self.alone and t > self.alone[0] else 0.0)
        times = [c.apply(t, sigma)[0] for c in self.corrections[low : high + 1]]
        return (min(times) + max(times)) / 2, spread + (max(times) - min(times)) / 2


def corrected(e: Event, clock: ClockId | None, pieces: Mapping[ClockId, Pieces]) -> tuple[float, float] | None:
    """The event's corrected time and its sigma; None where its clock is not understood."""
    known = pieces.get(clock) if clock is not None else None
    return None if known is None or e.time is None else known.apply(e.where.source, e.where.line, e.time, e.sigma)


def placed(events: Sequence[Event], clocks: Sequence[ClockId | None], pieces: Mapping[ClockId, Pieces]) -> list[Event]:
    """The events with their corrected times; unchanged where nothing is known."""
    at: list[float | None] = [None] * len(events)
    sigma = [0.0] * len(events)
    for i, clock in enumerate(clocks):
        if clock is not None and (found := corrected(events[i], clock, pieces)) is not None:
            at[i], sigma[i] = found
    _fill_gaps(events, at, sigma)
    known = zip(events, at, sigma, strict=True)
    # `at` and `at_sigma` are last
    return [e if moment is None else Event._make(e[:-2] + (moment, error)) for e, moment, error in known]


def refilled(events: Sequence[Event], known: Mapping[Line, Moment]) -> dict[Line, Moment]:
    """Times of lines known from other files, but those that contradict a line's neighbors, and of lines without a stamp
    around them. `events` are all of these files."""
    at = [e.at if e.clock != "none" else None for e in events]
    sigma = [e.at_sigma for e in events]
    fits = _fitting(events, at, known)
    for i, e in enumerate(events):
        at[i], sigma[i] = fits.get((e.where.source, e.where.line), (at[i], sigma[i]))
    _fill_gaps(events, at, sigma)
    times = dict(fits)
    for e, moment, error in zip(events, at, sigma, strict=True):
        known_better = e.at is not None and e.at_sigma != UNBOUNDED and e.at_sigma <= error  # by stamps of other lines
        if e.clock == "none" and moment is not None and not known_better and (moment, error) != (e.at, e.at_sigma):
            times[e.where.source, e.where.line] = moment, error
    return times


def _fitting(events: Sequence[Event], at: Sequence[float | None], known: Mapping[Line, Moment]) -> dict[Line, Moment]:
    """The times that lie between those of the stamps around their lines."""
    stamped: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for e, moment in zip(events, at, strict=True):
        line = (e.where.source, e.where.line)
        if moment is not None and e.where.line is not None and line not in known:
            stamped[e.where.source].append((e.where.line, moment))
    for moments in stamped.values():
        moments.sort()
    fits = {}
    for (source, number), (moment, error) in known.items():
        around = stamped[source]
        i = bisect_left(around, (number or 0, float("-inf")))
        low = around[i - 1][1] if i and number is not None else -math.inf
        high = around[i][1] if i < len(around) and number is not None else math.inf
        if low - IN_ORDER <= moment <= high + IN_ORDER or low > high:
            fits[source, number] = moment, error
    return fits


def _fill_gaps(events: Sequence[Event], at: list[float | None], sigma: list[float]) -> None:
    """Give events without a stamp the time of their line's other event, or the interval between their neighbors."""
    numbers = [e.where.line or 0 for e in events]
    by_source: dict[str, list[int]] = defaultdict(list)
    for i, e in enumerate(events):
        if e.where.line is not None:
            by_source[e.where.source].append(i)
    for lines in by_source.values():
        before: Moment | None = None
        waiting: list[int] = []
        for i in sorted(lines, key=lambda i: (numbers[i], at[i] is None)):
            if (moment := at[i]) is not None:
                after = moment, sigma[i]
                for k in waiting:
                    at[k], sigma[k] = _between(before, after)
                before, waiting, stamped = after, [], i
            elif before is not None and numbers[i] == numbers[stamped]:
                at[i], sigma[i] = at[stamped], sigma[stamped]
            elif events[i].clock == "none":
                waiting.append(i)
        if before is not None:
            for k in waiting:
                at[k], sigma[k] = before[0], UNBOUNDED


def _between(before: Moment | None, after: Moment) -> Moment:
    """The middle, with the neighbors' own errors on top of half of the interval."""
    if before is None or after[0] < before[0]:
        return (after if before is None else before)[0], UNBOUNDED
    half = max((after[0] - before[0]) / 2, UNSTAMPED)
    return (before[0] + after[0]) / 2, math.hypot(half, max(before[1], after[1]))
