"""Events -> for every clock of the job's own logs its zone, its skew, how sure that is, and why.

First the lines that several clocks have in common (see `consensus`), then stamps that name zones, then the rest: a
reading of the same host's clock in another form shares its skew; a host whose log only begins and ends when the others'
do shares their span, so its zone is known, and nothing finer. A clock without a comparison is refused, with the reason.

    [rank14]:[E304 10:12:22.014551208 ProcessGroupNCCL.cpp:629] ... ran for 600054 milliseconds ...

A timeout with its duration shows when the waiting began. Ranks give up at different times, but those that wait in
collective 1240 entered it with the step before: a line in common, good for a second, where a job logs little else.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postmortem.align import place, zones
from postmortem.align.owners import ClockId, Owners, is_kernel, rows_of
from postmortem.align.place import Correction, Pieces
from postmortem.model import Event
from postmortem.model.details import Details

if TYPE_CHECKING:
    from postmortem.align.consensus import Consensus, Segment

ZONE_ONLY = 5.0  # sigma where only the zone is known: machines without NTP are seconds to minutes off
UNCOMPARED = 1.0  # sigma of a clock with a zone that nothing was compared with, among several
LOST = 3600.0  # sigma where not even the zone is known
DST = 3600.0
LEAST = 4  # common lines that outweigh an odd result
AGREEING = 3  # as many that agree with each other do, too
UNZONED = {"likely": "; this one fits the other hosts best", "open": ", and several fit", "alone": "; read as UTC"}
TOGETHER = 1.0  # seconds between ranks that enter the same collective


class Row(NamedTuple):
    """A segment of a clock, ready to be applied and shown."""

    correction: Correction
    zone: float | None
    known: bool  # whether its offset was found, not assumed
    events: int
    state: str
    reason: str
    drift: bool = False


@dataclass(frozen=True)
class Estimate:
    rows: tuple[Row, ...]
    pieces: Pieces


Estimates = dict[ClockId, Estimate]
Spans = Mapping[ClockId, tuple[float, float]]


def estimate(events: Sequence[Event], owners: Owners) -> Estimates:
    """All clocks but the kernel's."""
    consensus = _compared(events, owners)
    members = {c: found for c, found in owners.grouped(events).items() if not c.kernel}
    times = {c: [e.time or 0.0 for e in found] for c, found in members.items()}
    spans = {c: (min(stamps), max(stamps)) for c, stamps in times.items()}
    by_lines = zones.named_by_lines(members)
    by_ends = zones.named_by_span(spans)
    by_ends = {c: zone for c, zone in by_ends.items() if zones.is_usual(zone) or not zones.in_one_log(c, members)}
    named = {**by_ends, **by_lines, **zones.named_by_offset(members), **zones.named_by_epoch(members)}
    found, how = _synced(consensus, named, spans) if consensus is not None else ({}, "")
    _take_twins(found, named, spans)
    lonely = [c for c in sorted(spans, key=lambda c: (-len(times[c]), str(c))) if c not in found]
    _take_lonely(lonely, found, named, spans, how)
    return dict(sorted(found.items(), key=lambda item: str(item[0])))


def _compared(events: Sequence[Event], owners: Owners) -> Consensus | None:
    marks = (*(e for e in events if e.kind == "sync"), *began_to_wait(events))
    syncs = [e for e in marks if not is_kernel(e)]  # a file called dmesg.txt may hold a rank's lines
    if len(set(map(owners.of, syncs))) > 1 or _ranks_apart(syncs):
        from postmortem.align.consensus import compare

        return compare(syncs, owners)
    return None


def began_to_wait(events: Iterable[Event]) -> Iterator[Event]:
    """One mark for each rank and collective that timed out, at the moment at which its waiting began."""
    seen: set[tuple[object, ...]] = set()
    for e in events:
        waited, number = e.fields.get("ran_ms"), e.fields.get("seq")
        if waited is None or e.time is None or e.rank is None or number is None:
            continue
        family = f"once entered collective {number} of {e.fields.get('pg') or 'its group'}"
        if (key := (e.where.source, e.rank, family)) in seen:
            continue
        seen.add(key)
        began = e.time - waited / 1000
        zero = array("q", [0])
        fields: Details = {"family": family, "columns": 1, "values": zero, "times": array("d", [began]), "lines": zero}
        yield e._replace(kind="sync", time=began, sigma=(e.sigma**2 + TOGETHER**2) ** 0.5, fields=fields)


