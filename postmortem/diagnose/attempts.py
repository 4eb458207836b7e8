"""Which events belong together: the jobs in a folder, and the attempts of a job.

Two folders are two jobs if the same ranks live in both at different times; `node-a/` and `node-b/` with
different ranks are one job. An attempt is a life between two restarts (torchrun's attempt_N); lines without
an attempt join it by their text or time.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from postmortem.diagnose.case import moment
from postmortem.formats.lineform import gist
from postmortem.model import Event, Source
from postmortem.model.digits import number

SPOKEN = ("console", "agent", "json-lines")
ATTEMPT_KINDS = ("line", "progress", "identity", "exception", "crash", "finished", "pattern", "exit")


Copy = tuple[str, str, int | None]
Unit = tuple[str, str | None]  # top folder, torchrun's run folder or the job's number before a file's rank
_JOB_OF_FILE = re.compile(r"(?P<job>[^/]*\d[^/]*?)[-_.]+rank[-_.]?\d+[^/]*$")  # j100-rank0.log
_OF_A_LIFE = re.compile(r"attempt_\d{1,4}")  # torchrun's folder of one life, beside the launcher's log
SLACK_S = 1.0


@dataclass
class _Unit:
    """Files that surely belong together, and what they show of their job."""

    sources: list[Source] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    pids: set[int] = field(default_factory=set)
    span: tuple[float, float] | None = None
    spoken: bool = False
    goodbyes: set[int | None] = field(default_factory=set)
    ended_well: bool = False


def split(events: Sequence[Event], sources: Sequence[Source]) -> dict[str | None, list[str]]:
    """Job name -> paths of its sources, earliest job first. One job named None where nothing tells several
    apart.

    Two units are two jobs if the same ranks live in both at different times, or if one of them ended well
    and the other did not and neither has a clock. `node-a/` and `node-b/` have different ranks and are one
    job, however their clocks differ.
    """
    units = _units(events, sources)
    talking = {name: u for name, u in units.items() if u.spoken}
    for agent, run in _launched(talking):
        _share(talking[agent], talking[run])
    groups = _groups(talking)
    if len(groups) < 2:
        return {None: [s.path for s in sources]}
    mute = [s.path for name, u in units.items() if name not in talking for s in u.sources]
    return _named(groups, talking, mute)


def _named(groups: Sequence[set[Unit]], talking: dict[Unit, _Unit], mute: Sequence[str]) -> dict[str | None, list[str]]:
    """Each job's paths under its name. What tells of no job lies with the one at the top, else with each."""
    home = next((g for g in groups if any(top == "" for top, _ in g)), None)
    out: dict[str | None, list[str]] = {}
    for g in sorted(groups, key=lambda g: _start(talking, g)):
        paths = [s.path for name in sorted(g, key=str) for s in talking[name].sources]
        out[_name(g, out)] = paths + ([*mute] if home is None or g is home else [])
    return out


def _groups(talking: dict[Unit, _Unit]) -> list[set[Unit]]:
    """Units of one job together: all that nothing tells apart, directly or by way of others."""
    groups: list[set[Unit]] = []
    apart = _apart(talking)
    for name in talking:
        mates = [g for g in groups if apart[name].isdisjoint(g)]
        for g in mates:
            groups.remove(g)
        groups.append({name}.union(*mates))
    return groups


def _units(events: Sequence[Event], sources: Sequence[Source]) -> dict[Unit, _Unit]:
    """The files by top folder and run, with what their events show."""
    depth = _common_depth([s.path for s in sources])
    units: dict[Unit, _Unit] = {}
    where: dict[str, _Unit] = {}
    for s in sources:
        parts = s.path.split("/")[depth:]
        top = parts[0] if len(parts) > 1 and not _OF_A_LIFE.fullmatch(parts[0]) else ""
        unit = units.setdefault((top, s.run or _job_of(s)), _Unit())
        unit.sources.append(s)
        where[s.path] = unit
        if s.rank is not None:
            unit.ranks.add(s.rank)
    for e in events:
        unit_of = where.get(e.where.source)
        if unit_of is not None and e.kind in ATTEMPT_KINDS and e.source_kind in SPOKEN and e.speaker != "kernel":
            _show(unit_of, e)
    for unit in units.values():
        unit.ended_well = bool(unit.goodbyes) and len(unit.goodbyes) >= len(unit.ranks)
    return units


def _job_of(s: Source) -> str | None:
    told = _JOB_OF_FILE.match(s.path.rsplit("/", 1)[-1])
    return told["job"] if told else None


def _show(unit: _Unit, e: Event) -> None:
    """What one event shows of its unit's job."""
    unit.spoken = True
    if e.pid is not None and e.pid > 1:
        unit.pids.add(e.pid)
    if e.rank is not None:
        unit.ranks.add(e.rank)
    if e.kind == "finished":
        unit.goodbyes.add(e.rank)
    if (at := moment(e)) is not None:
        lo, hi = unit.span or (at, at)
        unit.span = (min(lo, at), max(hi, at))


def _common_depth(paths: Sequence[str]) -> int:
    """How many leading folders all paths share."""
    folders = [p.split("/")[:-1] for p in paths]
    depth = 0
    while folders and all(len(f) > depth and f[depth] == folders[0][depth] for f in folders):
        depth += 1
    return depth


