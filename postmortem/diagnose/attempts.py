"""Which events belong together: the jobs in a folder, and the attempts of a job.

Two folders are two jobs if the same ranks live in both at different times; `node-a/` and `node-b/` with
different ranks are one job. An attempt is a life between two restarts (torchrun's attempt_N); lines without
an attempt join it by their text or time.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

from postmortem.diagnose import endings, life
from postmortem.diagnose.case import BROAD
from postmortem.diagnose.wording import gist
from postmortem.digits import number
from postmortem.library import Library
from postmortem.model import Event, Source

SPOKEN = ("console", "agent", "json-lines")
ATTEMPT_KINDS = ("line", "progress", "identity", "exception", "crash", "finished", "pattern", "exit")


Unit = tuple[str, str | None]  # top folder, torchrun's run folder or the job's number before a file's rank
_JOB_OF_FILE = re.compile(r"(?P<job>[^/]*\d[^/]*?)[-_.]+rank[-_.]?\d+[^/]*$")  # j100-rank0.log
SLACK_S = 1.0
REST = 3  # lines that a launcher's report of a death still takes


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


def _named(
    groups: Sequence[set[Unit]], talking: dict[Unit, _Unit], mute: Sequence[str]
) -> dict[str | None, list[str]]:
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
        unit = units.setdefault((parts[0] if len(parts) > 1 else "", s.run or _job_of(s)), _Unit())
        unit.sources.append(s)
        where[s.path] = unit
        if s.rank is not None:
            unit.ranks.add(s.rank)
    for e in events:
        unit_of = where.get(e.where.source)
        if (
            unit_of is not None
            and e.kind in ATTEMPT_KINDS
            and e.source_kind in SPOKEN
            and e.speaker != "kernel"
        ):
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
    if e.at is not None and e.at_sigma < BROAD:
        lo, hi = unit.span or (e.at, e.at)
        unit.span = (min(lo, e.at), max(hi, e.at))


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
    apart = a.span and b.span and (a.span[1] + SLACK_S < b.span[0] or b.span[1] + SLACK_S < a.span[0])
    if a.ranks and b.ranks:
        return bool(a.ranks & b.ranks) and (
            bool(apart) if a.span and b.span else a.ended_well != b.ended_well
        )
    return a.ended_well != b.ended_well and (bool(apart) or not (a.span and b.span))


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


def infer(events: Sequence[Event], library: Library) -> list[Event]:
    """Number the lives of a job whose launcher log is all there is.

    torchrun does not say that it restarts, but after `failed (exitcode: -9)` the ranks introduce themselves
    again in the same file. A script's own loop around its launcher says how a process ended, and the next
    that is counted is counted from the beginning. Ray Train says each time that it attempts to start a worker group, HyperPod that
    it retries the step.
    """
    if any(e.attempt is not None for e in events):
        return list(events)
    cuts = _last_lines_of_lives(events, library)
    if not cuts:
        return list(events)

    def number(e: Event) -> Event:
        if e.where.source not in cuts or e.where.line is None:
            return e
        return e._replace(attempt=sum(1 for cut in cuts[e.where.source] if e.where.line > cut))

    return [number(e) for e in events]


def _last_lines_of_lives(events: Sequence[Event], library: Library) -> dict[str, list[int]]:
    """Source -> the line after which each new life of the job begins there."""
    words = [library.telling(word) for word in ("death", "birth", "again", "end")]
    begun = [e for e in events if e.kind == "anew"]
    anew = any(e.fields.get("first") for e in begun)
    known: frozenset[str] = frozenset().union(*words[: 4 if begun else 3])
    if not anew and {e.pattern for e in events}.isdisjoint(known):
        return {}
    cuts = {source: _cuts(own, *words) for source, own in _by_source(events).items()}
    return {source: lines for source, lines in cuts.items() if lines}


def _by_source(events: Sequence[Event]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = defaultdict(list)
    for e in events:
        if e.where.line is not None:
            found[e.where.source].append(e)
    return found


def _cuts(
    own: Sequence[Event], death: Set[str], birth: Set[str], again: Set[str], ends: Set[str]
) -> list[int]:
    """The last lines of all lives but the last in one source: by the launcher's word, else by that of the
    controller or srun who begin anew (never a rank's), and by tracebacks that nobody caught with a new
    launch behind them."""
    blocks = [_last_line(e) for e in own if e.kind in ("exception", "exit")]
    deaths = [e for e in own if e.pattern in death]
    if deaths:
        return _ends(((_last_line(e) + REST, _births(own, e)) for e in deaths), blocks)
    told = _told(own, again) or _told(own, birth)[1:]
    return sorted({*_ends(_falls(own), blocks), *told, *_ends(_losses(own, ends), [])})


def _falls(own: Sequence[Event]) -> Iterator[tuple[int, list[int]]]:
    """Tracebacks that nobody caught, with the launches in the same log."""
    launches = [_last_line(e) for e in own if e.kind == "anew" and e.fields.get("first")]
    for e in own:
        if e.kind == "exception" and life.uncaught(e) and not e.fields.get("chained"):
            yield _last_line(e), launches


def _losses(own: Sequence[Event], ends: Set[str]) -> Iterator[tuple[int, list[int]]]:
    """Bad ends of processes, with the lines behind each where the counts of all writers fall to their
    beginning without having grown meanwhile. In an epoch's first line they fall, too, whatever ended."""
    fell = [e for e in own if e.kind == "anew" and "grew" in e.fields]
    for e in own if fell else ():
        if e.pattern in ends and _is_bad(e):
            births = [x for x in fell if _stands_still(x, _last_line(e))]
            if _all_begin(own, {x.rank for x in births}, _last_line(e)):
                yield _last_line(e), [_last_line(x) for x in births]


def _all_begin(own: Sequence[Event], begun: Set[int | None], line: int) -> bool:
    """Whether all whose counts grow behind this line are among those who begin there."""
    at_work = {
        x.rank for x in own if x.kind == "worked" and x.fields.get("by") == "count" and _last_line(x) > line
    }
    return begun >= at_work


def _is_bad(e: Event) -> bool:
    """Whether a process ended by a fault or by a kill, and was not asked to."""
    end = endings.told(e)
    return end is not None and end.kind not in ("clean", "stop")


def _stands_still(x: Event, line: int) -> bool:
    """Whether a count falls behind this line, and had last grown before it."""
    return (number(x.fields["grew"]) or 0) < line < _last_line(x)


def _told(own: Sequence[Event], words: Set[str]) -> list[int]:
    """The lines before those in which somebody who is no rank says one of these."""
    return sorted(_last_line(e) - 1 for e in own if e.rank is None and e.pattern in words)


def _last_line(e: Event) -> int:
    return e.where.end_line or e.where.line or 0


def _births(own: Sequence[Event], death: Event) -> list[int]:
    """Lines at which ranks are at work or begin anew. What they had printed before, and a pipe kept until
    they ended, stands behind the report of a death with earlier stamps: that is no new life."""
    found = []
    for e in own:
        works = e.kind in ("progress", "finished") and e.source_kind in ("agent", "console")
        earlier = e.at is not None and death.at is not None and e.raw_time and e.at < death.at - SLACK_S
        if (works or e.kind == "anew") and not earlier:
            found.append(e.where.line or 0)
    return found


def _ends(deaths: Iterable[tuple[int, Sequence[int]]], blocks: Sequence[int]) -> list[int]:
    """The last line of each life that ends with a death: what ranks and the launcher still print belongs to
    it, up to the birth of the next. A death without a birth behind it ends the last life."""
    cuts = set()
    for death, births in deaths:
        birth = min((b for b in births if b > death), default=0)
        if birth:
            cuts.add(max([death, *(b for b in blocks if death <= b < birth)]))
    return sorted(cuts)


def of_attempt(events: Sequence[Event], wanted: int) -> list[Event]:
    """Events of one attempt. A line without an attempt belongs to the attempt that has its copy, else to the
    one whose time it falls in."""
    copies: dict[tuple[str, str], set[int]] = defaultdict(set)
    starts: dict[int, float] = {}
    pids: dict[int, int] = {}
    for e in events:
        if e.attempt is None:
            continue
        copies[(e.kind, gist(e.text))].add(e.attempt)
        if e.at is not None and e.at_sigma < BROAD:
            starts[e.attempt] = min(e.at, starts.get(e.attempt, e.at))
        pid = e.fields.get("pid", e.pid)
        if isinstance(pid, int):
            pids.setdefault(pid, e.attempt)
    order = sorted(starts.items(), key=lambda x: x[1])
    out = []
    for e in events:
        at = e.attempt
        if at is None:
            at = _guess(e, copies, pids, order)
        if at is None or at == wanted:
            out.append(e)
    return out


def _guess(
    e: Event, copies: dict[tuple[str, str], set[int]], pids: dict[int, int], order: list[tuple[int, float]]
) -> int | None:
    if e.pid is not None and e.kind == "exit" and e.pid in pids:
        return pids[e.pid]
    pid = e.fields.get("pid")
    if (told := number(pid)) in pids:
        return pids[told]
    found = copies.get((e.kind, gist(e.text)), set())
    if len(found) == 1:
        return next(iter(found))
    if e.at is None or e.at_sigma > BROAD or not order:
        return None
    guess = order[0][0]
    for attempt, start in order:
        if start <= e.at + e.at_sigma:
            guess = attempt
    return guess
