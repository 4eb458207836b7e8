"""From claims to one verdict: which job, which life of it, and a scheduler that only sweeps up."""

from __future__ import annotations

from typing import Any

import pytest

from claims import NOON, bye, case, claim, event, exits, library, pattern, source, steps
from postmortem.align import Timeline
from postmortem.diagnose import _choose, _scheduler_last, _that_ended_it, _went_well, diagnose
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.solution import Solution
from postmortem.errors import UsageError
from postmortem.model import Event
from postmortem.say.document import write

RAISED = pattern("raised", title="A rank raised an exception")
GROUP = pattern("group", "rendezvous", title="A group did not form")


def solved(outcome: str, root: Claim | None = None, job: str | None = None, attempt: int | None = None) -> Solution:
    seen = case(ranks=(0,))
    seen.attempt = attempt
    return Solution(seen, outcome, root, (), (root,) if root else (), (), job)


def test_the_latest_job_that_failed_or_the_one_that_is_asked_for() -> None:
    jobs = [
        solved(o, job=j) for o, j in (("incident", "a"), ("undetermined", "b"), ("recovered", "c"), ("healthy", "d"))
    ]
    assert [_choose(jobs, name).job for name in (None, "a", "d")] == ["b", "a", "d"]
    with pytest.raises(UsageError, match="no job nobody in these logs"):
        _choose(jobs, "nobody")
    assert _choose(jobs[2:], None).job == "c"
    assert _choose(jobs[3:], None).job == "d"


def test_the_attempt_that_ended_the_job_is_the_last_one_with_a_cause() -> None:
    lives = [solved("incident", claim(RAISED), attempt=n) for n in (0, 1)]
    nothing = solved("undetermined", attempt=2)
    assert _that_ended_it([*lives, nothing]).case.attempt == 1
    assert _that_ended_it([nothing, solved("undetermined", attempt=3)]).case.attempt == 2


def test_a_group_that_could_not_form_again_after_a_loss_is_that_loss() -> None:
    lost, again = solved("incident", claim(RAISED), attempt=0), solved("incident", claim(GROUP), attempt=1)
    assert _that_ended_it([lost, again]).case.attempt == 0
    assert _that_ended_it([again]).case.attempt == 1


def test_a_last_attempt_went_well_if_it_is_seen_at_work_or_done_or_all_spoke_after_ends_that_were_reported() -> None:
    failed, quiet = case(*exits(r0=1)), event("x", kind="line", rank=0)
    worked = event("step", kind="worked", rank=0, fields={"by": "count"})
    assert _went_well([failed, case(bye(0), ranks=(0, 1))])
    assert _went_well([failed, case(worked, *steps(0, 1), ranks=(0, 1))])
    assert _went_well([failed, case(quiet, ranks=(0,))])
    assert not _went_well([failed, case(quiet, ranks=(0, 1))])
    assert not _went_well([case(), case(quiet, ranks=(0,))])
    assert not _went_well([failed, case(quiet, *exits(r0=0), ranks=(0,))])
    assert not _went_well([failed, case()])


# ── the broom ────────────────────────────────────────────────────────────────────────────────────────────────────────


def at(p: Any, seconds: float, **more: Any) -> Claim:
    return claim(p, event(file=p.id, at=NOON + seconds, host="a"), **more)


LIMIT = pattern("limit", "scheduler", entity="job")


def order(*claims: Claim) -> list[str]:
    return [c.pattern.id for c in _scheduler_last(case(), list(claims))]


def test_a_scheduler_that_stops_the_job_after_something_had_failed_is_the_last_to_act() -> None:
    assert order(at(LIMIT, 9), at(RAISED, 0)) == ["raised", "limit"]
    assert order(at(LIMIT, 0), at(RAISED, 9)) == ["limit", "raised"]
    assert order(at(LIMIT, 9)) == ["limit"]
    assert order(at(RAISED, 9), at(LIMIT, 0)) == ["raised", "limit"]