def _apart(units: dict[Unit, _Unit]) -> dict[Unit, set[Unit]]:
    """For each unit those that are other jobs. Of thousands of hosts, only those that share a rank or lack
    ranks are compared."""
    by_rank: dict[int, set[Unit]] = defaultdict(set)
    nameless: set[Unit] = set()
    by_end: dict[bool, set[Unit]] = {True: set(), False: set()}
    for name, unit in units.items():
        by_end[unit.ended_well].add(name)
        for rank in unit.ranks:
            by_rank[rank].add(name)
        if not unit.ranks:
            nameless.add(name)
    out = {}
    for name, unit in units.items():
        near = (
            set().union(*(by_rank[rank] for rank in unit.ranks)) | nameless
            if unit.ranks
            else by_end[not unit.ended_well]
        )
        out[name] = {other for other in near if other != name and _separate(unit, units[other])}
    return out


def _launched(units: dict[Unit, _Unit]) -> Iterator[tuple[Unit, Unit]]:
    """Each launcher log with the one run folder beside it. It may speak only at the end, long after the last
    line of a rank that hung."""
    runs = [name for name in units if name[1] is not None]
    agents = {name for name, unit in units.items() if name[1] is None and _is_agent(unit)}
    for top, _ in sorted(agents, key=str):
        beside = [run for run in runs if run[0] == top]
        if not beside and top == "":
            beside = [run for run in runs if (run[0], None) not in agents]
        if len(beside) == 1:
            yield (top, None), beside[0]


def _is_agent(unit: _Unit) -> bool:
    return all(s.kind == "agent" for s in unit.sources if s.kind in SPOKEN)


def _share(a: _Unit, b: _Unit) -> None:
    """Two units are one job: what is known of one is known of the other."""
    spans = [u.span for u in (a, b) if u.span]
    for unit in (a, b):
        unit.ranks = a.ranks | b.ranks
        unit.ended_well = b.ended_well
        unit.span = (min(lo for lo, _ in spans), max(hi for _, hi in spans)) if spans else None


def _separate(a: _Unit, b: _Unit) -> bool:
    if len(a.pids & b.pids) >= 2:
        # the driver's console and the session's folder: the same processes, however long one of them was
        # silent
        return False
    named = bool(a.ranks and b.ranks)
    if named and a.ranks.isdisjoint(b.ranks):
        return False
    unlike = a.ended_well != b.ended_well
    if a.span is None or b.span is None:
        return unlike
    apart = a.span[1] + SLACK_S < b.span[0] or b.span[1] + SLACK_S < a.span[0]
    return apart and (named or unlike)


def _start(units: dict[Unit, _Unit], group: set[Unit]) -> tuple[bool, float, str]:
    starts = [span[0] for name in group if (span := units[name].span)]
    return (bool(starts), min(starts, default=0.0), str(sorted(map(str, group))))


def _name(group: set[Unit], taken: dict[str | None, list[str]]) -> str:
    tops = sorted({top for top, _ in group if top})
    runs = sorted({run for _, run in group if run})
    name = tops[0] if tops else (runs[0] if runs else "job")
    return name if name not in taken else f"{name} {runs[0] if runs else len(taken) + 1}"


def numbers(events: Sequence[Event]) -> list[int]:
    """Numbers of the attempts that left files, in order."""
    return sorted({e.attempt for e in events if e.attempt is not None})


def of_attempt(events: Sequence[Event], wanted: int) -> list[Event]:
    """Events of one attempt. A line without an attempt belongs to the attempt that has its copy (the second
    such line to the second of several), else to the one whose time it falls in."""
    copies: dict[Copy, set[int]] = defaultdict(set)
    starts: dict[int, float] = {}
    pids: dict[int, int] = {}
    for e in events:
        if e.attempt is None:
            continue
        copies[_copy(e)].add(e.attempt)
        if (at := moment(e)) is not None:
            starts[e.attempt] = min(at, starts.get(e.attempt, at))
        pid = e.fields.get("pid", e.pid)
        if isinstance(pid, int):
            pids.setdefault(pid, e.attempt)
    order = sorted(starts.items(), key=lambda x: x[1])
    out = []
    seen: Counter[tuple[str, Copy]] = Counter()
    for e in events:
        own = e.attempt
        if own is None:
            own = _guess(e, copies, pids, order, seen[(e.where.source, _copy(e))])
            seen[(e.where.source, _copy(e))] += 1
        if own is None or own == wanted:
            out.append(e)
    return out


def _copy(e: Event) -> Copy:
    """What the copies of a line in other logs have in common with it."""
    return e.kind, gist(e.text), e.rank


def _guess(
    e: Event,
    copies: dict[Copy, set[int]],
    pids: dict[int, int],
    order: list[tuple[int, float]],
    before: int,
) -> int | None:
    """`before`: how many such lines without an attempt stand above it in its log."""
    if e.pid is not None and e.kind == "exit" and e.pid in pids:
        return pids[e.pid]
    pid = e.fields.get("pid")
    if (told := number(pid)) in pids:
        return pids[told]
    found = sorted(copies.get(_copy(e), set()))
    timed = {attempt for attempt, _ in order}
    if len(found) == 1 or (found and (e.at is None or not timed.issuperset(found))):
        return found[min(before, len(found) - 1)]
    at = moment(e)
    if at is None or not order:
        return None
    guess = order[0][0]
    for attempt, start in order:
        if start <= at + e.at_sigma:
            guess = attempt
    return guess
