"""Offsets between readings -> time zone and skew of each.

    node-a  2026-11-20 21:13:48 step 10   node-b  2026-11-20 16:14:25 step 10   18,000 s west, 37 s fast

A zone is a multiple of 15 minutes, a skew is the rest. The zone of a stamp is best known from its own host:
torchrun's failure block is local time where the rank's error file has epoch seconds. Other hosts' stamps with
a zone show it for all clocks with known common lines. Failing both, two hosts 9 hours apart are more likely
Tokyo and UTC than UTC and an island; where that leaves it open, no zone is named.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise

from postmortem.align.owners import ClockId
from postmortem.align.years import YEARLESS_END
from postmortem.model import Event
from postmortem.model.digits import whole

QUARTER = 900.0
FARTHEST = 14 * 3600.0
NEAR = 120.0  # a skew below this leaves no doubt about the quarter of an hour
PAUSE = 3 * 3600.0  # a log may begin so long after the others' last line: a time limit's, after a hang
_PRINTED = re.compile(r"[+-]\d\d:?\d\d$")
SAME = 1.0  # seconds between two forms of one reading
CLEAR = 3.0  # how much likelier the best reading of unnamed zones must be than the next

# Likely zones of machines. Hours east of UTC -> weight; all others that exist get the last one.
_LIKELY: Mapping[float, float] = {
    0: 100.0, -8: 8.0, -7: 8.0, -5: 8.0, -4: 8.0, -6: 6.0, 1: 8.0, 2: 8.0, 8: 8.0, 9: 8.0, 5.5: 8.0,
    3: 3.0, 10: 3.0, 11: 2.0, -3: 2.0, 4: 2.0, 7: 2.0, 12: 1.0, 13: 1.0, 9.5: 0.5, 10.5: 0.5,
}  # fmt: skip
_EXISTING = {*range(-12, 15), -9.5, -3.5, -2.5, 3.5, 4.5, 5.75, 6.5, 8.75, 12.75, 13.75, *_LIKELY}
_RARE = 0.3


def snapped(offset: float) -> float:
    """The zone nearest to an offset."""
    return round(offset / QUARTER) * QUARTER


def weight(zone: float) -> float:
    """How likely a machine runs in this zone."""
    hours = zone / 3600
    return _LIKELY.get(hours, _RARE) if hours in _EXISTING else 1e-6


def is_usual(zone: float) -> bool:
    """Whether many machines run in this zone."""
    return weight(zone) >= 1.0


def exists(zone: float) -> bool:
    return zone / 3600 in _EXISTING


def named_by_epoch(members: Mapping[ClockId, Sequence[Event]]) -> dict[ClockId, float]:
    """Naive clock -> its zone: torchrun writes one reading of a rank's failure in local time into its block, and in
    seconds since 1970 into the rank's error file."""
    epochs: dict[tuple[object, ...], list[float]] = defaultdict(list)
    local: list[tuple[ClockId, tuple[object, ...], float]] = []
    for clock, e in ((clock, e) for clock, found in members.items() for e in found):
        if e.kind != "exit" and e.fields.get("reported_by") != "error-file" or e.time is None or e.time < YEARLESS_END:
            continue
        for who in (("rank", e.rank), ("local", e.fields.get("local_rank"))):
            if who[1] is None:
                continue
            if clock.kind == "absolute" and e.kind != "exit":
                epochs[clock.host, *who].append(e.time)
            elif clock.kind == "naive" and e.kind == "exit":
                local.append((clock, (clock.host, *who), e.time))
    votes: dict[ClockId, Counter[float]] = defaultdict(Counter)
    for clock, key, time in local:
        for other in epochs.get(key, ()):
            zone = snapped(time - other)
            if abs(time - other - zone) <= SAME and abs(zone) <= FARTHEST:
                votes[clock][zone] += 1
    return {clock: min(zones, key=lambda z: (-zones[z], abs(z))) for clock, zones in votes.items()}


def named_by_lines(members: Mapping[ClockId, Sequence[Event]]) -> dict[ClockId, float]:
    """Naive clock -> its zone, where neighboring lines of a log have stamps with and without one."""
    votes: dict[ClockId, Counter[float]] = defaultdict(Counter)
    for clock in (c for c in members if in_one_log(c, members)):
        logs: dict[str, list[tuple[int, float, str]]] = defaultdict(list)
        for kind in ("naive", "absolute"):
            for e in members.get(clock._replace(kind=kind), ()):
                logs[e.where.source] += [(line, time, kind) for line, time in _marks(e)]
        for (_, a, kind), (_, b, other) in chain.from_iterable(pairwise(sorted(marks)) for marks in logs.values()):
            apart = a - b if kind == "naive" else b - a
            if kind != other and abs(apart - snapped(apart)) <= NEAR:
                votes[clock][snapped(apart)] += 1
    found = {clock: zones.most_common(1)[0][0] for clock, zones in votes.items()}
    return {clock: zone for clock, zone in found.items() if exists(zone)}


def in_one_log(clock: ClockId, members: Mapping[ClockId, Sequence[Event]]) -> bool:
    """Whether a log has stamps of this naive clock and of its host's stamps with a zone: seconds since 1970 among the
    numbers of a line need not be near the end of a run, as those of a dump are."""
    twin = members.get(clock._replace(kind="absolute"), ()) if clock.kind == "naive" else ()
    return not {e.where.source for e in twin}.isdisjoint(e.where.source for e in members[clock])


