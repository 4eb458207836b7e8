"""Event -> the clock that stamped it, and the run of the job that it belongs to.

Ranks of one host share its clock; a file's stamps with a zone, without one, and since boot are three readings
of it that are found separately. The kernel's lines are a reading of their own: `dmesg -T` adds today's boot
time to seconds since boot, in the zone of whoever ran it. Where the host is not named (one console of a whole
job), ranks with common lines that lie apart belong to different clocks; `split` numbers them.

    logs/agent.err                 step 10 of rank 1 at 13:32:55
    logs/previous_run/agent.err    step 10 of rank 1 at 12:58:20   another run: its step 10 is another moment

The same rank prints the same line once in a run; where it is in two folders with two stamps, these folders hold two
runs. A copy (a tee) has the same stamp. Folders that never disagree are one run, the nearest in time where several do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, takewhile
from typing import NamedTuple

from postmortem.model import ClockKind, Event

SAME = 2.0  # seconds between copies of one line
SAME_LINE = 0.01  # where one is with a zone and one without: the fraction is the same
LOOKED_AT = 5  # marks from each end
Unit = tuple[str, str | None]  # top folder, run


class ClockId(NamedTuple):
    """One reading of one clock. `group` numbers the unnamed hosts behind one name."""

    host: str | None
    group: int
    kind: ClockKind
    kernel: bool


class Owners:
    """The clock of each event; `clocks` has those of the events it was made from."""

    def __init__(self, events: Sequence[Event]) -> None:
        by_source: dict[str, set[str]] = defaultdict(set)
        by_rank: dict[tuple[str | None, int], set[str]] = defaultdict(set)
        self.elsewhere: set[tuple[str, int]] = set()  # folders with files of a rank on an unnamed host
        for source, host, run, rank in {
            (e.where.source, e.host, e.run, e.rank) for e in events if e.host is None or e.kind != "exit"
        }:
            if host is not None:
                by_source[source].add(host)
                if rank is not None:
                    by_rank[run, rank].add(host)
            elif run is not None and rank is not None:
                self.elsewhere.update((folder, rank) for folder in _folders(source))
        self.of_source = {source: next(iter(hosts)) for source, hosts in by_source.items() if len(hosts) == 1}
        self.of_rank = {key: next(iter(hosts)) for key, hosts in by_rank.items() if len(hosts) == 1}
        self.groups: dict[tuple[str | None, str], Mapping[int | None, int]] = {}
        self._ids: dict[tuple[object, ...], ClockId] = {}
        self.events = events
        self.clocks = [self.of(e) for e in events]

    def host(self, e: Event) -> str | None:
        if e.host is not None:
            return e.host
        host = self.of_source.get(e.where.source)
        # a console beside the files of another run is not of that run's host
        if e.rank is None or (e.where.source.rpartition("/")[0], e.rank) in self.elsewhere:
            return host
        return self.of_rank.get((e.run, e.rank), host)

    def of(self, e: Event) -> ClockId | None:
        """The clock of a stamped event."""
        if e.time is None or e.clock == "none":
            return None
        kernel = is_kernel(e)
        host = e.host if e.host is not None else self.host(e)
        groups = self.groups.get((host, e.clock)) if self.groups and not kernel else None
        key = (host, groups.get(e.rank, 0) if groups else 0, e.clock, kernel)
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = ClockId(*key)
        return found

    def split(self, clock: ClockId, groups: Mapping[int | None, int]) -> None:
        """From now on the ranks of this clock are several."""
        self.groups[clock.host, clock.kind] = groups
        self.clocks = [self.of(e) for e in self.events]

    def grouped(self, events: Sequence[Event]) -> dict[ClockId, list[Event]]:
        """The stamped ones of these events by their clock."""
        found: dict[ClockId, list[Event]] = defaultdict(list)
        for e, clock in zip(events, self.clocks if events is self.events else map(self.of, events), strict=True):
            if clock is not None:
                found[clock].append(e)
        return found


@lru_cache(maxsize=4096)
def _folders(source: str) -> tuple[str, ...]:
    """The folders that a file lies in, but for the root."""
    parts = source.split("/")[:-1]
    return tuple("/".join(parts[: i + 1]) for i in range(len(parts)))


def is_kernel(e: Event) -> bool:
    return e.clock == "boot" or e.speaker == "kernel"


# ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────


def runs(syncs: Sequence[Event]) -> dict[str, int]:
    """Source -> number of its run. All 0 where nothing separates them."""
    units = _units(syncs)
    several = Counter(rank for rank, _ in {(e.rank, units[e.where.source]) for e in syncs})
    seen: dict[tuple[object, ...], dict[Unit, tuple[str, float]]] = defaultdict(dict)
    for e in syncs:
        if e.rank is not None and several[e.rank] > 1:
            for row, time in _ends(e):
                seen[e.rank, e.fields["family"], row].setdefault(units[e.where.source], (e.clock, time))
    apart = _apart(seen.values())
    if not apart:
        return dict.fromkeys(units, 0)
    starts: dict[Unit, float] = defaultdict(lambda: float("inf"))
    for e in syncs:
        starts[units[e.where.source]] = min(starts[units[e.where.source]], e.time or 0.0)
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
    """Source -> the folder below those that all sources share, and the run that its path names."""
    sources = {e.where.source: e.run for e in syncs}
    levels = zip(*(source.split("/")[:-1] for source in sources), strict=False)
    depth = sum(1 for _ in takewhile(lambda names: len(set(names)) == 1, levels))
    parts = {source: source.split("/")[depth:] for source in sources}
    return {source: (parts[source][0] if len(parts[source]) > 1 else "", run) for source, run in sources.items()}


def _ends(e: Event) -> list[tuple[tuple[int, ...], float]]:
    """The first and the last marks of a packed event."""
    n = len(e.fields["times"])
    return rows_of(e, range(n) if n <= 2 * LOOKED_AT else [*range(LOOKED_AT), *range(n - LOOKED_AT, n)])


def rows_of(e: Event, places: Iterable[int]) -> list[tuple[tuple[int, ...], float]]:
    """The numbers and the stamp of each of these marks of a packed event that it has."""
    values, times, width = e.fields["values"], e.fields["times"], e.fields["columns"]
    return [(tuple(values[i * width : (i + 1) * width]), times[i]) for i in places if i < len(times)]


def _apart(seen: Iterable[dict[Unit, tuple[str, float]]]) -> dict[Unit, set[Unit]]:
    """Units that disagree about the stamp of the same line of the same rank more often than not."""
    votes: Counter[tuple[Unit, Unit]] = Counter()
    for first in seen:
        for a, b in combinations(sorted(first, key=str)[:16], 2):
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
