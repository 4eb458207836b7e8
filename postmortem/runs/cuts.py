"""Where in a log a new attempt of the job begins, if no file's name and no launcher numbers the attempts.

failed (exitcode: -9) local_rank: 1                  and ranks that begin at step 0 again behind it
attempt 1 failed: process 1 terminated with signal SIGKILL      and a count that falls to its beginning
Attempting to start training worker group            by a controller
*** JOB 17 … CANCELLED … DUE TO JOB REQUEUE ***      and ranks that introduce themselves again behind it
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import groupby, pairwise

from postmortem.formats import endings
from postmortem.formats.jobs import COMMAND
from postmortem.library import Library
from postmortem.model import Event
from postmortem.model.digits import whole
from postmortem.model.grouped import grouped
from postmortem.system import lazy

_SPAWNED = lazy.regex(r"\bProcess(?:Raised|Exited)Exception\b")
_PART = lazy.regex(r"(?P<log>.+)\.(?P<part>\d{1,3})(?:\.(?:gz|xz|bz2|zst))?")
LOGGED = ("line", "notice", "worked", "progress", "identity", "restart")
ENDED = ("exception", "pattern")
SLACK_S = 1.0
PAUSE_S = 60.0  # between two runs that somebody started by hand
REST = 3  # lines that a launcher's report of a death still takes
Ends = Iterable[tuple[int, Sequence[int]]]  # the line of an end, and lines at which an attempt may begin


def numbered(events: Sequence[Event], library: Library) -> list[Event]:
    """The events with the number of their attempt, where a single log holds several and nothing else numbers them."""
    cuts: dict[str, list[int]] = {}
    if not any(e.attempt is not None for e in events):
        ended = {e.where.source for e in events if e.kind in ENDED}  # in the other logs nothing ended
        own_lines = grouped((e.where.source, e) for e in events if e.where.source in ended and e.where.line is not None)
        if _is_one_process(events, library):
            cuts = {source: _different_errors(own, library) for source, own in own_lines.items()}
        if not any(cuts.values()):
            cuts = {source: _cuts(own, library) for source, own in own_lines.items()}
        for source, own in own_lines.items():
            cuts[source] = sorted({*cuts[source], *_stopped_jobs(own, library)})
    if not any(cuts.values()):
        return _rotated(events, library)

    def of_attempt(e: Event) -> Event:
        lines = cuts.get(e.where.source) if e.where.line is not None else None
        return e._replace(attempt=bisect_left(lines, e.line)) if lines else e

    return [*map(of_attempt, events)]


def _rotated(events: Sequence[Event], library: Library) -> list[Event]:
    """The events with the number of their attempt, where a log was rotated between two runs: `train.log.2.gz`,
    `train.log.1`, `train.log`. A part that ends with a failure, and the next that begins later, are two."""
    parts: dict[str, list[tuple[int, str]]] = {}
    for source in {e.where.source for e in events}:
        m = _PART.fullmatch(source)
        parts.setdefault(m["log"] if m else source, []).append((-whole(m["part"]) if m else 0, source))
    own = grouped((e.where.source, e) for e in events)
    number: dict[str, int] = {}
    for found in (sorted(p) for p in parts.values() if len(p) > 1):
        n = 0
        for (_, older), (_, newer) in pairwise(found):
            number.setdefault(older, n)
            n += any(_is_end(e, library) for e in own[older]) and _begins_later(own[older], own[newer])
            number[newer] = n
    several = len({*number.values()}) > 1
    return [e._replace(attempt=number.get(e.where.source)) if several else e for e in events]


def _begins_later(older: Sequence[Event], newer: Sequence[Event]) -> bool:
    """Whether work begins in the newer part after the last line of the older one."""
    before, after = ([e.at for e in own if e.at is not None and e.raw_time] for own in (older, newer))
    works = any(e.kind == "worked" for e in newer)
    return works and bool(before and after) and min(after) > max(before) + SLACK_S


# ── one process at a time ───────────────────────────────────────────────────────────────────────────────────


def _is_one_process(events: Sequence[Event], library: Library) -> bool:
    deaths = library.telling("death")
    return not any(
        e.rank is not None or e.kind == "exit" or e.pattern in deaths or "local_rank" in e.fields for e in events
    )


def _different_errors(own: Sequence[Event], library: Library) -> list[int]:
    """The lines of errors that ended the program, each followed by a different one: a process that appends to a file
    (nohup.out) exits once. Errors that alternate are those of several processes; a launcher repeats that of its
    child."""
    ends: dict[int, str] = {}
    for e in own:
        pattern = library.get(e.pattern)
        if pattern is not None and pattern.role == "cause" and not e.fields.get("wrapper"):
            if e.fields.get("frames") and _is_last_and_uncaught(e):
                ends[e.end] = e.fields.get("type", "")
            elif "end" in pattern.tells:
                ends[e.end] = pattern.id
    changes = [line for (line, kind), (_, other) in pairwise(sorted(ends.items())) if kind != other]
    return _with_reports(own, changes, library) if len(changes) < len(set(ends.values())) else []


def _with_reports(own: Sequence[Event], ends: Iterable[int], library: Library) -> list[int]:
    """The lines of ends, or of the reports right behind them (`srun: error: gpu-1: task 0: Terminated`)."""
    known = library.telling("end") | library.telling("exit")
    reports = {e.end for e in own if e.pattern in known}
    return [max([end, *(n for n in range(end + 1, end + REST) if n in reports)]) for end in ends]


# ── a launcher and its ranks ────────────────────────────────────────────────────────────────────────────────


def _cuts(own: Sequence[Event], library: Library) -> list[int]:
    """The last lines of all attempts but the last in one source: by the report of a scheduler that requeued the whole
    job, by the launcher's, else by that of the controller or srun that starts anew (never a rank's), by uncaught
    tracebacks with a new launch behind them, and by bad ends behind which all counts fall."""
    stops = {p for p in library.telling("death") if (pattern := library.get(p)) and pattern.entity == "job"}
    requeued = _requeued(own, stops)
    if requeued:
        return requeued
    own = _without_end_reports(own, library)
    ended = library.telling("end")
    blocks = [e.end for e in own if e.kind in ("exception", "exit") or e.pattern in ended]
    deadly = library.telling("death") - stops
    deaths = [e for e in own if e.pattern in deadly]
    births = _stated(own, library.telling("birth"))[1:]
    if deaths:
        return _behind_deaths(own, deaths, births, ended, blocks)
    stated = _stated(own, library.telling("again")) or births
    ends = (_launches(own, ended), _paused(own, library), _fresh(own, library))
    return sorted({*stated, *(cut for found in ends for cut in _ends(found, blocks))})


def _behind_deaths(
    own: Sequence[Event], deaths: Sequence[Event], births: Sequence[int], ended: Set[str], blocks: Sequence[int]
) -> list[int]:
    """Where the ranks begin behind the reports of a launcher. Behind its last one none is there that would report an
    end: somebody went on without it."""
    begun = sorted(filter(_begins, own), key=lambda e: e.line)
    ends = [*_ends_of_reports(own, deaths)]
    starts = (
        _birth(begun, e, end) + _next_report(e, deaths) + _next_launch(own, e, deaths) + [n + 1 for n in births]
        for e, end in zip(deaths, ends, strict=True)
    )
    reported = _ends(zip(ends, starts, strict=True), blocks)
    last = max(e.end for e in deaths)
    return sorted({*reported, *_ends((x for x in _launches(own, ended) if x[0] > last), blocks)})


def _ends(ends: Ends, blocks: Sequence[int]) -> list[int]:
    """The last line of each attempt that ends: what ranks and the launcher still print belongs to it, up to the next
    start. An end without a start behind it is the last attempt's."""
    cuts, blocks = set(), sorted(blocks)
    for end, starts in ends:
        start = min((line for line in starts if line > end), default=0)
        if start:
            cuts.add(max([end, *blocks[: bisect_left(blocks, start)][-1:]]))
    return sorted(cuts)


