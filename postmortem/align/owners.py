"""Event -> the clock that stamped it, and the job that it belongs to.

Ranks of one host share its clock; a file's stamps with a zone, without one, and since boot are three readings
of it that are found separately. The kernel's lines are a reading of their own: `dmesg -T` adds today's boot
time to seconds since boot, in the zone of whoever ran it. Where the host is not named (one console of a whole
job), ranks with common lines that lie apart belong to different clocks; `split` numbers them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from postmortem.model import ClockKind, Event, Source

Jobs = Mapping[str | None, Sequence[str]]  # name of a job -> the paths of its sources
NO_JOBS: Jobs = {}
LOOKED_AT = 5  # marks from each end


class ClockId(NamedTuple):
    """One reading of one clock. `group` numbers the unnamed hosts behind one name."""

    host: str | None
    group: int
    kind: ClockKind
    kernel: bool


class Owners:
    """The clock of each event; `clocks` has those of the events it was made from, `job_of` the numbers of the jobs
    of sources, where they are of several."""

    def __init__(self, events: Sequence[Event], jobs: Jobs = NO_JOBS) -> None:
        self.job_of = {path: n for n, paths in enumerate(jobs.values()) for path in paths}
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


# ── copies ──────────────────────────────────────────────────────────────────────────────────────────────────


def without_copies(syncs: Sequence[Event], job_of: Mapping[str, int]) -> list[Event]:
    """Leave out a launcher's copies of lines in an attempt's file, and number lines in the launcher's log alone."""
    numbers: dict[int, set[int]] = defaultdict(set)
    filed: set[tuple[object, ...]] = set()
    for e in syncs:
        if e.attempt is not None:
            numbers[job_of.get(e.where.source, 0)].add(e.attempt)
            filed.update((e.rank, e.fields["family"], time) for _, time in _ends(e))
    if not numbers:
        return list(syncs)
    out = []
    for e in syncs:
        if e.attempt is None and (known := numbers.get(job_of.get(e.where.source, 0))):
            ends = _ends(e)
            copied = sum((e.rank, e.fields["family"], time) in filed for _, time in ends)
            if e.rank is not None and 2 * copied > len(ends):
                continue
            if len(known) == 1:
                e = e._replace(attempt=next(iter(known)))
        out.append(e)
    return out


def _ends(e: Event) -> list[tuple[tuple[int, ...], float]]:
    """The first and the last marks of a packed event."""
    n = len(e.fields["times"])
    return rows_of(e, range(n) if n <= 2 * LOOKED_AT else [*range(LOOKED_AT), *range(n - LOOKED_AT, n)])


def rows_of(e: Event, places: Iterable[int]) -> list[tuple[tuple[int, ...], float]]:
    """The numbers and the stamp of each of these marks of a packed event that it has."""
    values, times, width = e.fields["values"], e.fields["times"], e.fields["columns"]
    return [(tuple(values[i * width : (i + 1) * width]), times[i]) for i in places if i < len(times)]


# ── the host of a log ───────────────────────────────────────────────────────────────────────────────────────

# The lines that state a host are right where the name of a file or folder is not: `node0` is a number that a script
# gave, and a folder may be named after a host. An agent of torchrun states its own host
# (torch/distributed/elastic/multiprocessing/errors, socket.gethostname).

LOCAL = ("localhost", "localhost.localdomain")
Stated = Mapping[str, str]  # path of a source -> its host


def with_stated_hosts(events: Sequence[Event], sources: Sequence[Source]) -> tuple[list[Event], list[Source]]:
    """Events and sources with the hosts that failure reports state."""
    own = {s.path: s.host for s in sources}
    reports = {
        (e.where.source, e.host)
        for e in events
        if e.kind == "exit" and e.host and e.host not in LOCAL and own.get(e.where.source) != e.host
    }
    hosts = _of_names(reports, own) | _of_folders(reports, own) if reports else {}
    if not hosts:
        return [*events], [*sources]
    return [_on_host(e, hosts, own) for e in events], [replace(s, host=hosts.get(s.path, s.host)) for s in sources]


def _on_host(e: Event, hosts: Stated, own: Mapping[str, str | None]) -> Event:
    """The event on its log's host, where it has no host but that of the log's name."""
    host = hosts.get(e.where.source)
    return e._replace(host=host) if host and e.host in (None, own[e.where.source]) else e


def _of_names(reports: set[tuple[str, str]], own: Mapping[str, str | None]) -> dict[str, str]:
    """The logs of a name that is no host's: all reports in them state one other host, and no other name has it."""
    found: dict[str, set[str]] = defaultdict(set)
    for source, host in reports:
        if (name := own.get(source)) is not None:
            found[name].add(host)
    names = [host for hosts in found.values() for host in hosts]
    new = {name: min(hosts) for name, hosts in found.items() if len(hosts) == 1 and names.count(min(hosts)) == 1}
    taken = {host for host in own.values() if host}
    return {path: new[name] for path, name in own.items() if name in new and new[name] not in taken}


def _of_folders(reports: set[tuple[str, str]], own: Mapping[str, str | None]) -> dict[str, str]:
    """The logs without a host in a folder that is named like a host that a report states."""
    hosts = {host for _, host in reports}
    parts = {path: hosts.intersection(path.split("/")[:-1]) for path, name in own.items() if name is None}
    return {path: min(found) for path, found in parts.items() if len(found) == 1}
