"""Event -> the clock that stamped it.

Ranks of one host share its clock; a file's stamps with a zone, without one, and since boot are three readings
of it that are found separately. The kernel's lines are a reading of their own: `dmesg -T` adds today's boot
time to seconds since boot, in the zone of whoever ran it. Where the host is not named (one console of a whole
job), ranks whose common lines lie apart belong to different clocks; `split` numbers them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from postmortem.model import ClockKind, Event


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
        other_run = (
            e.where.source.rpartition("/")[0],
            e.rank,
        ) in self.elsewhere  # a console beside that run's files
        by_rank = None if e.rank is None or other_run else self.of_rank.get((e.run, e.rank))
        return by_rank or self.of_source.get(e.where.source)

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

    def members(self) -> dict[ClockId, list[Event]]:
        """The stamped events of each clock."""
        found: dict[ClockId, list[Event]] = defaultdict(list)
        for e, clock in zip(self.events, self.clocks, strict=True):
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
