"""Event -> the clock that stamped it.

Ranks of one host share its clock; a file's stamps with a zone, without one, and since boot are three readings of it that are
found separately. The kernel's lines are a reading of their own: `dmesg -T` adds today's boot time to seconds since boot, in
the zone of whoever ran it. Where the host is not named (one console of a whole job), ranks whose common lines lie apart
belong to different clocks; `split` tells them apart by number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from postmortem.model import Event


class ClockId(NamedTuple):
    """One reading of one clock. `group` numbers the unnamed hosts behind one name."""

    host: str | None
    group: int
    kind: str  # absolute | naive | boot
    kernel: bool


class Owners:
    """Knows for each event whose clock stamped it."""

    def __init__(self, events: Iterable[Event]) -> None:
        by_source: dict[str, set[str]] = defaultdict(set)
        by_rank: dict[tuple[str | None, int], set[str]] = defaultdict(set)
        self.elsewhere: set[tuple[str, int]] = set()  # folders with files of a rank whose host nobody named
        for e in events:
            if e.host is None and e.run is not None and e.rank is not None:
                self.elsewhere.update((folder, e.rank) for folder in _folders(e.where.source))
            if e.host is not None and e.kind != "exit":
                by_source[e.where.source].add(e.host)
                if e.rank is not None:
                    by_rank[e.run, e.rank].add(e.host)
        self.of_source = {source: next(iter(hosts)) for source, hosts in by_source.items() if len(hosts) == 1}
        self.of_rank = {key: next(iter(hosts)) for key, hosts in by_rank.items() if len(hosts) == 1}
        self.groups: dict[tuple[str | None, str], Mapping[int | None, int]] = {}

    def host(self, e: Event) -> str | None:
        if e.host is not None:
            return e.host
        other_run = (e.where.source.rpartition("/")[0], e.rank) in self.elsewhere  # a console beside that run's files
        by_rank = None if e.rank is None or other_run else self.of_rank.get((e.run, e.rank))
        return by_rank or self.of_source.get(e.where.source)

    def of(self, e: Event) -> ClockId | None:
        """The clock of a stamped event."""
        if e.time is None or e.clock == "none":
            return None
        kernel = is_kernel(e)
        host = self.host(e)
        groups = None if kernel else self.groups.get((host, e.clock))
        return ClockId(host, groups.get(e.rank, 0) if groups else 0, e.clock, kernel)

    def split(self, clock: ClockId, groups: Mapping[int | None, int]) -> None:
        """From now on the ranks of this clock are several."""
        self.groups[clock.host, clock.kind] = groups


@lru_cache(maxsize=4096)
def _folders(source: str) -> tuple[str, ...]:
    """The folders that a file lies in, but for the root."""
    parts = source.split("/")[:-1]
    return tuple("/".join(parts[: i + 1]) for i in range(len(parts)))


def is_kernel(e: Event) -> bool:
    return e.clock == "boot" or bool(e.fields.get("kernel")) or e.source_kind == "kernel"
