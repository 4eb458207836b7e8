"""Trouble that a rank, a host or a job got over."""

from __future__ import annotations

from typing import Any

import pytest

from claims import case, claim, event, final_line, parts, pattern
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.rules import survived
from postmortem.diagnose.rules.view import Rule, View
from postmortem.model import Event

RAISED = pattern(generic=True)
END = pattern("end", None, role="confirms", tells=("end",))


def reduced(rule: Rule, *claims: Claim, events: Any = (), **known: Any) -> dict[int, str]:
    return parts(rule(View(case(*events, patterns=[END], **known), claims)))


def raised(line: int = 5, rank: int | None = None, p: Any = RAISED, **more: Any) -> Claim:
    own = {name: more.pop(name) for name in ("role",) if name in more}
    ranks = () if rank is None else (rank,)
    text = more.pop("text", "it failed")
    return claim(p, event(text, "a.log", line, rank=rank, **more), ranks=ranks, **own)


def worked(line: int = 9, **more: Any) -> Event:
    return event("step 5", more.pop("file", "a.log"), line, "worked", **({"fields": {"by": "count"}} | more))


# ── it went on ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_rank_survived_was_handled() -> None:
    assert reduced(survived.went_on, raised(), events=[worked()]) == {0: "context"}
    assert reduced(survived.went_on, raised(), events=[worked(3)]) == {}
    assert reduced(survived.went_on, raised(), events=[worked(file="b.log")]) == {}
    assert reduced(survived.went_on, raised(), events=[final_line(None, file="a.log")]) == {0: "context"}


@pytest.mark.parametrize("c", [
    raised(role="symptom"), raised(p=pattern("nan", "numerics")),
    raised(p=pattern("kill", "host-oom", entity="pid")), raised(excepthook=True), raised(reported_by="agent"),
    raised(speaker="scheduler"), raised(speaker="cluster"), raised(speaker="kernel"),
    raised(p=pattern("fatal", survived_by=("nothing",))),
    raised(p=pattern("stop", "scheduler", entity="job")),  # a trap may still write
])  # fmt: skip
def test_what_a_process_died_of_or_what_others_report_was_not_handled(c: Claim) -> None:
    assert reduced(survived.went_on, c, events=[worked()]) == {}


def test_a_symptom_was_handled_where_its_rank_works_far_below_unless_it_reports_an_end_or_a_timeout() -> None:
    far = worked(5 + survived.FAR)
    for tells, parts_ in (((), {0: "context"}), (("wait",), {}), (("end",), {}), (("asks",), {})):
        c = raised(p=pattern("complains", "hang", tells=tells), role="symptom")
        assert reduced(survived.went_on, c, events=[far]) == parts_, tells
        assert reduced(survived.went_on, c, raised(rank=3), events=[far]).get(0) is None, "something failed"


def test_a_final_message_below_what_surely_ended_its_process_is_its_shells() -> None:
    ended = raised(frames=(("a.py", 1, "<module>"),))
    assert reduced(survived.went_on, ended, events=[final_line(None, file="a.log")]) == {}
    last = final_line(None, file="a.log", fields={"last_word": True})
    assert reduced(survived.went_on, ended, events=[last]) == {0: "context"}
    assert reduced(survived.went_on, ended, events=[worked(5 + survived.FAR)]) == {0: "context"}
    assert reduced(survived.went_on, ended, events=[worked(4 + survived.FAR)]) == {}
    answer = worked(6, fields={"by": "answer"})
    assert reduced(survived.went_on, ended, events=[answer]) == {0: "context"}


def test_a_pattern_says_what_shows_that_its_failure_was_got_over() -> None:
    def by(word: str, *events: Event, **more: Any) -> bool:
        c = raised(p=pattern(survived_by=(word,)), **more)
        return bool(reduced(survived.went_on, c, events=events, ranks=(0, 1)))

    assert by("work", worked(rank=1), rank=0)  # whoever does it
    assert by("work", worked(), rank=0, role="symptom", reported_by="parent")
    assert not by("finish", worked())
    assert not by("finish", final_line(None, file="a.log"))
    assert by("finish", final_line(None, file="a.log", **LAST))
    assert not by("nothing", worked(), rank=0)
    far = {"file": "a.log", "line": 5 + survived.FAR, "kind": "progress"}
    assert by("finite-loss", event("loss 2.1", **far, loss="2.1"))
    assert not by("finite-loss", event("loss 2.1", **(far | {"line": 6}), loss="2.1"))
    assert not by("finite-loss", event("loss nan", **far, loss="nan"))
    assert not by("finite-loss", event("loss 2.1", **far, loss="2.1", rank=1))


def test_who_complains_of_the_absence_of_another_may_catch_that() -> None:
    absent = claim(pattern("absent", "hang", entity="missing-ranks"), event(file="a.log", line=5, rank=0), ranks=(2,))
    assert reduced(survived.went_on, absent, events=[worked(rank=0)]) == {0: "context"}
    assert reduced(survived.went_on, absent, events=[worked(rank=2)]) == {}


LINE = event("next", "a.log", 9, "line")


# ── it finished ──────────────────────────────────────────────────────────────────────────────────────────────────────


def done(rule_claim: Claim, *final_lines: Event, **known: Any) -> bool:
    return bool(reduced(survived.job_done, rule_claim, events=final_lines, **known))


def leaving(rule_claim: Claim, *final_lines: Event) -> bool:
    return bool(reduced(survived.while_leaving, rule_claim, events=final_lines, ranks=(0,)))


LAST = {"fields": {"last_word": True}}


