"""The one place where a claim's part rises: nothing nearer to the cause is there."""

from __future__ import annotations

from typing import Any

from claims import case, claim, event, exits, pattern
from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.rules.promote import promoted

CANCELLED = pattern("cancelled", "scheduler", role="symptom", entity="job", cause_if=("first-trouble",))
LOST = pattern("lost", "peer-lost", role="symptom")


def roles(seen: Case, *claims: Claim) -> list[str]:
    return [c.role for c in promoted(seen, claims)]


# ── the job ran well until somebody ended it ─────────────────────────────────────────────────────────────────────────


def cancelled(line: int = 5, at: float | None = None) -> Claim:
    return claim(CANCELLED, event("CANCELLED", "slurm.out", line, speaker="scheduler", at=at))


def complaint(line: int, file: str = "slurm.out", at: float | None = None, p: Any = LOST, **more: Any) -> Claim:
    sigma = more.pop("at_sigma", 0.0)
    return claim(p, event("lost", file, line, at=at, at_sigma=sigma, **more))


def test_a_cancellation_is_the_cause_where_nothing_failed_before_it() -> None:
    assert roles(case(), cancelled()) == ["cause"]
    assert roles(case(), cancelled(), complaint(6)) == ["cause", "symptom"]
    assert roles(case(), cancelled(), complaint(4)) == ["symptom", "symptom"]


# ── a wait that is the last there is ─────────────────────────────────────────────────────────────────────────────────

WAIT = pattern("wait", None, role="context", if_last="once")


def last(line: int = 5) -> Any:
    return event("…", "a.log", line, "line", fields={"last": True})


def test_an_ordinary_wait_at_the_end_of_a_log_is_trouble() -> None:
    c = claim(WAIT, event("waits", "a.log", 5))
    (found,) = promoted(case(*c.events, last(5)), [c])
    assert (found.role, found.because) == ("symptom", "no line follows it")
    assert roles(case(*c.events, last(6)), c) == ["context"]
    assert roles(case(*c.events, event("…", "a.log", 5, "line")), c) == ["context"]
    assert roles(case(*c.events, last(5)), claim(pattern("p", None, role="context"), *c.events)) == ["context"]


# ── what a log's last exception without a traceback says ─────────────────────────────────────────────────────────────

UTTERED = pattern("uttered", severity="error")


def uttered(line: int = 5, file: str = "a.log", **more: Any) -> Claim:
    p = more.pop("p", UTTERED)
    role = more.pop("role", "context")
    return claim(p, event("ValueError: odd", file, line, fields={"uttered": True} | more), role=role)


def promoted_lines(*claims: Claim, events: Any = ()) -> list[int | None]:
    found = promoted(case(*events, ranks=(0, 1)), claims)
    return [c.event.where.line for c in found if c.because == "no other line gives a reason"]


LEFT = exits(r1=1)


def test_the_last_one_counts_where_a_rank_left_with_a_code_or_somebody_complains() -> None:
    assert promoted_lines(uttered(5), uttered(9), events=LEFT) == [9]
    assert promoted_lines(uttered(5), uttered(9, "b.log"), events=LEFT) == [5, 9]
    assert promoted_lines(uttered(5), claim(LOST)) == [5]
    assert promoted_lines(uttered(5)) == []
    assert promoted_lines(uttered(5), events=exits(r1=-15)) == []
    quiet = claim(pattern("q", "hang", role="symptom", severity="warning"))
    assert promoted_lines(uttered(5), quiet) == []


def test_not_where_the_rank_worked_on_or_the_pattern_is_no_cause() -> None:
    work = event("step", "a.log", 9, "progress")
    assert promoted_lines(uttered(5), events=[*LEFT, work]) == []
    assert promoted_lines(uttered(12), events=[*LEFT, work]) == [12]
    assert promoted_lines(uttered(9), events=[*LEFT, work]) == [9]
    assert promoted_lines(uttered(5), events=[*LEFT, work._replace(where=work.where._replace(source="b"))]) == [5]
    assert promoted_lines(uttered(5, p=pattern("s", role="symptom")), events=LEFT) == []
    assert promoted_lines(uttered(5, uttered=False), events=LEFT) == []
