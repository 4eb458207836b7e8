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
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from postmortem.align.owners import ClockId
from postmortem.align.solve import Array
from postmortem.model import Event
from postmortem.model.frame import bound, plain

Line = tuple[str, int | None]  # source and line
Lines = Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]  # source -> lines in order, and the segment of each
Moment = tuple[float, float]  # on the job's clock, and one standard deviation

UNBOUNDED = 60.0  # sigma of a line behind the last stamp: it is not earlier
ABOVE = 61.0  # of one above the first stamp: it is not later
UNSEEN = 0.05  # one standard deviation of a constant delay of a host that no line shows (see docs/clocks.md)
IN_ORDER = 5.0  # seconds by which stamps of one file may go back (interleaved writers)
BROAD = 30.0  # sigma from which on a time has no place on the clock
UNSTAMPED = 0.5  # least sigma of a line without a stamp
# moments behind the origin, seconds on top, their variances
Bends = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]


def moment(e: Event) -> float | None:
    """When it was, on the job's clock; None where that is not known to half a minute."""
    return e.at if e.at_sigma < BROAD else None


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

    def apply(self, t: Any, sigma: Any) -> tuple[Any, Any]:
        """Corrected times and their standard deviations, of numbers or arrays."""
        from_origin = (t - self.shift - self.origin - self.offset) / (1 + self.drift)
        if self.centred:
            from_origin = from_origin + np.where(np.less(sigma, 0.45), np.divide(sigma, 0.6), 0.0)
        at = self.origin + from_origin - self._bend(from_origin)[0]
        return at, np.hypot(sigma, self.sigma_at(at))

    def offset_at(self, moment: float) -> float:
        return float(self.offset + self.drift * (moment - self.origin) + self._bend(moment - self.origin)[0])

    def sigma_at(self, moment: Any) -> Any:
        away = moment - self.origin - self.centre
        bend = self._bend(moment - self.origin)[1]
        return (self.var + away * away * self.var_drift + bend + self.floor * self.floor) ** 0.5

    def _bend(self, moment: Any) -> tuple[Any, Any]:
        """Seconds on top of offset and drift, and their variance; beyond the last knot the line goes on."""
        if len(self.bends[0]) < 2:
            return 0.0, 0.0
        at, extra, var = (np.array(knots) for knots in self.bends)
        i = np.searchsorted(at[1:-1], moment)
        share = (moment - at[i]) / (at[i + 1] - at[i])
        within = np.minimum(np.maximum(share, 0.0), 1.0)
        return extra[i] + share * (extra[i + 1] - extra[i]), var[i] + within * (var[i + 1] - var[i])


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

    def apply(self, sources: Sequence[str], lines: Sequence[int | None], t: Array, sigma: Array) -> tuple[Array, Array]:
        """Corrected times of some lines, and their standard deviations."""
        if len(self.corrections) == 1:
            at, spread = self.corrections[0].apply(t, sigma)
            return at, spread + (np.where(t > self.alone[0], self.alone[1] / 2, 0.0) if self.alone else 0.0)
        bounds = np.array([*map(self.choose, sources, lines, t.tolist())]).reshape(-1, 2)
        low, high = bounds[:, 0], bounds[:, 1]
        times, spreads = (np.array(a) for a in zip(*(c.apply(t, sigma) for c in self.corrections), strict=True))
        number = np.arange(len(self.corrections))[:, None]
        inside = (low <= number) & (number <= high)
        first, last = np.where(inside, times, np.inf).min(0), np.where(inside, times, -np.inf).max(0)
        spread = np.take_along_axis(spreads, low[None], 0)[0] + (last - first) / 2
        if self.alone:
            spread = spread + np.where((low == high) & (t > self.alone[0]), self.alone[1] / 2, 0.0)
        return (first + last) / 2, spread

    def one(self, source: str, line: int | None, t: float, sigma: float) -> Moment:
        """The corrected time of one line, and its standard deviation."""
        at, spread = self.apply([source], [line], np.array([t]), np.array([sigma]))
        return float(at[0]), float(spread[0])


def corrected(e: Event, clock: ClockId | None, pieces: Mapping[ClockId, Pieces]) -> Moment | None:
    """The event's corrected time and its sigma; None where its clock is not understood."""
    known = pieces.get(clock) if clock is not None else None
    return None if known is None or e.time is None else known.one(e.where.source, e.where.line, e.time, e.sigma)


