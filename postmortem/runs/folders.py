"""Which files are of one job: two folders are two jobs if the same ranks live in both at different times.

    monday/rank0.log   monday/rank1.log    tuesday/rank0.log      two jobs
    node-a/rank0.log   node-b/rank1.log                           one job on two hosts
    j100-rank0.log     j101-rank0.log                             two jobs in one folder, if not at one time

It is asked before the clocks are compared, so that step 10 of one job is never compared with step 10 of the other.
Times are those of the logs: of one kind of stamp, or further apart than two zones can be.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from postmortem.align.years import WALL, with_years
from postmortem.align.zones import FARTHEST
from postmortem.model import ClockKind, Event, Source

LOGS = ("console", "agent", "json-lines")  # kinds of source in which a job writes
ATTEMPT_KINDS = ("line", "progress", "identity", "exception", "crash", "finished", "pattern", "exit")
Key = tuple[str, str | None]  # top folder, torchrun's run folder or the job's number before a file's rank
_JOB_OF_FILE = re.compile(r"(?=[^/]{1,255}$)(?P<job>[^/]*\d[^/]*?)[-_.]+rank[-_.]?\d+[^/]*$")  # j100-rank0.log
_OF_ATTEMPT = re.compile(r"attempt_\d{1,4}")  # torchrun's folder of one attempt, beside the launcher's log
SLACK_S = 1.0


@dataclass
class _Unit:
    """Files that surely belong together, and what they show of their job."""

    sources: list[Source] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    hosts: set[str | None] = field(default_factory=set)
    pids: set[int] = field(default_factory=set)
    spans: dict[ClockKind, tuple[float, float]] = field(default_factory=dict)  # by the stamps with and without a zone
    has_logs: bool = False
    finished: set[int | None] = field(default_factory=set)
    ended_well: bool = False

    def add(self, e: Event) -> None:
        self.has_logs = True
        if e.pid is not None and e.pid > 1:
            self.pids.add(e.pid)
        if e.rank is not None:
            self.ranks.add(e.rank)
        if e.kind == "finished":
            self.finished.add(e.rank)
        if e.time is not None and e.clock in WALL:
            self.see(e.clock, e.time, e.time)

    def see(self, clock: ClockKind, first: float, last: float) -> None:
        low, high = self.spans.get(clock, (first, last))
        self.spans[clock] = (min(low, first), max(high, last))

    def is_launcher(self) -> bool:
        return all(s.kind == "agent" for s in self.sources if s.kind in LOGS)


Units = dict[Key, _Unit]


def split(events: Sequence[Event], sources: Sequence[Source]) -> dict[str | None, list[str]]:
    """Job name -> paths of its sources, earliest job first; one job named None where nothing separates several. Sources
    that show no job belong to the one at the top, else to each."""
    units = _units(with_years(events), sources)
    jobs = {key: units[key] for key in sorted(units, key=lambda key: _start(units, {key})) if units[key].has_logs}
    for launcher, run in _launched(jobs):
        _share(jobs[launcher], jobs[run])
    groups = _groups(jobs)
    if len(groups) < 2:
        return {None: [s.path for s in sources]}
    return _named(groups, jobs, [s.path for key, u in units.items() if key not in jobs for s in u.sources])


def _named(groups: Sequence[set[Key]], jobs: Units, others: Sequence[str]) -> dict[str | None, list[str]]:
    home = next((g for g in groups if any(top == "" for top, _ in g)), None)
    out: dict[str | None, list[str]] = {}
    for g in sorted(groups, key=lambda g: _start(jobs, g)):
        paths = [s.path for key in sorted(g, key=str) for s in jobs[key].sources]
        out[_name(g, out)] = paths + ([*others] if home is None or g is home else [])
    return out


def _units(events: Sequence[Event], sources: Sequence[Source]) -> Units:
    """The files by top folder and run, with what their events show."""
    depth = _common_depth([s.path.split("/")[:-1] for s in sources])
    units: Units = {}
    where: dict[str, _Unit] = {}
    for s in sources:
        *above, name = s.path.split("/")[depth:]
        top = above[0] if above and not _OF_ATTEMPT.fullmatch(above[0]) else ""
        job = _JOB_OF_FILE.match(name)
        unit = where[s.path] = units.setdefault((top, s.run or (job["job"] if job else None)), _Unit())
        unit.sources.append(s)
        unit.hosts.add(s.host)
        if s.rank is not None:
            unit.ranks.add(s.rank)
    for e in events:
        unit_of = where.get(e.where.source)
        if unit_of is not None and e.kind in ATTEMPT_KINDS and e.source_kind in LOGS and e.speaker != "kernel":
            unit_of.add(e)
    for unit in units.values():
        unit.ended_well = bool(unit.finished) and len(unit.finished) >= len(unit.ranks)
    return units


def _common_depth(folders: Sequence[Sequence[str]]) -> int:
    """The number of leading folders that all paths share."""
    depth = 0
    while folders and all(len(f) > depth and f[depth] == folders[0][depth] for f in folders):
        depth += 1
    return depth


def _launched(units: Units) -> Iterator[tuple[Key, Key]]:
    """Each launcher log with the one run folder beside it. It may have lines only at the end, long after the last line
    of a rank that hung."""
    runs = [key for key in units if key[1] is not None]
    launchers = {key for key, unit in units.items() if key[1] is None and unit.is_launcher()}
    for top, _ in sorted(launchers, key=str):
        beside = [run for run in runs if run[0] == top]
        if not beside and top == "":
            beside = [run for run in runs if (run[0], None) not in launchers]
        if len(beside) == 1:
            yield (top, None), beside[0]


def _share(launcher: _Unit, run: _Unit) -> None:
    """Give two units of one job what is known of either."""
    for clock, (low, high) in run.spans.items():
        launcher.see(clock, low, high)
    launcher.ranks |= run.ranks
    run.spans, run.ranks, launcher.ended_well = launcher.spans, launcher.ranks, run.ended_well


def _groups(units: Units) -> list[set[Key]]:
    """Units of one job together: all that nothing separates, directly or by way of others. Of thousands of hosts, only
    those that share a rank or lack ranks are compared."""
    by_rank: dict[int, set[Key]] = defaultdict(set)
    by_end: dict[bool, set[Key]] = {True: set(), False: set()}
    for key, unit in units.items():
        by_end[unit.ended_well].add(key)
        for rank in unit.ranks or (-1,):
            by_rank[rank].add(key)
    groups: list[set[Key]] = []
    for key, unit in units.items():
        near = by_end[not unit.ended_well]
        if unit.ranks:
            near = by_rank[-1].union(*(by_rank[rank] for rank in unit.ranks))
        apart = {other for other in near if other != key and _are_two_jobs(unit, units[other])}
        mates = [g for g in groups if apart.isdisjoint(g)]
        for g in mates:
            groups.remove(g)
        groups.append({key}.union(*mates))
    return groups


def _are_two_jobs(a: _Unit, b: _Unit) -> bool:
    """Whether the same ranks live in both at different times, or one of them ended well and the other did not and
    either has no clock."""
    if len(a.pids & b.pids) >= 2:  # the driver's console and the session's folder: the same processes
        return False
    named = bool(a.ranks and b.ranks)
    if named and a.ranks.isdisjoint(b.ranks):
        return False
    unlike = a.ended_well != b.ended_well
    if not a.spans or not b.spans:
        return unlike
    return (named or unlike) and _are_apart(a, b, named)


def _are_apart(a: _Unit, b: _Unit, same_ranks: bool) -> bool:
    """Whether one began after the end of the other. Stamps with and without a zone, and those of two hosts, may be some
    zones apart."""
    shared = a.spans.keys() & b.spans.keys()
    pairs = [(a.spans[clock], b.spans[clock]) for clock in shared] or [*product(a.spans.values(), b.spans.values())]
    slack = SLACK_S if shared and (same_ranks or a.hosts == b.hosts) else FARTHEST
    return all(x[1] + slack < y[0] or y[1] + slack < x[0] for x, y in pairs)


def _start(units: Units, group: set[Key]) -> tuple[bool, float, str]:
    starts = [low for key in group for low, _ in units[key].spans.values()]
    return bool(starts), min(starts, default=0.0), str(sorted(map(str, group)))


def _name(group: set[Key], taken: Mapping[str | None, object]) -> str:
    tops, runs = sorted({top for top, _ in group if top}), sorted({run for _, run in group if run})
    name = next(iter((*tops, *runs)), "job")
    return name if name not in taken else f"{name} {runs[0] if runs else len(taken) + 1}"
