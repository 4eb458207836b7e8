"""Common lines of several clocks -> the offset of each against the consensus of all.

In: `sync` events. Out: the segments of each clock that has marks, in the order of time, with their sources. Imported
only where there are several clocks, as it needs numpy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from postmortem.align import marks as reading
from postmortem.align.marks import Readings
from postmortem.align.owners import ClockId, Owners
from postmortem.align.place import Bends, Correction, regauged
from postmortem.align.solve import Fit, group_median, in_time
from postmortem.align.steps import Segmented, solve_with_steps
from postmortem.model import Event

Array = Any

LEAST = 4  # inliers below which a clock is not called aligned
SHARE = 0.6  # of inliers
ROUGH = 1.0  # noise of marks that show zones and wrong clocks, and nothing finer
UNMEASURED = 0.02  # floor where nothing shows how late a host prints for good
WIDEN = 1.35  # of variances: the noise is no normal one, and the events' moments are estimates too
COARSE = 0.35  # of a stamp's sigma: hosts that round alike are wrong alike, however many lines they have
INLIER = 5.0  # in units of the usual residual among the clocks


class Segment(NamedTuple):
    """One piece of a clock: its correction without any zone, and how good it is."""

    correction: Correction
    marks: int
    inliers: int
    state: str  # aligned | weak | refused
    why: str
    first: float  # raw stamps of its first and last mark
    last: float
    drift: bool
    alone: float  # how far its last mark lies off where the one before does not


class _Judged(NamedTuple):
    """Marks in the order of clock and time:
    which lie where the fit has them, and which are finer than seconds."""

    time: Array
    residual: Array
    near: Array
    fine: Array


@dataclass(frozen=True)
class Consensus:
    """`connected` are the sets of clocks that common lines connect, the largest first;
    `kinds` counts the marks of each form."""

    segments: dict[ClockId, tuple[Segment, ...]]
    connected: tuple[tuple[ClockId, ...], ...]
    kinds: dict[ClockId, dict[str, int]]
    lines: dict[ClockId, dict[str, tuple[tuple[int, ...], tuple[int, ...]]]]
    ranks: dict[ClockId, str]  # of hosts without a name, where there are several


def compare(events: Sequence[Event], owners: Owners) -> Consensus | None:
    """Compare all clocks that have marks in common; None where no two have."""
    readings = reading.read(events, owners)
    if readings.marks.clocks < 2 or not len(readings.marks.time):
        return None
    solved = solve_with_steps(readings.marks)
    fit = solved.fit
    pieces = _segments(solved, _floor(readings, solved))
    middle = group_median(fit.moment[solved.marks.event], solved.marks.clock, solved.marks.clocks).tolist()
    parts: list[list[int]] = [[] for _ in readings.clocks]
    for piece, parent in enumerate(solved.parent.tolist()):
        if fit.used[piece] > 0:
            parts[parent].append(piece)
    segments: dict[ClockId, tuple[Segment, ...]] = {}
    lines: dict[ClockId, dict[str, tuple[tuple[int, ...], tuple[int, ...]]]] = {}
    for i, clock in enumerate(readings.clocks):
        order = sorted(parts[i], key=middle.__getitem__)
        if order:
            segments[clock] = tuple(pieces[p] for p in order)
        if len(order) > 1:
            lines[clock] = _lines(readings, solved, i, order)
    kinds = dict(zip(readings.clocks, readings.kinds, strict=True))
    return Consensus(segments, _connected(readings, solved), kinds, lines, _unnamed(owners, readings.clocks))


def _unnamed(owners: Owners, clocks: Sequence[ClockId]) -> dict[ClockId, str]:
    found = {}
    for clock in clocks:
        groups = owners.groups.get((clock.host, clock.kind), {})
        ranks = sorted(rank for rank, group in groups.items() if group == clock.group and rank is not None)
        if ranks:
            found[clock] = ", ".join(map(str, ranks[:8])) + ("…" if len(ranks) > 8 else "")
    return found


def _connected(readings: Readings, solved: Segmented) -> tuple[tuple[ClockId, ...], ...]:
    """A clock whose pieces fell apart belongs where its first piece is."""
    members: dict[int, list[ClockId]] = defaultdict(list)
    for i, clock in enumerate(readings.clocks):
        component = solved.fit.component[i]
        if component >= 0:
            members[int(component)].append(clock)
    return tuple(tuple(clocks) for clocks in sorted(members.values(), key=lambda clocks: -len(clocks)))


def _floor(readings: Readings, solved: Segmented) -> float:
    """How far hosts may lie apart for good without anybody seeing it: ranks of one host do so by `bias`, and
    where a line that is once in each log disagrees with the steps from host to host, the steps (or it)
    are late by host."""
    floors = [readings.bias] if readings.bias is not None else []
    fit, marks = solved.fit, solved.marks
    once = marks.noise > 0.9 * reading.ONCE_NOISE
    once &= marks.noise < 2 * reading.ONCE_NOISE
    if 5 <= once.sum() < 0.2 * len(once):
        late = fit.residual[once]
        spread = 1.4826 * float(np.median(np.abs(late - np.median(late))))
        usual = float(np.median(fit.scale[marks.clock[once]]))
        if spread > 3 * usual:
            floors.append(spread)
    return max(floors) if floors else UNMEASURED


def _segments(solved: Segmented, floor: float) -> dict[int, Segment]:
    """Every piece of a clock that has marks, by its number in the fit."""
    fit, marks = solved.fit, solved.marks
    usual = float(np.quantile(fit.scale[fit.used > 0], 0.25))
    limit = np.maximum(INLIER * usual, np.maximum(4 * marks.noise, 0.02))
    order = in_time(marks, fit.moment)
    judged = _Judged(
        *(a[order] for a in (marks.time, fit.residual, np.abs(fit.residual) <= limit, marks.noise < ROUGH))
    )
    floors = np.maximum(floor, COARSE * group_median(marks.noise, marks.clock, marks.clocks)).tolist()
    few = _few(solved) ** 2
    ends = np.cumsum(fit.used)
    return {
        p: _segment(fit, p, _Judged(*(a[ends[p] - fit.used[p] : ends[p]] for a in judged)), few, floors[p])
        for p in np.flatnonzero(fit.used).tolist()
    }


def _segment(fit: Fit, piece: int, own: _Judged, few: float, floor: float) -> Segment:
    near, n = own.near.tolist(), len(own.near)
    state, why = _state(own.near[own.fine].tolist(), n)
    widen = WIDEN * n / max(n - 2, 0.5) * few
    extra = 0.0 if n > 1 else 0.25
    if state == "refused":
        extra = float(np.quantile(np.abs(own.residual), 0.9)) ** 2
    bends = _bends(fit, piece, widen)
    correction = Correction(
        offset=float(fit.offset[piece]),
        drift=float(fit.drift[piece]),
        origin=fit.origin,
        centre=float(fit.centre[piece]),
        var=(0.0 if fit.bends else float(fit.var[piece]) * widen) + extra,
        var_drift=0.0 if fit.bends else float(fit.var_drift[piece]) * widen,
        bends=bends,
        floor=floor,
        centred=True,
    )
    times, off = own.time.tolist(), abs(float(own.residual[-1]))
    alone = off if state == "aligned" and not near[-1] and near[-2] else 0.0
    last = times[-2] if alone else times[-1]
    return Segment(correction, n, sum(near), state, why, times[0], last, n >= 6 and times[-1] - times[0] > 60, alone)


def _bends(fit: Fit, piece: int, widen: float) -> Bends:
    if fit.bends is None:
        return (), (), ()
    at, extra, var = fit.bends.at, fit.bends.extra[piece], fit.bends.var[piece] * widen
    return tuple(at.tolist()), tuple(extra.tolist()), tuple(var.tolist())


def _few(solved: Segmented) -> float:
    """The factor to widen an interval, as the noise itself is known from few readings: Student's t,
    roughly. A median of absolute residuals learns as much from 100 readings as a standard deviation does from
    37."""
    fit, marks = solved.fit, solved.marks
    free = len(marks.time) - marks.events - 2 * (int((fit.used > 0).sum()) - 1)
    return 1 + 1.9 / max(0.37 * free, 0.4)


def _state(near: Sequence[bool], marks: int) -> tuple[str, str]:
    """From the marks that are finer than a second, in the order of time:
    which of them lie where the fit has them."""
    n, inliers = len(near), sum(near)
    if not n:
        return (
            "weak",
            f"only {_counted(marks, 'common line')}, accurate only to seconds",
        )
    if inliers < SHARE * n:
        return (
            "refused",
            (
                f"only {inliers} of {n} common lines agree with the other clocks; a collector may have "
                f"stamped its lines late"
            ),
        )
    if n >= 2 * LEAST and not any(near[-2:]):
        return (
            "refused",
            "its last two common lines disagree with the earlier ones; it may have been set near the end",
        )
    if inliers < LEAST:
        return "weak", f"only {_counted(inliers, 'common line')}: too few to check them against each other"
    return "aligned", ""


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"


def _lines(
    readings: Readings, solved: Segmented, clock: int, order: list[int]
) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Which lines of a stepped clock belong to which segment, per source, from the marks themselves."""
    place = {piece: k for k, piece in enumerate(order)}
    marks = solved.marks
    own = np.isin(marks.clock, order)
    segment_of = {
        int(readings.hashes[e]): place[int(p)] for e, p in zip(marks.event[own], marks.clock[own], strict=True)
    }
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for source, line, key in readings.lines(clock):
        if key in segment_of:
            found[source][line] = segment_of[key]
    return {source: (tuple(sorted(rows)), tuple(rows[n] for n in sorted(rows))) for source, rows in found.items()}


def told_against(consensus: Consensus, clocks: Sequence[ClockId], shift: float, rate: float) -> Consensus:
    """The corrections of these clocks against another reference, exactly (see `place.regauged`)."""
    moved = {
        c: tuple(s._replace(correction=regauged(s.correction, shift, rate)) for s in consensus.segments[c])
        for c in clocks
    }
    return replace(consensus, segments={**consensus.segments, **moved})