def correct(rows: pd.DataFrame, clocks: Sequence[ClockId | None], pieces: Mapping[ClockId, Pieces]) -> None:
    """Fill in the times of the rows, each by its clock; lines without a stamp by the lines around them."""
    stamp, resolution = rows["stamp"].to_numpy(), rows["resolution"].to_numpy()
    at, sigma = np.full(len(rows), np.nan), np.zeros(len(rows))
    members: dict[ClockId, list[int]] = defaultdict(list)
    for i, clock in enumerate(clocks):
        if clock is not None and clock in pieces:
            members[clock].append(i)
    sources, lines = plain(rows["source"]), plain(rows["line"])
    for clock, own in members.items():
        places = [sources[i] for i in own], [lines[i] for i in own]
        at[own], sigma[own] = pieces[clock].apply(*places, stamp[own], resolution[own])
    if np.isnan(at).any():
        _fill_gaps(sources, lines, (rows["clock"] != "none").to_numpy(), at, sigma)
    rows["time"], rows["sigma"] = at, sigma
    bound(rows)


def refilled(events: Sequence[Event], known: Mapping[Line, Moment]) -> dict[Line, Moment]:
    """Times of lines known from other files, but those that contradict a line's neighbors, and of lines without a stamp
    around them. `events` are all of these files."""
    stamped = np.array([e.clock != "none" for e in events])
    at = np.array([e.at if e.clock != "none" else None for e in events], dtype=np.float64)
    sigma = np.array([e.at_sigma for e in events])
    fits = _fitting(events, at.tolist(), known)
    places = [(e.where.source, e.where.line) for e in events]
    for i, line in enumerate(places):
        at[i], sigma[i] = fits.get(line, (at[i], sigma[i]))
    _fill_gaps([e.where.source for e in events], [e.where.line for e in events], stamped, at, sigma)
    times = dict(fits)
    for e, moment, error in zip(events, at.tolist(), sigma.tolist(), strict=True):
        by_others = e.at is not None and e.at_sigma not in (UNBOUNDED, ABOVE)  # by stamps of other lines
        known_better = by_others and e.at_sigma <= error
        if e.clock == "none" and moment == moment and not known_better and (moment, error) != (e.at, e.at_sigma):
            times[e.where.source, e.where.line] = moment, error
    return times


def _fitting(events: Sequence[Event], at: Sequence[float], known: Mapping[Line, Moment]) -> dict[Line, Moment]:
    """The times that lie between those of the stamps around their lines."""
    stamped: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for e, moment in zip(events, at, strict=True):
        line = (e.where.source, e.where.line)
        if moment == moment and e.where.line is not None and line not in known:
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


def _fill_gaps(sources: Sequence[str], lines: Sequence[int | None], stamped: Array, at: Array, sigma: Array) -> None:
    """Give events without a stamp the time of their line's other event, or the interval between their neighbors."""
    missing = np.isnan(at).tolist()
    lacking = {source for source, unknown in zip(sources, missing, strict=True) if unknown}
    by_source: dict[str, list[tuple[int, bool, int]]] = defaultdict(list)
    for i, (source, line, unknown) in enumerate(zip(sources, lines, missing, strict=True)):
        if source in lacking and line is not None:
            by_source[source].append((line, unknown, i))
    for rows in by_source.values():
        before: Moment | None = None
        waiting: list[int] = []
        number = 0
        for line, unknown, i in sorted(rows):
            if not unknown:
                after = at[i], sigma[i]
                for k in waiting:
                    at[k], sigma[k] = _between(before, after)
                before, waiting, number, stamp = after, [], line, i
            elif before is not None and line == number:
                at[i], sigma[i] = at[stamp], sigma[stamp]
            elif not stamped[i]:
                waiting.append(i)
        if before is not None:
            for k in waiting:
                at[k], sigma[k] = before[0], UNBOUNDED


def _between(before: Moment | None, after: Moment) -> Moment:
    """The middle, with the neighbors' own errors on top of half of the interval."""
    if before is None:
        return after[0], ABOVE
    if after[0] < before[0]:
        return before[0], UNBOUNDED
    half = max((after[0] - before[0]) / 2, UNSTAMPED)
    return (before[0] + after[0]) / 2, math.hypot(half, max(before[1], after[1]))
