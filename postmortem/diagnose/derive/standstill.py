"""A job that had stood still long before a scheduler ended it: the time limit is the broom, and what the job
waited for is the question.

    0: 2026-11-21 19:21:44,020 | INFO | 0 | iteration 80 loss 2.2871          the last line of any rank, and 34 minutes later
    slurmstepd: error: *** STEP 17.0 ON node-a CANCELLED AT 2026-11-21T19:56:10 DUE TO TIME LIMIT ***

Only where every rank's last line has a stamp: a progress bar may have gone on without one. Clocks without a
zone may differ by a whole number of half hours, so a silence that is little more than that proves nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from postmortem.diagnose.case import SPOKEN, Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive.hangs import silent
from postmortem.diagnose.derive.hangs.views import make, scene
from postmortem.model import Event
from postmortem.model.digits import number

SILENCE = 1800.0  # seconds: evaluations and checkpoints can take many minutes
NOTICED = 20.0  # where one rank stands before what all others have done
MONTH = 30 * 86400.0  # no job's limit is longer: then the scheduler speaks of another one
STEPS = 20  # and as many steps as this would have fitted in
ZONE, NEAR = 1800.0, 120.0
WORDS = ("line", "progress", "notice", "finished")
Writer = tuple[str, int | None]  # a source and a rank


def derive(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """At most one claim: that all ranks had been silent for long when the job was ended."""
    end = _end(case, claims)
    if end is None or case.finished:
        return []
    stuck = silent.stuck(scene(case, claims))
    last = _last_words(case, only_ranks=bool(stuck))
    if not last or not all(map(_stamped, last)):
        return []
    silence, pace = _silence(end, last), _pace(case) or (_rhythm(case) if stuck else None)
    if pace is None or not max(NOTICED if stuck else SILENCE, STEPS * pace) <= silence < MONTH:
        return []
    because = _because(case, silence, pace)
    if stuck:
        because = f"{silent.overtaken_by(stuck)}; {because}"
    final, *others = sorted(last, key=_at, reverse=True)
    words = list(stuck.values())
    rest = [e for e in (final, end, *others[:3]) if e not in words]
    made = make(case, "job-stood-still", stuck, [*words, *rest], because)
    return [made] if made else []


def _silence(end: Event, last: Sequence[Event]) -> float:
    """Seconds from the last line of any rank to the end of the job; 0 where that may be but a zone."""
    silence = max(0.0, _at(end) - max(map(_at, last)))
    return 0.0 if _zoneless(end, last) and silence > NEAR and silence % ZONE < NEAR else silence


def _because(case: Case, silence: float, pace: float) -> str:
    step = max((number(e.fields.get("step")) or 0 for e in case.of_kind("progress")), default=0)
    until = f"; before that, up to step {step}, a step took {_long(pace)}" if step else ""
    return f"no rank printed a line in the last {_long(silence)}{until}"


def _at(e: Event) -> float:
    return e.at or 0.0


def _stamped(e: Event) -> bool:
    return e.at is not None and bool(e.raw_time)


def _end(case: Case, claims: Sequence[Claim]) -> Event | None:
    """The stamped line of the scheduler that ended the job, of those that a standstill explains."""
    pattern = case.library.get("job-stood-still")
    swept = {edge.id for edge in pattern.explains} if pattern else set()
    ends = [c.event for c in claims if c.role == "cause" and c.pattern.id in swept and _stamped(c.event)]
    return min(ends, key=_at, default=None)


def _last_words(case: Case, only_ranks: bool) -> list[Event]:
    """The last line of every rank in each of its logs; and of whoever else speaks there, where not all
    ranks' are known."""
    latest: dict[Writer, Event] = {}
    for e in case.of_kind(*WORDS):
        rank = case.rank_of(e)
        on_a_shared_console = e.source_kind == "agent" and rank is not None
        if (e.source_kind in SPOKEN or on_a_shared_console) and not (only_ranks and rank is None):
            key = (e.where.source, rank)
            if key not in latest or (e.where.line or 0) >= (latest[key].where.line or 0):
                latest[key] = e
    return list(latest.values())


def _pace(case: Case) -> float | None:
    """Seconds that a step took, by the rank whose steps took longest; None where no rank's steps tell."""
    counted: dict[Writer, list[tuple[int, float]]] = defaultdict(list)
    for e in case.of_kind("progress"):
        step = number(e.fields.get("step"))
        if step is not None and e.at is not None:
            counted[e.where.source, e.rank].append((step, e.at))
    return _slowest(counted.values())


def _rhythm(case: Case) -> float | None:
    """Seconds from line to line, in the log in which lines came most slowly."""
    counted: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for e in case.of_kind(*WORDS):
        if _stamped(e):
            counted[e.where.source].append((e.where.line or 0, _at(e)))
    return _slowest(counted.values())


def _slowest(series: Iterable[Sequence[tuple[int, float]]]) -> float | None:
    """Seconds from one count to the next, in the series in which they took longest."""
    paces = []
    for marks in series:
        (first, began), (last, ended) = min(marks), max(marks)
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