def _marks(e: Event) -> Iterable[tuple[int, float]]:
    """The lines and the stamps of an event."""
    return zip(e.fields["lines"], e.fields["times"], strict=False) if e.kind == "sync" else [(e.line, e.time or 0.0)]


def named_by_offset(members: Mapping[ClockId, Sequence[Event]]) -> dict[ClockId, float]:
    """Naive clock -> its zone, where the stamps of its host with a zone print one other than UTC. A container that runs
    in UTC prints that whatever the zone of its host is."""
    printed = {
        clock: {m[0] for e in found if e.raw_time and (m := _PRINTED.search(e.raw_time))}
        for clock, found in members.items()
        if clock.kind == "absolute"
    }
    zones = {c: _seconds(next(iter(texts))) for c, texts in printed.items() if len(texts) == 1}
    twins = {c: c._replace(kind="absolute") for c in members if c.kind == "naive"}
    return {c: zones[twin] for c, twin in twins.items() if zones.get(twin)}


def _seconds(printed: str) -> float:
    """`+05:30` in seconds."""
    digits = printed[1:].replace(":", "")
    return (-1 if printed[0] == "-" else 1) * (whole(digits[:2]) * 3600.0 + whole(digits[2:]) * 60.0)


def named_by_span(spans: Mapping[ClockId, tuple[float, float]]) -> dict[ClockId, float]:
    """Naive clock -> its zone, where the same host left stamps with a zone too: the shorter span is inside the longer.

    A dump or an error file is written at the end, so of several zones that fit, the one that brings the ends together.
    """
    found = {}
    for clock, own in spans.items():
        twin = spans.get(clock._replace(kind="absolute"))
        if clock.kind != "naive" or twin is None or own[0] < YEARLESS_END:
            continue
        longer = own[1] - own[0] > twin[1] - twin[0]
        after = own[1] - twin[1]
        within = math.floor((after + NEAR) / QUARTER) if longer else math.ceil((after - NEAR) / QUARTER)
        for zone in (within * QUARTER, snapped(own[0] - twin[0])):
            here = (own[0] - zone, own[1] - zone)
            inner, outer = (twin, here) if longer else (here, twin)
            if inner[0] >= outer[0] - NEAR and inner[1] <= outer[1] + NEAR and exists(zone):
                found[clock] = zone
                break
    return found


def named_by_twin(totals: Mapping[ClockId, float]) -> dict[ClockId, float]:
    """Naive clock -> its zone, where common lines show the offset of its host's stamps with a zone too."""
    twins = {c: c._replace(kind="absolute") for c in totals if c.kind == "naive"}
    return {c: snapped(totals[c] - totals[twin]) for c, twin in twins.items() if twin in totals}


def by_span(span: tuple[float, float], reference: Sequence[float], farthest: float = 2 * FARTHEST) -> float | None:
    """The zone that puts the span of a log on the span of the others; None where none does. Up to a pause only a
    distance between zones that exist counts: a quarter of an hour is a time-out."""
    ends = (span[0] - min(reference), span[1] - max(reference))
    fits = [snapped(d) for d in ends if abs(d - snapped(d)) <= NEAR and abs(d) <= farthest]
    fits = [z for z in fits if abs(z) > PAUSE or exists(z) or exists(-z)]
    if span[0] <= max(reference) and span[1] >= min(reference):
        fits = [z for z in fits if not z] or [0.0]
    return min(fits, key=abs) if fits else None


def gauge(totals: Mapping[ClockId, float], named: Mapping[ClockId, float]) -> tuple[float, str]:
    """The amount to subtract from all offsets so that they are zone plus skew, and how it was found: `named` by stamps,
    `likely`, `open` where several readings are as likely, `alone` where all are in one zone.

    `totals` are offsets of connected clocks against any reference, `named` the zones that are known.
    """
    skews = [total - named[c] for c, total in totals.items() if c in named]
    if skews:
        return middle(skews), "named"
    if not totals:
        return 0.0, "alone"
    first = next(iter(totals.values()))
    classes = {c: snapped(total - first) for c, total in totals.items()}
    centre = middle([total - classes[c] for c, total in totals.items()])
    apart = sorted(set(classes.values()))
    if len(apart) < 2:
        return centre, "alone"
    # the candidates for UTC, so that none of the zones lies beyond the date line
    bases = [-h * 3600.0 for h in _EXISTING if all(abs(z + h * 3600) <= FARTHEST for z in apart)]
    scored = sorted(((math.prod(weight(z - b) for z in apart), -abs(b), b) for b in bases), reverse=True)
    if scored and (len(scored) < 2 or scored[0][0] > CLEAR * scored[1][0]):
        return centre + scored[0][2], "likely"
    usual = Counter(classes.values()).most_common(1)[0][0]
    return centre + usual, "open"


def middle(skews: Sequence[float]) -> float:
    """The clock in the middle; of two the first, so that the job's time is the time of lines that can be found."""
    ordered = sorted(skews)
    return min(skews, key=lambda s: abs(s - ordered[len(ordered) // 2])) if len(skews) > 2 else skews[0]
