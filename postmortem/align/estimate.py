"""Events -> for every clock of the job's own logs its zone, its skew, how sure that is, and why.

First the lines that several clocks have in common (see `consensus`), then stamps that name zones, then the
rest: a reading of the same host's clock in another form shares its skew; a host whose log only begins and
ends when the others' do shares their span, so its zone is known, and nothing finer. A clock without a comparison is
refused, with the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from postmortem.align import place, waits, zones
from postmortem.align.owners import ClockId, Owners, is_kernel
from postmortem.align.place import Correction, Pieces
from postmortem.model import Event

if TYPE_CHECKING:
    from postmortem.align.consensus import Consensus, Segment

ZONE_ONLY = 5.0  # sigma where only the zone is known: machines without NTP are seconds to minutes off
UNCOMPARED = 1.0  # sigma of a clock with a zone that nothing was compared with, among several
LOST = 3600.0  # sigma where not even the zone is known
DST = 3600.0
LEAST = 4  # common lines that outweigh an odd result
AGREEING = 3  # as many that agree with each other do, too


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
    members = {c: found for c, found in owners.members().items() if not c.kernel}
    times = {c: [e.time or 0.0 for e in found] for c, found in members.items()}
    spans = {c: (min(stamps), max(stamps)) for c, stamps in times.items()}
    named = {**zones.named_by_span(spans), **zones.named_by_epoch(members)}
    found, how = _synced(consensus, named, spans) if consensus is not None else ({}, "")
    _take_twins(found, named, spans)
    lonely = [c for c in sorted(spans, key=lambda c: (-len(times[c]), str(c))) if c not in found]
    _take_lonely(lonely, found, named, spans, how)
    return dict(sorted(found.items(), key=lambda item: str(item[0])))


def _compared(events: Sequence[Event], owners: Owners) -> Consensus | None:
    marks = (*(e for e in events if e.kind == "sync"), *waits.marks(events))
    # a file called dmesg.txt may hold a rank's lines
    syncs = [e for e in marks if not is_kernel(e)]
    clocks = map(owners.of, syncs)
    first = next(clocks, None)
    if any(clock != first for clock in clocks) or _ranks_apart(syncs):
        from postmortem.align.consensus import compare

        return compare(syncs, owners)
    return None


def _ranks_apart(syncs: Sequence[Event]) -> bool:
    """Whether ranks of one unnamed host print the same line more than a second apart:
    a cheap look before numpy is loaded."""
    first: dict[tuple[object, ...], float] = {}
    for e in syncs:
        if e.rank is None or e.host is not None:
            continue
        values, times, width = e.fields["values"], e.fields["times"], e.fields["columns"]
        assert isinstance(values, Sequence) and isinstance(times, Sequence) and isinstance(width, int)
        for i in range(0, min(len(times), 20)):
            key = (e.fields["family"], e.run, e.attempt, tuple(values[i * width : (i + 1) * width]))
            if abs(first.setdefault(key, times[i]) - times[i]) > 1.0:
                return True
    return False


# ── clocks with common lines ────────────────────────────────────────────────────────────────────────────────


def _synced(consensus: Consensus, named: Mapping[ClockId, float], spans: Spans) -> tuple[Estimates, str]:
    """The clocks that common lines connect: the largest set of them gives the job's time,
    the others are set beside it."""
    found: Estimates = {}
    main = ""
    for clocks in consensus.connected:
        clocks = tuple(c for c in clocks if c in consensus.segments)
        totals = {c: _largest(consensus.segments[c]).correction.offset for c in clocks}
        named = {**named, **zones.named_by_twin(totals)}
        known = {c: named.get(c, 0.0) for c in clocks if c.kind == "absolute" or c in named}
        base, how = zones.gauge(totals, known)
        consensus = _told(consensus, clocks, totals, known, base)
        rows = {c: _estimate(c, consensus, named, how) for c in clocks if _believable(c, consensus, how)}
        if main and rows:
            rows = _beside(rows, found, spans, how)
        found.update(_anchored(rows))
        main = main or (how if rows else "")
    return found, main


def _told(
    consensus: Consensus,
    clocks: Sequence[ClockId],
    totals: Mapping[ClockId, float],
    known: Mapping[ClockId, float],
    base: float,
) -> Consensus:
    """Against the middle of the clocks: of two,
    the one whose skew is taken as none is the one without a drift too."""
    from postmortem.align.consensus import told_against

    skews = {c: abs(totals[c] - known.get(c, zones.snapped(totals[c] - base)) - base) for c in clocks}
    order = sorted(clocks, key=lambda c: (skews[c], str(c)))
    drifts = [_largest(consensus.segments[c]).correction.drift for c in (order if len(order) > 4 else order[:1])]
    return told_against(consensus, clocks, base, median(drifts))


def _anchored(rows: Estimates) -> Estimates:
    """How well UTC itself is known: as far as the clocks lie apart,
    half of which may be as wrong as the other half."""
    skews = [row.correction.offset for e in rows.values() for row in e.rows if row.state == "aligned"]
    apart = max(skews, default=0.0) - min(skews, default=0.0)
    if apart < 1.0:
        return rows
    note = (
        f"times are relative to the job's other clocks, which differ by up to {apart:.0f} s, so UTC is no "
        f"more exact than that"
    )
    return {
        c: replace(e, rows=tuple(row._replace(reason=f"{row.reason}; {note}") for row in e.rows))
        for c, e in rows.items()
    }


def _beside(rows: Estimates, found: Estimates, spans: Spans, how: str) -> Estimates:
    """Hosts that have lines in common with each other and none with the rest:
    how far they lie from the rest is not known."""
    ends = [e.pieces.apply("", None, t, 0.0)[0] for c, e in rows.items() for t in spans[c]]
    rest = [e.pieces.apply("", None, t, 0.0)[0] for c, e in found.items() for t in spans[c]]
    shift = 0.0 if how == "named" else zones.by_span((min(ends), max(ends)), rest)
    floor = UNCOMPARED if how == "named" else ZONE_ONLY if shift is not None else LOST
    why = (
        f"compared with {len(rows) - 1} other{'s' if len(rows) != 2 else ''}; no line in common with the "
        f"other {len(found)} clocks"
    )
    out = {}
    for clock, old in rows.items():
        changed = []
        for row in old.rows:
            correction = row.correction._replace(
                shift=row.correction.shift + (shift or 0.0), floor=max(floor, row.correction.floor)
            )
            zone = row.zone if not shift or row.zone is None else row.zone + shift
            state = "refused" if shift is None else "weak"
            changed.append(row._replace(correction=correction, zone=zone, state=state, reason=f"{why}; {row.reason}"))
        out[clock] = Estimate(tuple(changed), replace(old.pieces, corrections=tuple(r.correction for r in changed)))
    return out


def _believable(clock: ClockId, consensus: Consensus, how: str) -> bool:
    """One or two common lines may be another run's:
    they are believed where zone and skew come out as machines have them.

    Three that lie equally far off are no accident:
    a host five minutes fast has them, another run's keep other intervals."""
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
    zoned = how in ("named", "likely")
    segments = consensus.segments[clock]
    for i, s in enumerate(segments):
        total = s.correction.offset_at(s.correction.origin + s.correction.centre)
        zone = None
        if clock.kind == "absolute":
            zone = 0.0
        elif zoned:
            zone = named[clock] if clock in named and len(segments) == 1 else zones.snapped(total)
        correction = s.correction._replace(shift=zone or 0.0, offset=s.correction.offset - (zone or 0.0))
        reason = _reason(clock, consensus, s, i, how if clock.kind == "naive" and clock not in named else "named")
        rows.append(Row(correction, zone, True, s.marks, s.state, reason, s.drift))
    edges = tuple((a.last, b.first) for a, b in zip(segments, segments[1:], strict=False))
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
        parts.append(
            f"its last common line is {s.alone:.2f} s off: later lines have that error, the clock may have been set"
        )
    if (turn := _turn(s)) > 0.5:
        parts.append(f"its rate changed by {turn:.1f} ppm during the run, corrected every few hours")
    if how == "likely":
        parts.append("no timestamp has a time zone; this one fits the other hosts best")
    elif how in ("open", "alone"):
        parts.append(
            "no timestamp has a time zone; read as UTC"
            if how == "alone"
            else "no timestamp has a time zone, and several fit"
        )
    parts.append(
        f"a constant delay of a host is not visible below {max(s.correction.floor, place.UNSEEN) * 1000:.0f} ms"
    )
    return "; ".join(parts)