def _ranks_apart(syncs: Sequence[Event]) -> bool:
    """Whether ranks of one unnamed host print a line more than a second apart: a cheap look before numpy is loaded."""
    first: dict[tuple[object, ...], float] = {}
    for e in syncs:
        if e.rank is None or e.host is not None:
            continue
        for row, time in rows_of(e, range(20)):
            if abs(first.setdefault((e.fields["family"], e.run, e.attempt, row), time) - time) > 1.0:
                return True
    return False


# ── clocks with common lines ────────────────────────────────────────────────────────────────────────────────


def _synced(consensus: Consensus, named: Mapping[ClockId, float], spans: Spans) -> tuple[Estimates, str]:
    """The clocks that common lines connect: the largest set gives the job's time, the others are set beside it."""
    found: Estimates = {}
    main = ""
    for clocks in consensus.connected:
        clocks = tuple(c for c in clocks if c in consensus.segments)
        totals = {c: _largest(consensus.segments[c]).correction.offset for c in clocks}
        named = {**named, **zones.named_by_twin(totals)}
        known = {c: named.get(c, 0.0) for c in clocks if c.kind == "absolute" or c in named}
        base, how = zones.gauge(totals, known)
        consensus = _against_middle(consensus, totals, known, base)
        rows = {c: _estimate(c, consensus, named, how) for c in clocks if _believable(c, consensus, how)}
        if main and rows:
            rows = _beside(rows, found, spans, how)
        found.update(_anchored(rows))
        main = main or (how if rows else "")
    return found, main


def _against_middle(
    consensus: Consensus, totals: Mapping[ClockId, float], known: Mapping[ClockId, float], base: float
) -> Consensus:
    """Against the middle of the clocks; of two, the one that counts as right has no drift either."""
    from postmortem.align.consensus import regauge

    skews = {c: abs(totals[c] - known.get(c, zones.snapped(totals[c] - base)) - base) for c in totals}
    order = sorted(totals, key=lambda c: (skews[c], str(c)))
    drifts = [_largest(consensus.segments[c]).correction.drift for c in (order if len(order) > 4 else order[:1])]
    return regauge(consensus, totals, base, median(drifts))


def _anchored(rows: Estimates) -> Estimates:
    """How well UTC itself is known: as far as the clocks lie apart, half of which may be as wrong as the other half."""
    skews = [row.correction.offset for e in rows.values() for row in e.rows if row.state == "aligned"]
    apart = max(skews, default=0.0) - min(skews, default=0.0)
    if apart < 1.0:
        return rows
    note = f"times are relative to the job's other clocks, which differ by up to {apart:.0f} s, so UTC is no more exact"
    noted = {
        c: tuple(row._replace(reason=f"{row.reason}; {note} than that") for row in e.rows) for c, e in rows.items()
    }
    return {c: replace(rows[c], rows=changed) for c, changed in noted.items()}


def _beside(rows: Estimates, found: Estimates, spans: Spans, how: str) -> Estimates:
    """The hosts that have lines in common with each other and none with the rest, at an unknown distance from it."""
    ends, rest = _corrected(rows, spans), _corrected(found, spans)
    shift = 0.0 if how == "named" else zones.by_span((min(ends), max(ends)), rest, _farthest(found))
    floor = UNCOMPARED if how == "named" else ZONE_ONLY if shift is not None else LOST
    others = f"{len(rows) - 1} other{'s' * (len(rows) != 2)}"
    why = f"compared with {others}; no line in common with the other {len(found)} clocks"
    out = {}
    for clock, old in rows.items():
        changed = []
        for row in old.rows:
            c = row.correction
            correction = c._replace(shift=c.shift + (shift or 0.0), floor=max(floor, c.floor))
            zone = row.zone if not shift or row.zone is None else row.zone + shift
            state = "refused" if shift is None else "weak"
            changed.append(row._replace(correction=correction, zone=zone, state=state, reason=f"{why}; {row.reason}"))
        out[clock] = Estimate(tuple(changed), replace(old.pieces, corrections=tuple(r.correction for r in changed)))
    return out


def _corrected(estimates: Estimates, spans: Spans) -> list[float]:
    """The corrected times of the first and the last line of each clock."""
    ends = (e.pieces.apply(["", ""], [None, None], np.array(spans[c]), np.zeros(2))[0] for c, e in estimates.items())
    return [t for both in ends for t in both.tolist()]