def test_a_run_that_stated_final_message_everywhere_got_over_what_is_above() -> None:
    assert done(raised(5), final_line(0, 9, file="a.log"), ranks=(0,))
    other = event("x", "b.log", 1, "line", source_kind="console")
    assert not done(raised(5), final_line(0, 9, file="a.log"), other, ranks=(0, 1))
    beside = final_line(0, 9, file="b.log")  # its stdout
    assert done(raised(5), beside, ranks=(0,))
    assert not done(raised(5), beside, worked(line=2), ranks=(0,))
    assert not done(raised(5, at=1e9 + 9), final_line(0, 9, file="b.log", at=1e9), ranks=(0,))
    assert not done(raised(5, role="context"), final_line(0, 9, file="a.log"), ranks=(0,))
    for speaker in ("kernel", "scheduler"):
        assert not done(raised(5, speaker=speaker), final_line(0, 9, file="a.log"), ranks=(0,))
    assert not done(raised(5, p=pattern("nan", "numerics")), final_line(0, 9, file="a.log"), ranks=(0,))


@pytest.mark.parametrize("c", [
    raised(excepthook=True), raised(p=pattern("never", survived_by=("nothing",))),
    raised(p=pattern("crash", "native-crash")), raised(p=pattern("limit", family="scheduler")),
    raised(p=pattern("left", tells=("exit",))),
])  # fmt: skip
def test_a_final_message_below_a_death_belongs_to_another_unless_no_failing_script_prints_it(c: Claim) -> None:
    assert not done(c, final_line(0, 9, file="a.log"), ranks=(0,))
    assert done(c, final_line(0, 9, file="a.log", **LAST), ranks=(0,))


def test_below_the_final_message_peers_vanish_while_processes_leave() -> None:
    lost = raised(12, p=pattern("lost", "peer-lost"))
    assert leaving(lost, final_line(0, 9, file="a.log", **LAST))
    assert not leaving(lost, final_line(0, 9, file="a.log"))
    assert not leaving(raised(12), final_line(0, 9, file="a.log", **LAST))
    assert leaving(raised(12, role="symptom"), final_line(0, 9, file="a.log", **LAST))
    for word in ("end", "exit"):
        end = raised(12, role="confirms", p=pattern("e", None, tells=(word,)))
        assert not leaving(end, final_line(0, 9, file="a.log", **LAST))
    assert not leaving(raised(5, p=pattern("lost", "peer-lost")), final_line(0, 9, file="a.log", **LAST))
    at_work = raised(12, p=pattern("lost", "peer-lost"), excepthook=True, collective="all_reduce")
    assert not leaving(at_work, final_line(0, 9, file="a.log", **LAST))


def test_an_agent_that_waits_for_the_others_has_workers_that_succeeded() -> None:
    """torch 2.13, elastic/agent/server/api.py: `_exit_barrier` comes after the workers' state is SUCCEEDED."""
    api = "/opt/lib/python3.11/site-packages/torch/distributed/elastic/agent/server/api.py"
    barrier = ((api, 740, "run"), (api, 1010, "_exit_barrier"))
    lost = raised(80, p=pattern("lost", "peer-lost", role="symptom"), frames=barrier)
    above = raised(80 - survived.NEAR, p=pattern("socket", "network"))
    far = raised(79 - survived.NEAR, p=pattern("socket", "network"))
    assert reduced(survived.at_exit_barrier, lost, above, far) == {0: "context", 1: "context"}
    assert reduced(survived.at_exit_barrier, lost, raised(79)) == {0: "context"}
    at_work = raised(80, p=lost.pattern, frames=((api, 740, "run"), (api, 700, "_monitor_workers")))
    assert reduced(survived.at_exit_barrier, at_work, above) == {}


# ── it was caught ────────────────────────────────────────────────────────────────────────────────────────────────────

INNER = (("lib.py", 3, "_load"), ("lib.py", 9, "get"))


def caught(*events: Event, of: Any = RAISED, rank: int | None = None, **fields: Any) -> bool:
    c = raised(5, rank, of, fields={"frames": INNER} | fields)
    return bool(reduced(survived.caught, c, events=events))


def test_an_exception_in_a_librarys_own_code_after_which_it_wrote_on() -> None:
    assert caught(LINE)
    assert not caught()
    assert not caught(event("x", "a.log", 5, "line"))
    assert not caught(LINE, frames=())
    assert not caught(LINE, code="train.py:9")
    assert not caught(LINE, excepthook=True)
    assert not caught(LINE, rank=1)
    assert not caught(LINE, of=pattern())
    for runner in survived.RUNNERS:
        assert not caught(LINE, frames=(("threading.py", 1, runner), *INNER))


def notice(text: str, line: int) -> Event:
    return event(text, "a.log", line, "notice")


def test_a_logger_that_wrote_it_down_as_no_error() -> None:
    named = pattern()
    assert caught(notice("WARNING could not load", 2), of=named, opened=3)
    assert not caught(notice("ERROR could not load", 2), of=named, opened=3)
    assert not caught(notice("WARNING x: ERROR in", 2), of=named, opened=3)
    assert not caught(notice("WARNING could not load", 1), of=named, opened=3)


# ── the other side came back ─────────────────────────────────────────────────────────────────────────────────────────

SLOW = pattern("slow", "storage", role="symptom", survived_by=("back",))
BACK = pattern("back", None, role="context")


def restored(*others: Claim, at: int = 9, file: str = "a.log", **more: Any) -> bool:
    back = event("ok", file, at, pattern="back")
    seen = case(back, patterns=[BACK])
    return any(d.claim == 0 for d in survived.restored(View(seen, (raised(5, p=SLOW, **more), *others))))
