"""From claims to one verdict: which job, which attempt, and a scheduler that is the last to act."""

from __future__ import annotations

from typing import Any

import pytest

from claims import case, claim, event, exits, final_line, library, pattern, source, steps
from postmortem.align import Timeline
from postmortem.diagnose import _before_a_stop, _choose, _went_well, diagnose
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.verdict.solution import Solution
from postmortem.errors import UsageError
from postmortem.model import Event
from postmortem.say.document import write

RAISED = pattern("raised", title="A rank raised an exception")


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


def test_a_last_attempt_went_well_if_it_is_at_work_or_done_or_all_wrote_after_reported_ends() -> None:
    failed, quiet = case(*exits(r0=1)), event("x", kind="line", rank=0)
    worked = event("step", kind="worked", rank=0, fields={"by": "count"})
    assert _went_well([failed, case(final_line(0), ranks=(0, 1))])
    assert _went_well([failed, case(worked, *steps(0, 1), ranks=(0, 1))])
    assert _went_well([failed, case(quiet, ranks=(0,))])
    assert not _went_well([failed, case(quiet, ranks=(0, 1))])
    assert not _went_well([case(), case(quiet, ranks=(0,))])
    assert not _went_well([failed, case(quiet, *exits(r0=0), ranks=(0,))])
    assert not _went_well([failed, case()])


def test_a_group_that_could_not_form_again_until_somebody_stopped_it_is_the_loss_before() -> None:
    reported = pattern("reported", role="confirms", tells=("death",))
    death = case(event("failed (exitcode: -9)", "agent.err", pattern="reported"), ranks=(0,), patterns=[reported])
    died = Solution(death, "incident", claim(RAISED), (0,), (), ())
    stop = claim(pattern("stopped", "external-signal", entity="job", tells=("stop",)))
    refused = claim(pattern("lost", "peer-lost", role="symptom"))
    for claims, works, chosen in (((refused,), [], died), ((), [], None), ((refused,), steps(0, 1), None)):
        last = Solution(case(*works, ranks=(0,)), "incident", stop, (), (stop, *claims), ())
        assert _before_a_stop([died, last]) is (chosen or last)
        assert _before_a_stop([last]) is last
    assert _before_a_stop([solved("incident", claim(RAISED)), last]) is last  # no launcher reported a death


# ── the document ─────────────────────────────────────────────────────────────────────────────────────────────────────


def document(*events: Event, **known: Any) -> Any:
    found = known.pop("library", library(RAISED))
    files = [source(f, rank=int(f[4])) for f in dict.fromkeys(e.where.source for e in events)]
    return write(diagnose(Timeline.of(events), files, found, {"bytes": 1}, **known), files, {"bytes": 1})


def test_an_unreadable_file_is_named_with_its_reason() -> None:
    """Whether the OOM killer did it stands in a log that nobody may read: that one is asked for first."""
    denied = {"path": "kernel/dmesg.txt", "bytes": 900, "reason": "cannot be opened: Permission denied", "lost": True}
    died = [e._replace(where=e.where._replace(source="rank1.log")) for e in exits(r1=-9)]
    events = [*steps(0, 1, 2), *steps(1, 1, 2), *died]
    files = [source(f"rank{r}.log", rank=r) for r in (0, 1)]
    ledger = {"bytes": 1000, "skipped": [denied]}
    doc: Any = write(diagnose(Timeline.of(events), files, library(), ledger), files, ledger)
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