def _believable(clock: ClockId, consensus: Consensus, how: str) -> bool:
    """Whether common lines are this run's. Three that lie equally far off are; one or two may be another run's: they
    count where zone and skew come out as machines have them."""
    segments = consensus.segments[clock]
    if sum(s.marks for s in segments) >= LEAST or any(s.inliers >= AGREEING for s in segments):
        return True
    total = _largest(segments).correction.offset
    zone = 0.0 if clock.kind == "absolute" else zones.snapped(total)
    return abs(total - zone) <= zones.NEAR and (zones.exists(zone) or how in ("open", "alone"))


def _largest(segments: Sequence[Segment]) -> Segment:
    return max(segments, key=lambda s: s.marks)


def _estimate(clock: ClockId, consensus: Consensus, named: Mapping[ClockId, float], how: str) -> Estimate:
    rows = []
    segments = consensus.segments[clock]
    for i, s in enumerate(segments):
        zone = 0.0 if clock.kind == "absolute" else None
        if zone is None and how in ("named", "likely"):
            total = s.correction.offset_at(s.correction.origin + s.correction.centre)
            zone = named[clock] if clock in named and len(segments) == 1 else zones.snapped(total)
        correction = s.correction._replace(shift=zone or 0.0, offset=s.correction.offset - (zone or 0.0))
        reason = _reason(clock, consensus, s, i, how if clock.kind == "naive" and clock not in named else "named")
        rows.append(Row(correction, zone, True, s.marks, s.state, reason, s.drift))
    edges = tuple((a.last, b.first) for a, b in pairwise(segments))
    end = segments[-1]
    alone = (end.last, end.alone) if end.alone else None
    pieces = Pieces(tuple(r.correction for r in rows), consensus.lines.get(clock, {}), edges, alone)
    return Estimate(tuple(rows), pieces)


def _reason(clock: ClockId, consensus: Consensus, s: Segment, i: int, how: str) -> str:
    forms = sorted(consensus.kinds[clock].items(), key=lambda item: (-item[1], item[0]))
    kinds = ", ".join(f"{n} of `{form.removeprefix('once ')}`" for form, n in forms[:2])
    parts = [s.why] if s.why else []
    if consensus.ranks.get(clock):
        parts.append(f"an unnamed host, with rank {consensus.ranks[clock]}")
    parts.append(f"lines in common with other hosts: {kinds}")
    segments = consensus.segments[clock]
    if len(segments) > 1:
        parts.append(f"piece {i + 1} of {len(segments)}{_jump(segments, i, len(consensus.segments) == 2)}")
        parts.append("lines between two pieces have the jump as their error")
    if s.alone:
        off = f"{s.alone:.2f} s off: later lines have that error, the clock may have been set"
        parts.append(f"its last common line is {off}")
    if (turn := _turn(s)) > 0.5:
        parts.append(f"its rate changed by {turn:.1f} ppm during the run, corrected every few hours")
    if how in UNZONED:
        parts.append(f"no timestamp has a time zone{UNZONED[how]}")
    unseen = max(s.correction.floor, place.UNSEEN) * 1000
    parts.append(f"a constant delay of a host is not visible below {unseen:.0f} ms")
    return "; ".join(parts)