def _without_end_reports(own: Sequence[Event], library: Library) -> list[Event]:
    """Without starts that are a launcher's report of an end: a second host's is about its own ranks."""
    reports = frozenset().union(*(library.telling(word) for word in ("death", "asks", "exit", "end")))
    ends = {e.line for e in own if e.pattern in reports}
    return [e for e in own if e.kind != "restart" or e.line not in ends]


def _requeued(own: Sequence[Event], stops: Set[str]) -> list[int]:
    """Right before the ranks introduce themselves or begin to count anew, behind the scheduler's stop of the
    whole job. What they still printed while it ended them is of the attempt that it ended."""
    found = set()
    for stop in (e.end for e in own if e.pattern in stops):
        starts = [x for x in own if x.kind == "restart" and x.end > stop]
        if starts and _all_begin(own, starts, stop):
            found.add(min(e.end for e in starts) - 1)
    return sorted(found)


def _stopped_jobs(own: Sequence[Event], library: Library) -> list[int]:
    """The last lines of the reports on jobs that the scheduler stopped, where it stops another one further down: a log
    to which several are appended."""
    stops = library.telling("stop") | {p.id for p in library.patterns.values() if p.category == "scheduler"}
    stopped = (e for e in own if e.pattern in stops and "node" in e.fields)
    named = sorted((e.end, job) for e in stopped if (job := e.fields.get("job_id")))
    runs = [(job, [line for line, _ in lines]) for job, lines in groupby(named, key=lambda x: x[1])]
    side_by_side = len({job for job, _ in runs}) < len(runs)
    return [] if side_by_side else _with_reports(own, (lines[-1] for _, lines in runs[:-1]), library)


