"""From claims to one verdict: which job, which life of it, and a scheduler that only sweeps up."""

from __future__ import annotations

from typing import Any

import pytest

from claims import NOON, bye, case, claim, event, exits, library, pattern, source, steps
from postmortem.align import Timeline
from postmortem.blocks import stacks
from postmortem.diagnose import _choose, _scheduler_last, _that_ended_it, _went_well, diagnose
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.solution import Solution
from postmortem.errors import UsageError
from postmortem.model import Event
from postmortem.say.document import write
from postmortem.say.evidence import MOST, Evidence, own_frame

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


def test_the_life_that_ended_the_job_is_the_last_one_with_a_cause() -> None:
    lives = [solved("incident", claim(RAISED), attempt=n) for n in (0, 1)]
    nothing = solved("undetermined", attempt=2)
    assert _that_ended_it([*lives, nothing]).case.attempt == 1
    assert _that_ended_it([nothing, solved("undetermined", attempt=3)]).case.attempt == 2


def test_a_group_that_could_not_form_again_after_a_loss_is_that_loss() -> None:
    lost, again = solved("incident", claim(RAISED), attempt=0), solved("incident", claim(GROUP), attempt=1)
    assert _that_ended_it([lost, again]).case.attempt == 0
    assert _that_ended_it([again]).case.attempt == 1


def test_a_last_life_went_well_if_it_is_seen_at_work_or_done_or_all_spoke_after_ends_that_were_told() -> None:
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


def test_a_scheduler_that_stops_the_job_after_something_had_failed_is_the_broom() -> None:
    assert order(at(LIMIT, 9), at(RAISED, 0)) == ["raised", "limit"]
    assert order(at(LIMIT, 0), at(RAISED, 9)) == ["limit", "raised"]
    assert order(at(LIMIT, 9)) == ["limit"]
    assert order(at(RAISED, 9), at(LIMIT, 0)) == ["raised", "limit"]


def test_so_is_a_launcher_that_was_told_to_stop() -> None:
    stop = pattern("stop", "external-signal", tells=("stop",))
    assert order(at(stop, 9), at(RAISED, 0)) == ["raised", "stop"]
    assert order(at(pattern("signal", "external-signal"), 9), at(RAISED, 0)) == ["signal", "raised"]


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
        *steps(0, 1, 2),
        said,
        library=library(pattern("raised", title="A rank raised an exception", why="Why.")),
    )
    verdict = doc["verdict"]
    assert (verdict["outcome"], verdict["pattern"], verdict["confidence"]) == (
        "incident",
        "raised",
        "established",
    )
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


def test_a_healthy_run_has_no_cause_and_no_actions() -> None:
    worked = event("step 5", "rank0.log", 5, "worked", rank=0, fields={"by": "count"})
    verdict = document(worked, bye(0))["verdict"]
    assert (verdict["outcome"], verdict["pattern"], verdict["actions"]) == ("healthy", None, [])
    assert verdict["confidence"] == "supported"


def test_evidence_lists_a_line_once_and_not_too_many() -> None:
    found = Evidence(case(hosts={1: "a"}))
    first = found.add(event("one", line=1), "raised", (1,))
    assert (first, found.add(event("one", line=1), "other"), found.add(event("two", line=2), None)) == (
        0,
        0,
        1,
    )
    assert (found.items[0]["rank"], found.items[0]["host"]) == (1, "a")
    numbers = [found.add(event(str(n), line=n), None) for n in range(3, MOST + 3)]
    assert numbers[-3:] == [MOST - 1, None, None]
    assert len(found.items) == MOST


def test_of_a_vague_moment_no_time_is_shown() -> None:
    found = Evidence(case())
    for sigma in (60.0, 61.0):
        found.add(event(str(sigma), at=NOON, at_sigma=sigma), None)
    assert [item["time"] is None for item in found.items] == [False, True]


def test_of_a_stack_the_line_of_the_users_code_is_shown() -> None:
    lines = (
        "above",
        "Thread 7 (idle)",
        '  File "wait.py", line 3 in wait',
        '  File "train.py", line 9 in step',
    )
    stack = event(lines[1], "stacks.txt", 20, "stack", code="train.py:9", context=lines, before=1)
    shown = own_frame(stack)
    assert (shown.where.line, shown.text, shown.before) == (22, lines[3], 3)
    other = stack._replace(fields={"code": "train.py:99"})
    assert own_frame(other) == other
    assert own_frame(stack._replace(kind="pattern")).where.line == 20


