"""Which events belong together: the jobs in a folder, and the attempts of a job.

Two folders are two jobs if the same ranks live in both at different times; `node-a/` and `node-b/` with different
ranks are one job. An attempt lasts from one restart to the next (torchrun's attempt_N); lines without an attempt join
one by their text, their pid or their time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from postmortem.diagnose.case import moment
from postmortem.formats.lineform import gist
from postmortem.model import Event, Source

LOGS = ("console", "agent", "json-lines")  # kinds of source in which a job writes
ATTEMPT_KINDS = ("line", "progress", "identity", "exception", "crash", "finished", "pattern", "exit")
Copy = tuple[str, str, int | None]
Key = tuple[str, str | None]  # top folder, torchrun's run folder or the job's number before a file's rank
_JOB_OF_FILE = re.compile(r"(?=[^/]{1,255}$)(?P<job>[^/]*\d[^/]*?)[-_.]+rank[-_.]?\d+[^/]*$")  # j100-rank0.log
_OF_ATTEMPT = re.compile(r"attempt_\d{1,4}")  # torchrun's folder of one attempt, beside the launcher's log
SLACK_S = 1.0


@dataclass
class _Unit:
    """Files that surely belong together, and what they show of their job."""

    sources: list[Source] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    pids: set[int] = field(default_factory=set)
    span: tuple[float, float] | None = None
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
        if (at := moment(e)) is not None:
            low, high = self.span or (at, at)
            self.span = (min(low, at), max(high, at))

    def is_launcher(self) -> bool:
        return all(s.kind == "agent" for s in self.sources if s.kind in LOGS)


Units = dict[Key, _Unit]


def split(events: Sequence[Event], sources: Sequence[Source]) -> dict[str | None, list[str]]:
    """Job name -> paths of its sources, earliest job first; one job named None where nothing separates several. Sources
    that show no job belong to the one at the top, else to each."""
    units = _units(events, sources)
    jobs = {key: u for key, u in units.items() if u.has_logs}
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
    spans = [u.span for u in (launcher, run) if u.span]
    for unit in (launcher, run):
        unit.ranks = launcher.ranks | run.ranks
        unit.ended_well = run.ended_well
        unit.span = (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None


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
    if a.span is None or b.span is None:
        return unlike
    apart = a.span[1] + SLACK_S < b.span[0] or b.span[1] + SLACK_S < a.span[0]
    return apart and (named or unlike)


def _start(units: Units, group: set[Key]) -> tuple[bool, float, str]:
    starts = [span[0] for key in group if (span := units[key].span)]
    return bool(starts), min(starts, default=0.0), str(sorted(map(str, group)))


def _name(group: set[Key], taken: Mapping[str | None, object]) -> str:
    tops, runs = sorted({top for top, _ in group if top}), sorted({run for _, run in group if run})
    name = next(iter((*tops, *runs)), "job")
    return name if name not in taken else f"{name} {runs[0] if runs else len(taken) + 1}"


# ── the attempts of one job ─────────────────────────────────────────────────────────────────────────────────


def separated(events: Sequence[Event]) -> dict[int, list[Event]]:
    """The events of each attempt. A line without an attempt belongs to the attempt of its pid or its copy (the second
    such line to the second of several), else to the one whose time it falls in, else to all."""
    known = sorted({e.attempt for e in events if e.attempt is not None})
    return {n: [*events] for n in known} if len(known) < 2 else _joined(events, known)


def _joined(events: Sequence[Event], known: Sequence[int]) -> dict[int, list[Event]]:
    copies: dict[Copy, set[int]] = defaultdict(set)
    starts: dict[int, float] = {}
    pids: dict[int, int] = {}
    for e in events:
        if e.attempt is not None:
            copies[_copy(e)].add(e.attempt)
            if (at := moment(e)) is not None:
                starts[e.attempt] = min(at, starts.get(e.attempt, at))
            if (pid := e.fields.get("pid", e.pid)) is not None:
                pids.setdefault(pid, e.attempt)
    order = sorted((at, attempt) for attempt, at in starts.items())
    out: dict[int, list[Event]] = {n: [] for n in known}
    seen: Counter[tuple[str, Copy]] = Counter()
    for e in events:
        own = e.attempt
        if own is None:
            nth = (e.where.source, _copy(e))
            own = _by_pid(e, pids)
            own = _by_copy(e, sorted(copies.get(nth[1], ())), seen[nth], starts) if own is None else own
            own = _by_time(e, order) if own is None else own
            seen[nth] += 1
        for attempt in out if own is None else (own,):
            out[attempt].append(e)
    return out


def _copy(e: Event) -> Copy:
    """What the copies of a line in other logs have in common with it."""
    return e.kind, gist(e.text), e.rank


def _by_pid(e: Event, pids: Mapping[int, int]) -> int | None:
    if e.pid is not None and e.kind == "exit" and e.pid in pids:
        return pids[e.pid]
    return pids.get(e.fields.get("pid") or 0)


def _by_copy(e: Event, found: Sequence[int], before: int, starts: Mapping[int, float]) -> int | None:
    """The attempt of its copy; `before`: how many such lines without an attempt are above it in its log."""
    if len(found) == 1 or (found and (e.at is None or not starts.keys() >= {*found})):
        return found[min(before, len(found) - 1)]
    return None


def _by_time(e: Event, order: Sequence[tuple[float, int]]) -> int | None:
    """The last attempt that had begun; `order`: start and number of each."""
    at = moment(e)
    if at is None or not order:
        return None
    begun = bisect_right(order, at + e.at_sigma, key=lambda start: start[0])
    return order[max(begun - 1, 0)][1]
