"""The tables of the incident document: runs, attempts, processes, ranks, clocks and sources.

`ranks` is a view of `processes`: how a rank ended and how far it came is its process's row, its state is the verdict's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from postmortem.align import Timeline
from postmortem.align.place import moment
from postmortem.diagnose import liveness
from postmortem.diagnose.case import Case
from postmortem.diagnose.processes import Process
from postmortem.diagnose.verdict import blame
from postmortem.diagnose.verdict.solution import Solution
from postmortem.diagnose.wording import capital, iso, listed
from postmortem.model import Clock, Event, Pattern, RankState, Source
from postmortem.model.contract import incident as contract
from postmortem.model.contract import processes as rows
from postmortem.model.contract.quantities import GpuMemory
from postmortem.model.contract.verdict import Attempt
from postmortem.model.vocabulary import LOUD
from postmortem.privacy import cut
from postmortem.runs import jobs
from postmortem.say import headline

MOST_RANKS, MOST_PROCESSES = 20_000, 1_024
COMMAND = 300  # characters
MOST_ATTEMPTS, NAMED = 200, 64  # and ranks or hosts of one
MOST_SNAPSHOTS = 32
OTHERS = 3  # attempts that failed differently and are mentioned
OPENING = ("identity", "restart", "pid")
Symptom = tuple[Pattern, Event]
TIMES = ("once", "twice", "three times", "four times", "five times", "six times")


# ── processes and ranks ─────────────────────────────────────────────────────────────────────────────────────


def processes(solution: Solution, collectives: Mapping[int, str]) -> list[rows.Process]:
    """A row for each process of the attempt that the verdict is about, the culprits first."""
    return [
        _process(solution.case, p, collectives.get(-1 if p.rank is None else p.rank))
        for p in solution.processes[:MOST_PROCESSES]
    ]


def _process(case: Case, p: Process, last_collective: str | None) -> rows.Process:
    return {
        "role": p.role,
        "attempt": case.attempt,
        "rank": p.rank,
        "local_rank": p.local_rank,
        "host": p.host,
        "pid": p.pid,
        "parent": p.parent,
        "gpu": p.gpu,
        "known": {
            cell: {"strength": known.strength.name.lower(), "at": _line(known.event)} for cell, known in p.known.items()
        },
        "first_seen": iso(p.first_seen),
        "first_step": p.first_step,
        "last_step": p.last_step,
        "last_collective": last_collective,
        "last_line": _line(p.last_line) if p.last_line else None,
        "stack": _line(p.stack) if p.stack else None,
        "stop_requested": {"by": p.stop.by, "at": _line(p.stop.event)} if p.stop else None,
        "ended": iso(p.ended_at),
        "end_kind": p.end.kind if p.end else None,
        "exit_code": p.end.code if p.end else None,
        "signal": (p.end.signal or None) if p.end else None,
        "end_stated_by": _line(p.end.reported_by) if p.end and p.end.reported_by else None,
        "error": _line(p.error) if p.error else None,
        "finished": p.finished is not None,
    }


def _line(e: Event) -> rows.LastLine:
    return {"source": e.where.source, "line": e.where.shown}


def ranks(solution: Solution, collectives: Mapping[int, str]) -> list[contract.Rank]:
    """A row for each rank: state, how it ended, how far it came, and a sentence why."""
    # the complaint of each rank and the line of its own, loud ones before the report of a stop
    symptoms: dict[int, Symptom] = {}
    for c in sorted(solution.claims, key=lambda c: c.pattern.severity not in LOUD):
        if c.role == "symptom":
            own = {rank: e for e in reversed(c.events) if (rank := solution.case.rank_of(e)) is not None}
            for rank in c.ranks or own:
                symptoms.setdefault(rank, (c.pattern, own.get(rank, c.event)))
    found = [p for p in solution.case.processes if p.rank is not None][:MOST_RANKS]
    return [
        _rank(solution, p, p.rank, symptoms.get(p.rank), collectives.get(p.rank)) for p in found if p.rank is not None
    ]


def _rank(solution: Solution, p: Process, rank: int, symptom: Symptom | None, last: str | None) -> contract.Rank:
    state, why = _state(solution, p, rank, symptom)
    end = p.end.short if p.end else None
    return {
        "rank": rank,
        "host": p.host,
        "pid": p.pid,
        "state": state,
        "exit": end,
        "last_step": p.last_step,
        "last_collective": last,
        "last_line": _line(p.last_line) if p.last_line else None,
        "why": why,
        "group": f"{state}:{symptom[0].id if symptom else ''}:{end or ''}",
    }


def _state(solution: Solution, p: Process, rank: int, symptom: Symptom | None) -> tuple[RankState, str]:
    if rank in solution.ranks and solution.root is not None:
        root = solution.root
        if root.strength == "ended" and len(solution.ranks) > 1 and p.end is not None:
            return "cause", f"the launcher reported {p.end} for rank {rank}"
        return "cause", root.because or root.pattern.title
    other = next((c for c in solution.apart if rank in c.ranks), None)
    if other is not None:
        return "victim", f"failed for another reason: {other.pattern.title.rstrip('.')} ({other.event.where})"
    if symptom is not None:
        pattern, own = symptom
        return "victim", f"{pattern.title} ({own.where})"
    if p.end is not None and p.end.signal == "SIGTERM":
        return "victim", "stopped by the launcher with SIGTERM after another rank had failed"
    if p.finished or (p.end is not None and p.end.kind == "clean"):
        return "healthy", "reported that it finished" if p.finished else "exited with code 0"
    if not solution.case.by_rank.get(rank):
        return "silent", "no line in these logs is known to be its own"
    if solution.outcome == "healthy":
        return "healthy", "no failure in its lines"
    if p.end is not None:
        return "victim", f"ended with {p.end} after the failure"
    return "silent", "last line is normal; no error or exit logged"


# ── runs and attempts ───────────────────────────────────────────────────────────────────────────────────────


def runs(solution: Solution) -> list[rows.Run]:
    """A row for each launch, oldest first: attempts of one launcher, or those that nothing separates, are one run."""
    found: list[tuple[set[int], list[Solution]]] = []
    for s in _each(solution):
        pids = {p.pid for p in s.case.processes if p.role == "launcher" and p.pid is not None}
        if not found or (pids and found[-1][0] and pids.isdisjoint(found[-1][0])):
            found.append((set(), []))
        found[-1][0].update(pids)
        found[-1][1].append(s)
    return [_run(solution.job, launchers, members) for launchers, members in found]


def _run(job: str | None, launchers: set[int], members: Sequence[Solution]) -> rows.Run:
    last = members[-1]
    ended, report = _ended(last)
    command = jobs.command(members[0].case.events)
    return {
        "job": job,
        "command": command and cut(command, COMMAND),
        "launchers": sorted(launchers)[:NAMED],
        "attempts": [s.case.attempt for s in members if s.case.attempt is not None],
        "begin": iso(_begin(members[0].case)),
        "end": iso(last.case.end),
        "outcome": "incident" if last.outcome == "recovered" else last.outcome,
        "ended": ended,
        "end_stated_by": _line(report) if report else None,
    }


def _each(solution: Solution) -> Sequence[Solution]:
    """Its attempts; of a job that was started over and over the last ones."""
    return (solution.attempts or (solution,))[-MOST_ATTEMPTS:]


def attempts(solution: Solution) -> list[Attempt]:
    """A row for each attempt, oldest first."""
    return [_attempt(s) for s in _each(solution)]


def _attempt(s: Solution) -> Attempt:
    return {
        "number": s.case.attempt,
        "begin": iso(_begin(s.case)),
        "end": iso(s.case.end),
        "outcome": "incident" if s.outcome == "recovered" else s.outcome,
        "ranks": list(s.ranks[:NAMED]),
        "hosts": blame.hosts(s.case, s.root, s.ranks, s.claims)[:NAMED] if s.root else [],
        "category": s.root.pattern.category if s.root else None,
        "pattern": s.root.pattern.id if s.root else None,
        "why": headline.in_short(s) if s.outcome != "healthy" else None,
        "ended": _ended(s)[0],
    }


def _begin(case: Case) -> float | None:
    """When the first of its ranks, or its launcher, introduced itself; None where the first known line is one from
    the middle."""
    opening = (moment(e) for e in case.events if e.kind in OPENING or e.fields.get("first"))
    first = min((at for at in opening if at is not None), default=None)
    return first if first == case.start else None


def _ended(s: Solution) -> tuple[str | None, Event | None]:
    """How the rank at fault ended, else the job, and the line that reports it; None where no line does."""
    ends = {str(end): end.reported_by for r in s.ranks if (end := s.case.end_of(r)) is not None}
    if len(ends) == 1:
        return ends.popitem()
    if s.outcome == "healthy":
        done = s.case.all_finished or liveness.all_done(s.case)
        last = max(s.case.of_kind("finished"), key=lambda e: e.at or 0.0, default=None)
        return ("finished", last) if done else ("at work to its last line", None)
    if s.root is not None and s.root.pattern.category == "scheduler":
        return "stopped by the scheduler", s.root.event
    others = [verb for _, verb in s.victims.by_fate()]
    return f"the others {listed(others)}" if others else None, None


def other_attempts(solution: Solution) -> Iterator[str]:
    """Sentences on the other attempts: how many failed in the same way, and where the line is of those that did not."""
    others = [s for s in solution.attempts if s.root is not None and s.case.attempt != solution.case.attempt]
    alike = [s for s in others if _way(s) == _way(solution)]
    if alike and solution.root is not None:
        numbers = sorted(s.case.attempt for s in (solution, *alike) if s.case.attempt is not None)
        n = len(numbers)
        often = TIMES[n - 1] if n <= len(TIMES) else f"{n} times"
        yield capital(f"it failed {often} in the same way, in attempts {listed(list(map(str, numbers)))}.")
    for s in [s for s in others if s not in alike and s.outcome != "healthy"][:OTHERS]:
        yield f"Attempt {s.case.attempt} failed differently ({s.root.event.where})."  # type: ignore[union-attr]


def _way(s: Solution) -> tuple[object, ...] | None:
    """The same for two attempts that failed in the same way: the pattern, the exception, the line of code."""
    return (s.root.pattern.id, *map(s.root.event.fields.get, ("type", "code"))) if s.root is not None else None


def memory(solution: Solution) -> list[GpuMemory]:
    """A row for each snapshot of GPU memory, those of the culprits first."""
    ranked = [(solution.case.rank_of(e), e) for e in solution.case.of_kind("memory")]
    ranked.sort(key=lambda pair: (pair[0] not in solution.ranks, pair[0] is None, pair[0], pair[1].where))
    return [
        {
            "rank": rank,
            "gpu": e.gpu,
            "source": e.where.source,
            "reserved": e.fields["reserved"],
            "allocated": e.fields["allocated"],
            "held": [{"code": code, "bytes": size} for code, size in e.fields["held"]],
        }
        for rank, e in ranked[:MOST_SNAPSHOTS]
    ]


# ── clocks and sources ──────────────────────────────────────────────────────────────────────────────────────


def clock(c: Clock) -> contract.Clock:
    return {
        "host": c.host,
        "kind": c.kind,
        "zone_s": c.zone,
        "offset_s": None if c.offset is None else round(c.offset, 6),
        "drift_ppm": c.drift_ppm,
        "at": iso(c.at),
        "uncertainty_s": c.uncertainty,
        "events": c.events,
        "state": c.state,
        "reason": c.reason,
        "sources": list(c.sources),
    }


def sources(timeline: Timeline, found: Sequence[Source]) -> list[contract.Source]:
    counts = timeline.frame["source"].value_counts().to_dict()
    return [
        {
            "path": s.path,
            "kind": s.kind,
            "host": s.host,
            "rank": s.rank,
            "local_rank": s.local_rank,
            "attempt": s.attempt,
            "bytes": s.size,
            "events": counts.get(s.path, 0),
        }
        for s in found
    ]
