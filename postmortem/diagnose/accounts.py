"""The tables of the incident document: every rank with its state and why, every clock, every source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from postmortem.align import Timeline
from postmortem.diagnose import words
from postmortem.diagnose.exits import describe, ending
from postmortem.model import Clock, Event, Finding, Source

if TYPE_CHECKING:
    from postmortem.diagnose import Solution

MAX_RANKS = 20_000


def ranks(solution: Solution) -> list[dict[str, Any]]:
    """A row for every rank: state, how it ended, how far it came, and a sentence why."""
    case = solution.case
    symptoms: dict[int, Finding] = {}
    for f in sorted(
        solution.findings, key=lambda f: f.pattern.severity not in ("fatal", "error")
    ):  # loud ones before `was told to stop`
        if f.role == "symptom":
            for r in f.ranks or ([rank] if (rank := case.registry.rank_of(f.event)) is not None else []):
                symptoms.setdefault(r, f)
    rows = []
    for rank in case.registry.ranks[:MAX_RANKS]:
        events = case.by_rank.get(rank, [])
        last = max(
            (e for e in events if e.kind in ("line", "progress", "finished")),
            key=lambda e: (e.at or 0.0, e.where.line or 0),
            default=None,
        )
        steps = [s for e in events if e.kind == "progress" and isinstance(s := e.fields.get("step"), int)]
        state, why = _state(solution, rank, events, symptoms.get(rank))
        collective = next((str(e.fields["collective"]) for e in events if e.fields.get("collective")), None)
        rows.append(
            {
                "rank": rank,
                "host": case.registry.host_of.get(rank),
                "pid": next(iter(case.registry.pids.get(rank, [])), None),
                "state": state,
                "exit": describe(case.exit_code(rank)),
                "last_step": max(steps, default=None),
                "last_collective": collective,
                "last_line": {"source": last.where.source, "line": last.where.line} if last else None,
                "why": why,
                "group": f"{state}:{symptoms[rank].pattern.id if rank in symptoms else ''}:{describe(case.exit_code(rank)) or ''}",
            }
        )
    return rows


def _state(
    solution: Solution, rank: int, events: Sequence[Event], symptom: Finding | None
) -> tuple[str, str]:
    case = solution.case
    code = case.exit_code(rank)
    if rank in solution.ranks and solution.root is not None:
        return "cause", solution.root.because or solution.root.pattern.title
    if symptom is not None:
        return "victim", f"{symptom.pattern.title} ({symptom.event.where})"
    if code in (-15, 143):
        return "victim", "stopped by the launcher with SIGTERM after another rank had failed"
    if rank in case.finished or code == 0:
        return "healthy", "said that it finished" if rank in case.finished else "ended with exit code 0"
    if not events:
        return "silent", "no line of this rank is in these logs"
    if solution.outcome == "healthy":
        return "healthy", "no failure in its lines"
    if code is not None and code != 0:
        return "victim", f"ended with {ending(code)} after the failure"
    return "silent", "its last line is ordinary; it neither complained nor said goodbye"


def clock(c: Clock) -> dict[str, Any]:
    return {
        "host": c.host,
        "kind": c.kind,
        "zone_s": c.zone,
        "offset_s": None if c.offset is None else round(c.offset, 6),
        "drift_ppm": c.drift_ppm,
        "at": words.iso(c.at),
        "uncertainty_s": c.uncertainty,
        "events": c.events,
        "state": c.state,
        "reason": c.reason,
        "sources": list(c.sources),
    }


def sources(timeline: Timeline, found: Sequence[Source]) -> list[dict[str, Any]]:
    counts: dict[str, int] = {}
    for e in timeline.events:
        counts[e.where.source] = counts.get(e.where.source, 0) + 1
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