def _begins(e: Event) -> bool:
    """Whether a rank is at work or begins anew, or a shell prints the command that starts the job (`set -x`). A last
    line such as `All runs completed` may be the script's around the launcher, which ends in any case."""
    command = e.kind == "job" and e.fields["job_name"][0] == COMMAND
    works = e.kind == "progress" or endings.surely_finished(e)
    return command or e.kind == "restart" or (works and e.source_kind in ("agent", "console"))


def _ends_of_reports(own: Sequence[Event], deaths: Sequence[Event]) -> Iterator[int]:
    """The last lines of a launcher's reports of deaths. The block of torchrun's last report names the process again;
    what the ranks' buffers held until their exit comes between the two (torch, elastic/agent/server/api.py)."""
    blocks = grouped((e.pid, e.end) for e in own if e.kind == "exit" and e.fields.get("block"))
    for e in deaths:
        named = sorted(blocks[e.fields["pid"]]) if e.fields.get("pid") else []
        yield max([e.end + REST, *named[bisect_right(named, e.end) :][:1]])


def _birth(begun: Sequence[Event], death: Event, end: int) -> list[int]:
    """The first line behind the report of a death at which ranks begin. Behind it come lines with earlier stamps,
    which ranks had printed before and a pipe held back: they begin nothing."""
    for e in begun[bisect_right(begun, end, key=lambda e: e.line) :]:
        if e.at is None or death.at is None or not e.raw_time or e.at >= death.at - SLACK_S:
            return [e.line]
    return []


def _next_report(death: Event, deaths: Sequence[Event]) -> list[int]:
    """Right behind a death, where the same agent reports another one further on: it reports one an attempt, and
    ranks that never form their group again begin nothing (torch, SubprocessContext._poll)."""
    end = death.end + REST
    again = (e for e in reversed(deaths) if e.pid is not None and e.pid == death.pid)
    return [end + 1] if any(e.end > end for e in again) else []


def _next_launch(own: Sequence[Event], death: Event, deaths: Sequence[Event]) -> list[int]:
    """Right behind a launcher's report, where another launcher reports the end of the same ranks further on: a
    script or a person began anew, and appends to the same log. Launchers of two hosts have different ranks, and those
    of one host the same first one."""
    others = [e for e in deaths if None not in (e.pid, death.pid) and e.pid != death.pid]
    other = min((line for e in others if (line := e.end) > death.end), default=0)
    ended = list(_ends_of_hosts(own)) if other else []
    here = {first: line for first, line in ended if death.end < line < other}
    again = {first for first, line in ended if line > other}
    return [max(here.values()) + 1] if here.keys() & again else []


def _ends_of_hosts(own: Sequence[Event]) -> Iterator[tuple[int, int]]:
    """The first rank of the host of each rank that ended, and the line that reports it."""
    for e in own:
        if e.kind == "exit" and e.rank is not None:
            yield e.rank - (e.fields.get("local_rank") or 0), e.end


def _ended_a_program(e: Event) -> bool:
    return e.kind == "exception" and _is_last_and_uncaught(e)


def _is_last_and_uncaught(e: Event) -> bool:
    """Whether a traceback is uncaught, the last of its chain, and not between two steps."""
    return not (e.fields.get("chained") or e.fields.get("stepped")) and endings.uncaught(e)


def _launches(own: Sequence[Event], ended: Set[str]) -> Iterator[tuple[int, list[int]]]:
    """Ends of a program with the launches in the same log: where a writer's first line comes again before any of
    them, it is no start, nor where srun reports the end of as many tasks, each of which prints it."""
    again = [e for e in own if e.kind == "restart" and e.fields.get("first")]
    raised = [*_ends_of_programs(own, ended, logged=any(e.fields.get("alone") for e in again))] if again else []
    if _of_tasks(own, raised, ended):
        return
    usual = {(e.rank, e.fields.get("writer")) for e in again if raised and e.end < raised[0].end}
    starts = [e.end for e in again if (e.rank, e.fields.get("writer")) not in usual]
    yield from ((e.end, starts) for e in raised)


