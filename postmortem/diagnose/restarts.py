"""Where in a log a new life of the job begins, if no file's name and no launcher counts the lives.

failed (exitcode: -9) local_rank: 1                  and ranks that begin at step 0 again behind it
attempt 1 failed: process 1 terminated with signal SIGKILL      and a count that falls to its beginning
Attempting to start training worker group            said by a controller
*** JOB 17 … CANCELLED … DUE TO JOB REQUEUE ***      and ranks that introduce themselves again behind it
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import pairwise

from postmortem.diagnose import endings, life
from postmortem.library import Library
from postmortem.model import Event
from postmortem.model.digits import number
from postmortem.system import lazy

SLACK_S = 1.0
_SPAWNED = lazy.regex(r"\bProcess(?:Raised|Exited)Exception\b")
LOGGED = ("line", "notice", "worked", "progress", "identity", "anew")
PAUSE_S = 60.0  # between two runs that somebody started by hand
REST = 3  # lines that a launcher's report of a death still takes


def infer(events: Sequence[Event], library: Library) -> list[Event]:
    """Number the lives of a job whose launcher log is all there is.

    torchrun does not say that it restarts, but after `failed (exitcode: -9)` the ranks introduce themselves
    again in the same file. A script's own loop around its launcher says how a process ended, and the next
    that is counted is counted from the beginning. Ray Train says each time that it attempts to start a
    worker group, HyperPod that it retries the step.
    """
    if any(e.attempt is not None for e in events):
        return list(events)
    cuts = _runs_of_one_process(events, library) or _last_lines_of_lives(events, library)
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
    if not _may_restart(events, words):
        return {}
    stops = frozenset(p for p in words[0] if (found := library.get(p)) and found.entity == "job")
    own_lines = _by_source(_without_ends(events, library))
    cuts = {source: _cuts(own, stops, *words) for source, own in own_lines.items()}
    return {source: lines for source, lines in cuts.items() if lines}


def _may_restart(events: Sequence[Event], words: Sequence[Set[str]]) -> bool:
    """Whether any event can be the end or the beginning of a life."""
    begun = [e for e in events if e.kind == "anew"]
    known: frozenset[str] = frozenset().union(*words[: 4 if begun else 3])
    first = any(e.fields.get("first") for e in begun) or any(map(_is_spawn_report, events))
    return first or any(e.pattern in known for e in events)


def _runs_of_one_process(events: Sequence[Event], library: Library) -> dict[str, list[int]]:
    """Source -> the last line of each run but the last, where one process at a time appends to a file (nohup.out):
    a process exits once, so a second, different error that ends the program is another run's."""
    deaths = library.telling("death")
    if any(e.rank is not None or e.kind == "exit" or e.pattern in deaths or "local_rank" in e.fields for e in events):
        return {}
    return {source: cuts for source, own in _by_source(events).items() if (cuts := _different_ends(own, library))}


def _different_ends(own: Sequence[Event], library: Library) -> list[int]:
    """The lines of errors that ended the program, each followed by a different one. Errors that alternate are those of
    several processes."""
    ends: dict[int, str] = {}
    for e in own:
        pattern = library.get(e.pattern)
        of_its_own = pattern is not None and pattern.role == "cause"
        if of_its_own and (e.fields.get("frames") and not e.fields.get("chained") and life.uncaught(e)):
            ends[_last_line(e)] = str(e.fields.get("type"))
        elif of_its_own and pattern is not None and "end" in pattern.tells:
            ends[_last_line(e)] = pattern.id
    rows = sorted(ends.items())
    changes = [line for (line, kind), (_, other) in pairwise(rows) if kind != other]
    return changes if len(changes) < len(set(ends.values())) else []


def _without_ends(events: Sequence[Event], library: Library) -> list[Event]:
    """Without beginnings that are a launcher's words of an end: that of a second host tells of its own ranks'."""
    telling = frozenset().union(*(library.telling(word) for word in ("death", "asks", "exit", "end")))
    ends = {(e.where.source, e.where.line) for e in events if e.pattern in telling}
    return [e for e in events if e.kind != "anew" or (e.where.source, e.where.line) not in ends]