def _turn(s: Segment) -> float:
    """The difference between a clock's fastest and slowest hours, in ppm."""
    knots = [k for k in zip(*s.correction.bends, strict=True) if k[2] < place.UNSEEN**2]
    rates = [1e6 * (b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(knots)]
    return max(rates, default=0.0) - min(rates, default=0.0)


def _jump(segments: Sequence[Segment], i: int, few: bool) -> str:
    if not i:
        return ""
    before, behind = segments[i - 1], segments[i]
    a, b = before.correction, behind.correction
    moment = (a.apply(before.last, 0.0)[0] + b.apply(behind.first, 0.0)[0]) / 2
    jump = b.offset_at(moment) - a.offset_at(moment)
    if abs(abs(jump) - DST) < 5:
        return f", after its clock was set by {jump:+.0f} s: daylight saving time"
    return f", after its clock was set by {jump:+.2f} s" + (" (or the other host's the other way)" if few else "")


# ── clocks without ──────────────────────────────────────────────────────────────────────────────────────────


def _one(correction: Correction, zone: float | None, known: bool, events: int, state: str, reason: str) -> Estimate:
    row = Row(correction, zone, known, events, state, reason)
    return Estimate((row,), Pieces((correction,), {}))


def _take_twins(found: Estimates, named: Mapping[ClockId, float], spans: Spans) -> None:
    """Give another form of stamp of a host with a known clock the same skew, and its doubts."""
    of_a_host: defaultdict[tuple[str | None, int], set[ClockId]] = defaultdict(set)
    for clock in found:
        of_a_host[clock.host, clock.group].add(clock)
    for clock in sorted((c for c in spans if c not in found or _scant(found[c])), key=str):
        others = of_a_host[clock.host, clock.group] - {clock}
        twin = min(others, key=str, default=None)
        if twin is None or any(row.zone is None for row in found[twin].rows):
            continue
        zone = 0.0 if clock.kind == "absolute" else named.get(clock)
        if clock in found:
            zone = found[clock].rows[0].zone if _reads_as(found[clock], found[twin], spans[clock][1]) else None
        if zone is None:
            continue
        why = f"the same clock as the host's stamps {'without' if twin.kind == 'naive' else 'with'} a zone"
        rows = tuple(
            row._replace(correction=row.correction._replace(shift=zone), zone=zone, reason=f"{why} ({row.reason})")
            for row in found[twin].rows
        )
        shifts = [(row.zone or 0.0) - zone for row in found[twin].rows]
        moved = zip(found[twin].pieces.edges, pairwise(shifts), strict=False)
        edges = tuple((a - x, b - y) for (a, b), (x, y) in moved)
        alone = (end[0] - shifts[-1], end[1]) if (end := found[twin].pieces.alone) else None
        found[clock] = Estimate(rows, Pieces(tuple(r.correction for r in rows), {}, edges, alone))
        of_a_host[clock.host, clock.group].add(clock)


def _scant(e: Estimate) -> bool:
    """Whether a clock has too few common lines to be known by them: a watchdog's stamp among a trainer's."""
    return len(e.rows) == 1 and e.rows[0].state == "weak" and e.rows[0].events < LEAST


def _reads_as(own: Estimate, twin: Estimate, moment: float) -> bool:
    """Whether the few lines of a clock lie where those of its host's other stamps have it."""
    if any(row.state != "aligned" for row in twin.rows):
        return False
    a, b = own.rows[-1].correction, twin.rows[-1].correction
    return abs(a.offset_at(moment - a.shift) - b.offset_at(moment - a.shift)) < ZONE_ONLY


def _take_lonely(
    lonely: Sequence[ClockId], found: Estimates, named: Mapping[ClockId, float], spans: Spans, how: str
) -> None:
    """Clocks that no common line connects: by their stamps' zone, by their span, or not at all."""
    several = len({(c.host, c.group) for c in spans}) > 1
    floor = UNCOMPARED if several else 0.0
    for clock in lonely:
        if clock.kind == "absolute":
            reason = "timestamps have a time zone; not compared with other hosts"
            found[clock] = _one(Correction(floor=floor), 0.0, True, 0, "weak", reason)
        elif clock in named:
            reason = "its time zone follows from seconds since 1970 on this host; its skew is not comparable"
            zone, state = named[clock], "weak" if several else "aligned"
            found[clock] = _one(Correction(shift=zone, floor=floor), zone, True, 1, state, reason)
    rest = [c for c in lonely if c not in found]
    reference = _corrected(found, spans)
    if not reference and rest:
        reference = list(spans[rest[0]])
        how = ""
    totals = {c: z for c in rest if (z := zones.by_span(spans[c], reference, _farthest(found))) is not None}
    if not how and not found:
        base, how = zones.gauge(totals, {})
        base = zones.snapped(base)
    else:
        base, how = 0.0, how or "named"
    for clock in rest:
        found[clock] = _by_span(totals.get(clock), base, how, several)


def _farthest(found: Estimates) -> float:
    """How far two clocks may lie apart by their zones: UTC is one of them, where a clock with a zone is known."""
    return zones.FARTHEST if any(c.kind == "absolute" for c in found) else 2 * zones.FARTHEST


def _by_span(total: float | None, base: float, how: str, several: bool) -> Estimate:
    if total is None:
        why = (
            "no line in common with the other hosts, or too few; its timestamps have no time zone, and its times do not"
        )
        return _one(Correction(floor=LOST), None, False, 0, "refused", f"{why} match theirs")
    zone = total - base
    if not several:
        return _one(Correction(shift=zone), None, False, 0, "weak", "timestamps without a time zone; read as UTC")
    shown = zone if how in ("named", "likely") else None
    reason = "no line in common with the other hosts; its log covers the same time as theirs"
    reason += "; no timestamp has a time zone" if shown is None else ""
    offset = Correction(shift=zone, floor=ZONE_ONLY if zone else UNCOMPARED)
    return _one(offset, shown, shown is not None or not zone, 0, "weak", reason)
