"""The attempts of a job, one after the other: when each lived, who failed in it, why, and how it ended.

In: the solved attempts, oldest first. Out: rows of the document's `attempts`, and the sentences that the verdict
needs of the attempts that it is not about.
"""

from __future__ import annotations

from collections.abc import Sequence

from postmortem.diagnose import blame, life
from postmortem.diagnose.case import Case, moment
from postmortem.diagnose.solution import Solution
from postmortem.diagnose.wording import capital, iso, listed
from postmortem.model.contract.verdict import Attempt
from postmortem.say import headline

MOST, NAMED = 200, 64  # attempts, and ranks of one
OTHERWISE = 3  # attempts of which it is told how they failed
OPENING = ("identity", "anew", "pid")
TIMES = ("once", "twice", "three times", "four times", "five times", "six times")


def rows(solution: Solution) -> list[Attempt]:
    """A row for each attempt. Of a job that was started over and over the last ones count."""
    return [_row(s) for s in (solution.each or (solution,))[-MOST:]]


def _row(s: Solution) -> Attempt:
    failed = s.outcome != "healthy"
    return {
        "number": s.case.attempt,
        "begin": iso(_begin(s.case)),
        "end": iso(s.case.end),
        "outcome": "incident" if s.outcome == "recovered" else s.outcome,
        "ranks": list(s.ranks[:NAMED]),
        "hosts": blame.hosts(s.case, s.root, s.ranks, s.claims)[:NAMED] if s.root else [],
        "category": s.root.pattern.category if s.root else None,
        "pattern": s.root.pattern.id if s.root else None,
        "why": headline.in_short(s) if failed else None,
        "ended": _ended(s),
    }


def _begin(case: Case) -> float | None:
    """When the first of its ranks, or its launcher, introduced itself; None where the first that is known of it
    is a line from the middle."""
    opening = (moment(e) for e in case.events if e.kind in OPENING or e.fields.get("first"))
    first = min((at for at in opening if at is not None), default=None)
    return first if first == case.start else None


def _ended(s: Solution) -> str | None:
    """How the rank at fault ended, else the job; None where nothing tells."""
    ends = {str(end) for r in s.ranks if (end := s.case.end_of(r)) is not None}
    if len(ends) == 1:
        return ends.pop()
    if s.outcome == "healthy":
        return "finished" if _finished(s.case) else "at work to its last line"
    if s.root is not None and s.root.pattern.category == "scheduler":
        return "stopped by the scheduler"
    told = [verb for _, verb in s.victims.told()]
    return f"the others {listed(told)}" if told else None


def _finished(case: Case) -> bool:
    return case.all_finished or life.all_done(case)


def told(solution: Solution) -> list[str]:
    """Whether the other attempts failed in the same way, and where the line is if not; `rows` tell how."""
    others = [s for s in solution.each if s.root is not None and s.case.attempt != solution.case.attempt]
    alike = [s for s in others if _way(s) == _way(solution)]
    said = [_again(solution, alike)] if alike and solution.root is not None else []
    for s in [s for s in others if s not in alike and s.outcome != "healthy"][:OTHERWISE]:
        said.append(f"Attempt {s.case.attempt} failed differently ({s.root.event.where}).")  # type: ignore[union-attr]
    return said


def _again(solution: Solution, alike: Sequence[Solution]) -> str:
    """`It failed three times in the same way, in attempts 0, 1 and 2.`"""
    numbers = sorted(s.case.attempt for s in (solution, *alike) if s.case.attempt is not None)
    n = len(numbers)
    often = TIMES[n - 1] if n <= len(TIMES) else f"{n} times"
    return capital(f"it failed {often} in the same way, in attempts {listed([str(n) for n in numbers])}.")


def _way(s: Solution) -> tuple[object, ...]:
    """What is the same where two attempts failed in the same way: the pattern, the exception, the line of code."""
    if s.root is None:
        return (s.case.attempt,)
    fields = s.root.event.fields
    return s.root.pattern.id, fields.get("type"), fields.get("code")