def _by_source(events: Sequence[Event]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = defaultdict(list)
    for e in events:
        if e.where.line is not None:
            found[e.where.source].append(e)
    return found


def _cuts(
    own: Sequence[Event], stops: Set[str], death: Set[str], birth: Set[str], again: Set[str], ends: Set[str]
) -> list[int]:
    """The last lines of all lives but the last in one source: by the word of who put the whole job back into
    the queue, by the launcher's, else by that of the controller or srun who begin anew (never a rank's), and by
    tracebacks that nobody caught with a new launch behind them."""
    requeued = _requeued(own, stops)
    if requeued:
        return requeued
    blocks = [_last_line(e) for e in own if e.kind in ("exception", "exit")]
    deaths = [e for e in own if e.pattern in death - stops]
    if deaths:
        behind = (_births(own, e) + _next_life(e, deaths) + _next_launch(own, e, deaths) for e in deaths)
        return _ends(zip((_last_line(e) + REST for e in deaths), behind, strict=True), blocks)
    told = _told(own, again) or _told(own, birth)[1:]
    return sorted({*_ends(_falls(own), blocks), *_ends(_spawned(own), blocks), *told, *_ends(_losses(own, ends), [])})


def _requeued(own: Sequence[Event], stops: Set[str]) -> list[int]:
    """Right before the ranks introduce themselves or begin to count anew, behind the scheduler's stop of the
    whole job. What they still printed while it ended them is of the life that it ended."""
    found = set()
    for stop in (_last_line(e) for e in own if e.pattern in stops):
        births = [x for x in own if x.kind == "anew" and _last_line(x) > stop]
        if births and _all_begin(own, {x.rank for x in births}, stop):
            found.add(min(map(_last_line, births)) - 1)
    return sorted(found)


def _next_life(death: Event, deaths: Sequence[Event]) -> list[int]:
    """Right behind a death, where the same agent tells of another one further on: it tells of one a life,
    and ranks that never form their group again begin nothing (torch, SubprocessContext._poll)."""
    own = [e for e in deaths if e.pid is not None and e.pid == death.pid and e.where.line != death.where.line]
    further = [e for e in own if _last_line(e) > _last_line(death) + REST]
    return [_last_line(death) + REST + 1] if further else []


def _next_launch(own: Sequence[Event], death: Event, deaths: Sequence[Event]) -> list[int]:
    """Right behind a launcher's report, where another launcher tells of the end of the same ranks further on: a
    script or a person began anew, and appends to the same log. Launchers of two hosts have different ranks."""
    others = [e for e in deaths if None not in (e.pid, death.pid) and e.pid != death.pid]
    other = min((line for e in others if (line := _last_line(e)) > _last_line(death)), default=0)
    ended = [(e.rank, _last_line(e)) for e in own if e.kind == "exit" and e.rank is not None] if other else []
    here = {rank: line for rank, line in ended if _last_line(death) < line < other}
    again = {rank for rank, line in ended if line > other}
    return [max(here.values()) + 1] if here.keys() & again else []


def _falls(own: Sequence[Event]) -> Iterator[tuple[int, list[int]]]:
    """Tracebacks that nobody caught, with the launches in the same log: where a writer's first line comes
    again before any of them, it is no start."""
    fallen = [e for e in own if e.kind == "exception" and life.uncaught(e) and not e.fields.get("chained")]
    again = [e for e in own if fallen and e.kind == "anew" and e.fields.get("first")]
    usual = {(e.rank, e.fields.get("writer")) for e in again if _last_line(e) < _last_line(fallen[0])}
    launches = [_last_line(e) for e in again if (e.rank, e.fields.get("writer")) not in usual]
    yield from ((_last_line(e), launches) for e in fallen)


def _spawned(own: Sequence[Event]) -> Iterator[tuple[int, list[int]]]:
    """Uncaught reports of torch.multiprocessing.spawn, which ends all its processes before it raises, with the later
    log lines that have a timestamp of their own."""
    reports = [e for e in own if _is_spawn_report(e) and life.uncaught(e)]
    stamped = [(_last_line(e), e.at) for e in own if reports and e.raw_time and e.kind in LOGGED and e.at is not None]
    for line in map(_last_line, reports):
        before = max((at for other, at in stamped if other < line), default=float("inf"))
        yield line, [other for other, at in stamped if at > before + PAUSE_S]


def _is_spawn_report(e: Event) -> bool:
    return e.kind == "exception" and _SPAWNED.search(e.text) is not None


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
    at_work = {x.rank for x in own if x.kind == "worked" and x.fields.get("by") == "count" and _last_line(x) > line}
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