def _of_tasks(own: Sequence[Event], raised: Sequence[Event], ended: Set[str]) -> bool:
    """Whether srun reports the end of as many tasks as there are tracebacks."""
    tasks = {e.fields["rank"] for e in own if e.pattern in ended and "rank" in e.fields}
    return 1 < len([e for e in raised if e.pattern not in ended]) <= len(tasks)


def _ends_of_programs(own: Sequence[Event], ended: Set[str], logged: bool) -> Iterator[Event]:
    """Tracebacks that were not caught, or that a logger wrote, and a shell's reports of a process that a signal
    ended."""
    shells = set() if any(map(_of_a_rank, own)) else ended
    for e in own:
        if _ended_a_program(e) or e.pattern in shells or (logged and e.fields.get("logged")):
            yield e


def _of_a_rank(e: Event) -> bool:
    return e.rank is not None or "local_rank" in e.fields


def _paused(own: Sequence[Event], library: Library) -> Iterator[tuple[int, list[int]]]:
    """Uncaught tracebacks with the log lines that were written more than a minute later: those of
    torch.multiprocessing.spawn, which ends all its processes before it raises, and those of a program that is its
    log's only writer so far, where the later lines are no complaints of processes that waited for it."""
    named = min((e.end for e in own if _of_a_rank(e)), default=float("inf"))
    complaints = {
        e.end for e in own if e.kind == "notice" or ((p := library.get(e.pattern)) and p.role in ("cause", "symptom"))
    }
    for e in filter(_ended_a_program, own):
        if _SPAWNED.search(e.text):
            yield e.end, _later(own, e.end)
        elif e.end < named:
            yield e.end, [line for line in _later(own, e.end) if line not in complaints]


def _later(own: Sequence[Event], end: int) -> list[int]:
    """The log lines that were written more than a minute after the last before an end."""
    stamped = [(e.end, e.at) for e in own if e.raw_time and e.kind in LOGGED and e.at is not None]
    before = max((at for line, at in stamped if line < end), default=float("inf"))
    return [line for line, at in stamped if at > before + PAUSE_S]


def _fresh(own: Sequence[Event], library: Library) -> Iterator[tuple[int, list[int]]]:
    """The last end before each line at which the counts of all writers fall without having grown since that end (in an
    epoch's first line they fall, too, whatever ended). A rank that ended and never speaks again began nothing: the
    others' lines come late through a buffer."""
    fell = [e for e in own if e.kind == "restart" and "grew" in e.fields]
    spoke = {e.rank: e.end for e in sorted(own, key=lambda e: e.end)}
    starts: dict[int, int] = {}
    for e in own:
        if _is_end(e, library):
            behind = _falls(own, fell, e.end)
            later = [line for line in behind if line > e.end and (e.rank is None or line <= spoke.get(e.rank, 0))]
            starts.update({line: max(e.end, starts.get(line, 0)) for line in later})
    yield from ((end, [start]) for start, end in starts.items())


def _falls(own: Sequence[Event], fell: Sequence[Event], end: int) -> set[int]:
    """The lines at which the counts of all writers fall behind an end, without having grown since."""
    falls = [x for x in fell if (x.fields["grew"] or 0) < end < x.end]
    return {x.end for x in falls} if _all_begin(own, falls, end) else set()


def _is_end(e: Event, library: Library) -> bool:
    """Whether an uncaught traceback, a bad end or a stop of the whole job ends a process that cannot go on."""
    pattern = library.get(e.pattern)
    if e.kind == "exception" or pattern is None:
        return _ended_a_program(e)
    end = endings.reported(e) if "end" in pattern.tells else None
    of_job = pattern.category == "scheduler" and pattern.entity == "job" and pattern.role == "cause"
    return of_job or "stop" in pattern.tells or (end is not None and end.kind not in ("clean", "stop"))


def _all_begin(own: Sequence[Event], starts: Sequence[Event], line: int) -> bool:
    """Whether all writers whose counts grow behind this line begin there."""
    at_work = {x.rank for x in own if x.kind == "worked" and x.fields.get("by") == "count" and x.end > line}
    return {x.rank for x in starts} >= at_work


def _stated(own: Sequence[Event], words: Set[str]) -> list[int]:
    """The lines before those in which a process that is no rank reports a start."""
    return sorted(e.end - 1 for e in own if e.rank is None and e.pattern in words)