def _turn(s: Segment) -> float:
    """The difference between a clock's fastest and slowest hours, in ppm."""
    knots = [k for k in zip(*s.correction.bends, strict=True) if k[2] < place.UNSEEN**2]
    rates = [1e6 * (b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(knots, knots[1:], strict=False)]
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
    """Another form of stamp of a host whose clock is known has the same skew, and inherits its doubts."""
    of_a_host: defaultdict[tuple[str | None, int], set[ClockId]] = defaultdict(set)
    for clock in found:
        of_a_host[clock.host, clock.group].add(clock)
    for clock in sorted((c for c in spans if c not in found or _scant(found[c])), key=str):
        others = of_a_host[clock.host, clock.group] - {clock}
        twin = min(others, key=str, default=None)
        if twin is None or any(row.zone is None for row in found[twin].rows):
            continue
        if clock in found:
            zone = found[clock].rows[0].zone
            if not _reads_as(found[clock], found[twin], spans[clock][1]):
                continue
        else:
            zone = 0.0 if clock.kind == "absolute" else named.get(clock)
        if zone is None:
            continue
        rows = tuple(
            row._replace(
                correction=row.correction._replace(shift=zone),
                zone=zone,
                reason=(
                    f"the same clock as the host's stamps {'without' if twin.kind == 'naive' else 'with'} a "
                    f"zone ({row.reason})"
                ),
            )
            for row in found[twin].rows
        )
        shifts = [(row.zone or 0.0) - zone for row in found[twin].rows]
        edges = tuple(
            (a - x, b - y) for (a, b), x, y in zip(found[twin].pieces.edges, shifts, shifts[1:], strict=False)
        )
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
    """Clocks that no common line connects:
    by their stamps' zone, by their span, or not at all."""
    several = len({(c.host, c.group) for c in spans}) > 1
    floor = UNCOMPARED if several else 0.0
    for clock in lonely:
        if clock.kind == "absolute":
            reason = "timestamps have a time zone; not compared with other hosts"
            found[clock] = _one(Correction(floor=floor), 0.0, True, 0, "weak", reason)
        elif clock in named:
            reason = "its time zone follows from seconds since 1970 on this host; its skew is not comparable"
            found[clock] = _one(
                Correction(shift=named[clock], floor=floor),
                named[clock],
                True,
                1,
                "weak" if several else "aligned",
                reason,
            )
    rest = [c for c in lonely if c not in found]
    reference = [found[c].pieces.apply("", None, t, 0.0)[0] for c in found for t in spans[c]]
    if not reference and rest:
        reference = list(spans[rest[0]])
        how = ""
    totals = {c: z for c in rest if (z := zones.by_span(spans[c], reference)) is not None}
    if not how and not found:
        base, how = zones.gauge(totals, {})
        base = zones.snapped(base)
    else:
        base, how = 0.0, how or "named"
    for clock in rest:
        found[clock] = _by_life(totals.get(clock), base, how, several)


def _by_life(total: float | None, base: float, how: str, several: bool) -> Estimate:
    if total is None:
        why = (
            "no line in common with the other hosts, or too few; its timestamps have no time zone, "
            "and its times do not match theirs"
        )
        return _one(Correction(floor=LOST), None, False, 0, "refused", why)
    zone = total - base
    if not several:
        return _one(Correction(shift=zone), None, False, 0, "weak", "timestamps without a time zone; read as UTC")
    shown = zone if how in ("named", "likely") else None
    reason = "no line in common with the other hosts; its log covers the same time as theirs"
    if shown is None:
        reason += "; no timestamp has a time zone"
    offset = Correction(shift=zone, floor=ZONE_ONLY if zone else UNCOMPARED)
    return _one(offset, shown, shown is not None or not zone, 0, "weak", reason)
