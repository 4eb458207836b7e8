"""The tables of the incident document: every rank with its state and why, every clock, every source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from postmortem.align import Timeline
from postmortem.diagnose import collective
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.solution import Solution
from postmortem.diagnose.wording import iso
from postmortem.model import Clock, Event, RankState, Source
from postmortem.model.contract import incident as contract

MAX_RANKS = 20_000


def ranks(solution: Solution) -> list[contract.Rank]:
    """A row for every rank: state, how it ended, how far it came, and a sentence why."""
    symptoms, collectives = _symptoms(solution), collective.last(solution.case)
    return [
        _rank(solution, rank, symptoms.get(rank), collectives.get(rank))
        for rank in solution.case.registry.ranks[:MAX_RANKS]
    ]


def _symptoms(solution: Solution) -> dict[int, Claim]:
    """The complaint of each rank, loud ones before `was told to stop`."""
    case = solution.case
    found: dict[int, Claim] = {}
    for c in sorted(solution.claims, key=lambda c: c.pattern.severity not in ("fatal", "error")):
        if c.role == "symptom":
            for rank in c.ranks or case.ranks_of(c.events):
                found.setdefault(rank, c)
    return found


def _rank(solution: Solution, rank: int, symptom: Claim | None, last_collective: str | None) -> contract.Rank:
    case = solution.case
    events = case.by_rank.get(rank, [])
    spoken = [e for e in events if e.kind in ("line", "progress", "finished")]
    last = max(spoken, key=lambda e: (e.at or 0.0, e.where.line or 0), default=None)
    steps = [s for e in events if e.kind == "progress" and isinstance(s := e.fields.get("step"), int)]
    end = case.end_of(rank)
    state, why = _state(solution, rank, events, symptom)
    return {
        "rank": rank,
        "host": case.registry.host_of.get(rank),
        "pid": next(iter(case.registry.pids.get(rank, [])), None),
        "state": state,
        "exit": end.short if end else None,
        "last_step": max(steps, default=None),
        "last_collective": last_collective,
        "last_line": {"source": last.where.source, "line": last.where.shown} if last else None,
        "why": why,
        "group": f"{state}:{symptom.pattern.id if symptom else ''}:{end.short if end else ''}",
    }


def _state(solution: Solution, rank: int, events: Sequence[Event], symptom: Claim | None) -> tuple[RankState, str]:
    case = solution.case
    end = case.end_of(rank)
    if rank in solution.ranks and solution.root is not None:
        return "cause", solution.root.because or solution.root.pattern.title
    if symptom is not None:
        return "victim", f"{symptom.pattern.title} ({symptom.event.where})"
    if end is not None and end.signal == "SIGTERM":
        return "victim", "stopped by the launcher with SIGTERM after another rank had failed"
    if rank in case.finished or (end is not None and end.kind == "clean"):
        return "healthy", "reported that it finished" if rank in case.finished else "exited with code 0"
    if not events:
        return "silent", "no line of this rank is in these logs"
    if solution.outcome == "healthy":
        return "healthy", "no failure in its lines"
    if end is not None:
        return "victim", f"ended with {end} after the failure"
    return "silent", "its last line is ordinary; it reported neither an error nor its end"


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
    counts = Counter(e.where.source for e in timeline.events)
    return [
        {
            "path": s.path,
            "kind": s.kind,
            "host": s.host,
            "rank": s.rank,
            "local_rank": s.local_rank,
            "attempt": s.attempt,
            "bytes": s.size,
            "events": counts[s.path],
        }
        for s in found
    ]
