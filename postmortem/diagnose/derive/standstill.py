"""A job that had stood still long before a scheduler ended it: the time limit is the broom, and what the job waited for is the question.

    0: 2026-11-21 19:21:44,020 | INFO | 0 | iteration 80 loss 2.2871          the last line of any rank, and 34 minutes later
    slurmstepd: error: *** STEP 17.0 ON node-a CANCELLED AT 2026-11-21T19:56:10 DUE TO TIME LIMIT ***

Only where every rank's last line has a stamp: a progress bar may have gone on without one. Clocks without a zone may differ by a
whole number of half hours, so a silence that is little more than that proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive.hangs.views import make
from postmortem.digits import number
from postmortem.model import Event

SILENCE = 1800.0  # seconds: evaluations and checkpoints can take many minutes
MONTH = 30 * 86400.0  # no job's limit is longer: then the scheduler speaks of another one
STEPS = 20  # and as many steps as this would have fitted in
ZONE, NEAR = 1800.0, 120.0
SPOKEN = ("console", "json-lines", "ray")
WORDS = ("line", "progress", "notice", "finished")


def derive(case: Case, claims: list[Claim]) -> list[Claim]:
    """At most one finding: that all ranks had been silent for long when the job was ended."""
    pattern = case.library.get("job-stood-still")
    swept = {edge.id for edge in pattern.explains} if pattern else set()
    ends = [
        o.event
        for o in claims
        if o.role == "cause" and o.pattern.id in swept and o.event.at is not None and o.event.raw_time
    ]
    last = _last_words(case)
    if not ends or not last or case.finished or any(e.at is None or not e.raw_time for e in last):
        return []
    end = min(ends, key=lambda e: e.at or 0.0)
    final = max(last, key=lambda e: e.at or 0.0)
    silence = (end.at or 0.0) - (final.at or 0.0)
    pace = _pace(case)
    if (
        pace is None
        or not max(SILENCE, STEPS * pace) <= silence < MONTH
        or (_zoneless(end, last) and silence % ZONE < NEAR)
    ):
        return []
    step = max(
        (s for e in case.of_kind("progress") if (s := number(e.fields.get("step"))) is not None), default=0
    )
    because = f"no rank printed a line in the last {_long(silence)}; until then, up to step {step}, a step had taken {_long(pace)}"
    made = make(
        case, "job-stood-still", [], [final, end, *sorted(last, key=lambda e: -(e.at or 0.0))[1:4]], because
    )
    return [made] if made else []


def _last_words(case: Case) -> list[Event]:
    """The last line of every rank in each of its logs."""
    latest: dict[tuple[str, int | None], Event] = {}
    for e in case.of_kind(*WORDS):
        if e.source_kind in SPOKEN:
            key = (e.where.source, e.rank)
            if key not in latest or (e.where.line or 0) >= (latest[key].where.line or 0):
                latest[key] = e
    return list(latest.values())


def _pace(case: Case) -> float | None:
    """Seconds that a step took, by the rank whose steps took longest; None where no rank's steps tell."""
    paces = []
    by_writer: dict[tuple[str, int | None], list[tuple[float, int]]] = {}
    for e in case.of_kind("progress"):
        step = number(e.fields.get("step"))
        if step is not None and e.at is not None:
            by_writer.setdefault((e.where.source, e.rank), []).append((e.at, step))
    for marks in by_writer.values():
        (began, first), (ended, last) = min(marks), max(marks)
        if last > first and ended > began:
            paces.append((ended - began) / (last - first))
    return max(paces, default=None)


def _zoneless(end: Event, last: Iterable[Event]) -> bool:
    """Whether the scheduler's clock may stand in another zone than a rank's."""
    return end.clock != "absolute" or any(e.clock != "absolute" for e in last)


def _long(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