@pytest.mark.parametrize(
    "other, before",
    [
        (at(pattern("other", "hang"), 0), False),  # it was waiting, perhaps for the scheduler
        (at(pattern("other", severity="error"), 0), False),
        (at(pattern("other", "native-crash"), 0, strength="ended"), True),
        (at(pattern("other", "external-signal"), 0, strength="ended"), True),
        (at(pattern("other", "python-exception"), 0, strength="ended"), False),
    ],
)
def test_what_a_stop_does_not_account_for(other: Claim, before: bool) -> None:
    assert order(at(LIMIT, 9), other) == (["other", "limit"] if before else ["limit", "other"])


# ── the document ─────────────────────────────────────────────────────────────────────────────────────────────────────


def document(*events: Event, **known: Any) -> Any:
    found = known.pop("library", library(RAISED))
    files = [source(f, rank=int(f[4])) for f in dict.fromkeys(e.where.source for e in events)]
    return write(diagnose(Timeline(events, ()), files, found, {"bytes": 1}, **known), files, {"bytes": 1})


def test_a_rank_that_raises_is_an_incident_and_all_parts_of_the_document_are_there() -> None:
    said = event("ValueError: odd", "rank1.log", 9, rank=1, host="node-b", pattern="raised", at=NOON, at_sigma=0.1,
                 raw_time="12:00:00", context=("x", "ValueError: odd"), before=1)  # fmt: skip
    doc = document(
        *steps(0, 1, 2), said, library=library(pattern("raised", title="A rank raised an exception", why="Why."))
    )
    verdict = doc["verdict"]
    assert (verdict["outcome"], verdict["pattern"], verdict["confidence"]) == ("incident", "raised", "established")
    assert verdict["culprit"]["ranks"] == [1]
    assert verdict["culprit"]["hosts"] == ["node-b"]
    assert (verdict["because"], doc["chain"][0]["because"].split()[-1]) == ([], "Why.")
    (line,) = verdict["evidence"]
    assert line == line | {
        "source": "rank1.log", "line": 9, "text": "ValueError: odd", "time": "2026-11-21T12:00:00.000Z",
        "uncertainty_s": 0.1, "rank": 1, "host": "node-b", "pattern": "raised", "context_before": 1,
    }  # fmt: skip
    assert [row["state"] for row in doc["ranks"]] == ["silent", "cause"]
    assert [row["id"] for row in doc["findings"]] == ["o0"]
    assert (doc["schema"], doc["ledger"]) == ("postmortem/incident/1", {"bytes": 1})
    assert doc["tool"]["library"] == "test"
    assert [(row["path"], row["events"]) for row in doc["sources"]] == [("rank0.log", 2), ("rank1.log", 1)]


def test_an_unreadable_file_is_named_with_its_reason() -> None:
    """Whether the OOM killer did it stands in a log that nobody may read: that one is asked for first."""
    denied = {"path": "kernel/dmesg.txt", "bytes": 900, "reason": "cannot be opened: Permission denied", "lost": True}
    died = [e._replace(where=e.where._replace(source="rank1.log")) for e in exits(r1=-9)]
    said = [*steps(0, 1, 2), *steps(1, 1, 2), *died]
    files = [source(f"rank{r}.log", rank=r) for r in (0, 1)]
    ledger = {"bytes": 1000, "skipped": [denied]}
    doc: Any = write(diagnose(Timeline(tuple(said), ()), files, library(), ledger), files, ledger)
    first, *rest = doc["verdict"]["missing"]
    assert doc["verdict"]["category"] == "external-signal"
    assert first["what"] == "kernel/dmesg.txt: permission denied"
    assert first["how"].startswith("chmod a+r kernel/dmesg.txt")
    assert [item["what"] for item in rest] == ["kernel log of the host of rank 1"]


def test_without_a_cause_the_complaints_are_reported_and_what_to_collect() -> None:
    lost = pattern("lost", "peer-lost", role="symptom", title="A rank lost its peers")
    doc = document(event("lost", "rank0.log", 5, rank=0, pattern="lost"), library=library(lost))
    verdict = doc["verdict"]
    assert (verdict["outcome"], verdict["category"], verdict["confidence"]) == ("incident", "peer-lost", "hypothesis")
    assert verdict["headline"] == "Rank 0 lost the connection, and the cause is not in these logs."
    assert verdict["culprit"]["ranks"] == []
    assert [row["id"] for row in doc["chain"]] == ["f1"]
    assert [a["kind"] for a in verdict["actions"]] == ["none"]
    assert verdict["missing"]