def test_the_users_frame_stands_deep_below_those_of_the_loader() -> None:
    """py-spy, a rank that waits for a worker of its DataLoader: ten frames of libraries stand above `main`."""
    deep = [f"    f{n} (torch/utils/data/dataloader.py:{n})" for n in range(1, 10)]
    dump = ["Process 77: python train.py", 'Thread 77 (idle): "MainThread"', *deep, "    main (train.py:39)"]
    (stack,) = stacks.parse(source("rank1_pid77.txt", "stack"), "\n".join(dump).encode())
    shown = own_frame(stack)
    assert (shown.where.line, shown.text.strip(), len(shown.context)) == (12, "main (train.py:39)", 6)
    assert shown.context[shown.before] == shown.text


def test_the_chain_goes_from_the_root_by_what_confirms_it_to_what_follows() -> None:
    lost = pattern("lost", "peer-lost", role="symptom", title="A rank lost its peers", what="Its peer is gone.")
    confirms = pattern("confirms", None, role="confirms", entity="rank")
    known = library(RAISED, lost, confirms)
    events = [
        event("skipping it", "rank1.log", 7, "notice", rank=1, at=NOON),
        event("raised", "rank1.log", 9, rank=1, pattern="raised", at=NOON, host="a", opened=8),
        event("so it is", "rank1.log", 12, pattern="confirms", at=NOON, fields={"rank": "1"}, rank=1),
        event("lost", "rank0.log", 5, rank=0, pattern="lost", at=NOON + 9, host="b"),
    ]
    doc = document(*events, library=known)
    rows = [(row["id"], row["pattern"], row["role"], row["explains"]) for row in doc["chain"]]
    assert rows == [
        ("f1", "raised", "cause", ["f3"]),
        ("f2", "confirms", "confirms", []),
        ("f3", "lost", "symptom", []),
    ]
    root, _, effect = doc["chain"]
    assert root["entity"] == {"rank": 1, "host": "a"}
    texts = [doc["verdict"]["evidence"][n]["text"] for n in root["evidence"]]
    assert texts == ["raised", "skipping it"]
    assert effect["because"].startswith("9.00 s later (±")
    assert effect["because"].endswith("Its peer is gone.")
    assert (effect["count"], effect["time"]) == (1, "2026-11-21T12:00:09.000Z")
    assert doc["job"] == {
        "id": None,
        "world_size": 2,
        "hosts": ["a", "b"],
        "torch": None,
        "nccl": None,
        "attempts": 1,
    }
    assert doc["unexplained"] == []
    assert [t["step"] for t in doc["trace"]] == list(range(1, len(doc["trace"]) + 1))


def test_what_came_before_the_root_is_unexplained() -> None:
    lost = pattern("lost", "peer-lost", role="symptom", severity="error")
    events = [
        event("lost", "rank0.log", 5, rank=0, pattern="lost", at=NOON - 9, host="b"),
        event("raised", "rank1.log", 9, rank=1, pattern="raised", at=NOON, host="a"),
    ]
    (row,) = document(*events, library=library(RAISED, lost))["unexplained"]
    assert row["pattern"] == "lost"
    assert "it precedes the cause" in row.values()


def test_an_unreadable_file_is_named_with_its_reason() -> None:
    """Whether the OOM killer did it stands in a log that nobody may read: that one is asked for first."""
    denied = {
        "path": "kernel/dmesg.txt",
        "bytes": 900,
        "reason": "cannot be opened: Permission denied",
        "lost": True,
    }
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


def test_a_verdict_of_a_later_life_tells_which_one() -> None:
    lives = [event("raised", f"rank1.{n}.log", 9, rank=1, pattern="raised", attempt=n, at=NOON + n) for n in (0, 1)]
    files = [source(e.where.source, rank=1, attempt=e.attempt) for e in lives]
    doc: Any = write(diagnose(Timeline(tuple(lives), ()), files, library(RAISED), {}), files, {})
    assert (doc["verdict"]["attempt"], doc["job"]["attempts"]) == (1, 2)
    assert "attempt" not in document(lives[0]._replace(attempt=None))["verdict"]


def test_without_a_cause_the_complaints_are_told_and_what_to_collect() -> None:
    lost = pattern("lost", "peer-lost", role="symptom", title="A rank lost its peers")
    doc = document(event("lost", "rank0.log", 5, rank=0, pattern="lost"), library=library(lost))
    verdict = doc["verdict"]
    assert (verdict["outcome"], verdict["category"], verdict["confidence"]) == (
        "incident",
        "peer-lost",
        "hypothesis",
    )
    assert verdict["headline"] == "Rank 0 lost the connection, and the cause is not in these logs."
    assert verdict["culprit"]["ranks"] == []
    assert [row["id"] for row in doc["chain"]] == ["f1"]
    assert [a["kind"] for a in verdict["actions"]] == ["none"]
    assert verdict["missing"]
