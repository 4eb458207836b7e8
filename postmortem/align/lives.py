"""Marks -> which of them belong to the same run of the job.

    logs/agent.err                 step 10 of rank 1 at 13:32:55
    logs/previous_run/agent.err    step 10 of rank 1 at 12:58:20   another run: its step 10 is another moment

People keep runs side by side. The same rank prints the same line once in a run; where it is in two
folders with two stamps, these folders hold two runs. A copy (a tee) has the same stamp. Folders that never
disagree are one run, the nearest in time where several would do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from postmortem.model import Event

SAME = 2.0  # seconds between copies of one line
SAME_LINE = 0.01  # where one is with a zone and one without: the fraction is the same
LOOKED_AT = 5  # marks from each end
Unit = tuple[str, str | None]  # top folder, run


def runs(syncs: Sequence[Event]) -> dict[str, int]:
    """Source -> number of its run. All 0 where nothing separates them."""
    units = _units(syncs)
    several = Counter(rank for rank, _ in {(e.rank, units[e.where.source]) for e in syncs})
    seen: dict[tuple[object, ...], list[tuple[Unit, str, float]]] = defaultdict(list)
    for e in syncs:
        if e.rank is not None and several[e.rank] > 1:
            for row, time in _ends(e):
                seen[e.rank, e.fields["family"], row].append((units[e.where.source], e.clock, time))
    apart = _apart(seen)
    if not apart:
        return dict.fromkeys(units, 0)
    starts: dict[Unit, float] = {}
    for e in syncs:
        unit = units[e.where.source]
        starts[unit] = min(starts.get(unit, float("inf")), e.time or 0.0)
    number: dict[Unit, int] = {}
    # those that no run fits but their own come first, so that the others have all runs to choose from
    for unit in sorted(starts, key=lambda u: (u not in apart, starts[u], str(u))):
        taken = {number[other] for other in apart.get(unit, ()) if other in number}
        free = [n for n in sorted(set(number.values())) if n not in taken]
        near = [(abs(starts[o] - starts[unit]), n) for o, n in number.items() if n in free]
        number[unit] = min(near)[1] if near else max(number.values(), default=-1) + 1
    return {source: number[unit] for source, unit in units.items()}


def without_copies(syncs: Sequence[Event], run_of: dict[str, int]) -> list[Event]:
    """Leave out a launcher's copies of lines in an attempt's file, and number lines in the launcher's log alone."""
    numbers: dict[int, set[int]] = defaultdict(set)
    filed: set[tuple[object, ...]] = set()
    for e in syncs:
        if e.attempt is not None:
            numbers[run_of[e.where.source]].add(e.attempt)
            filed.update((e.rank, e.fields["family"], time) for _, time in _ends(e))
    if not numbers:
        return list(syncs)
    out = []
    for e in syncs:
        if e.attempt is None and (known := numbers.get(run_of[e.where.source])):
            ends = _ends(e)
            copied = sum((e.rank, e.fields["family"], time) in filed for _, time in ends)
            if e.rank is not None and 2 * copied > len(ends):
                continue
            if len(known) == 1:
                e = e._replace(attempt=next(iter(known)))
        out.append(e)
    return out


def _units(syncs: Sequence[Event]) -> dict[str, Unit]:
    sources = {e.where.source: e.run for e in syncs}
    folders = [s.split("/")[:-1] for s in sources]
    depth = 0
    while folders and all(len(f) > depth and f[depth] == folders[0][depth] for f in folders):
        depth += 1
    found = {}
    for source, run in sources.items():
        parts = source.split("/")[depth:]
        found[source] = (parts[0] if len(parts) > 1 else "", run)
    return found


def _ends(e: Event) -> list[tuple[tuple[int, ...], float]]:
    """The first and the last marks of a packed event: the numbers, and the stamp."""
    values, times, width = e.fields["values"], e.fields["times"], e.fields["columns"]
    assert isinstance(values, Sequence) and isinstance(times, Sequence) and isinstance(width, int)
    n = len(times)
    places = range(n) if n <= 2 * LOOKED_AT else [*range(LOOKED_AT), *range(n - LOOKED_AT, n)]
    return [(tuple(values[i * width : (i + 1) * width]), times[i]) for i in places]


def _apart(seen: dict[tuple[object, ...], list[tuple[Unit, str, float]]]) -> dict[Unit, set[Unit]]:
    """Units that disagree about the stamp of the same line of the same rank more often than not."""
    votes: dict[tuple[Unit, Unit], int] = defaultdict(int)
    for rows in seen.values():
        first: dict[Unit, tuple[str, float]] = {}
        for unit, clock, time in rows[:16]:
            first.setdefault(unit, (clock, time))
        units = sorted(first, key=str)
        for i, a in enumerate(units):
            for b in units[i + 1 :]:
                votes[a, b] += -1 if _same(first[a], first[b]) else 1
    found: dict[Unit, set[Unit]] = defaultdict(set)
    for (a, b), vote in votes.items():
        if vote > 0:
            found[a].add(b)
            found[b].add(a)
    return found


def _same(a: tuple[str, float], b: tuple[str, float]) -> bool:
    """Whether two stamps are copies; with and without a zone they may be quarters of an hour apart."""
    apart = abs(a[1] - b[1])
    return apart <= SAME if a[0] == b[0] else abs(apart - round(apart / 900) * 900) <= SAME_LINE
