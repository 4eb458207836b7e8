"""What is known of one life of a job: who finished, how each rank ended, when it lived."""

from __future__ import annotations

import pytest

from claims import NOON, bye, case, event, exits, pattern, source
from postmortem.diagnose.case import moment
from postmortem.model import Event

EXIT = pattern("worker-ended", None, role="confirms", entity="pid", tells=("exit",))


def test_all_finished_only_where_every_rank_said_goodbye() -> None:
    assert case(bye(0), bye(1), ranks=(0, 1)).all_finished
    assert not case(bye(0), ranks=(0, 1)).all_finished
    assert not case(ranks=()).all_finished


def test_the_failure_block_tells_of_ends_before_a_line_does() -> None:
    line = event("failed", "agent.err", 3, pattern="worker-ended", exitcode="1", fields={"pid": "101"})
    seen = case(line, *exits(r1=-9), ranks=(0, 1), pids={1: 101}, patterns=[EXIT])
    assert seen.ends[1].kind == "kill"


def test_a_line_on_a_pid_tells_of_its_ranks_end() -> None:
    line = event("failed", "agent.err", 3, pattern="worker-ended", exitcode="-11", fields={"pid": "101"})
    told = case(line, ranks=(0, 1), pids={1: 101}, patterns=[EXIT])
    assert told.ends[1].kind == "crash"
    assert told.ended("crash", "kill") == [1]
    assert told.end_of(1) is told.ends[1]
    assert told.ends[1].stated_by is not None
    assert told.ends[1].stated_by.pid == 101


def test_nobody_is_harmed_of_whom_nobody_tells_a_bad_end() -> None:
    told = case(*exits(r0=0, r1=1), ranks=(0, 1, 2))
    assert [told.unharmed(rank) for rank in (0, 1, 2, None)] == [True, False, True, True]
    assert told.end_of(None) is None


def test_a_moment_is_known_to_half_a_minute_or_not_at_all() -> None:
    assert moment(event(at=NOON, at_sigma=29.9)) == NOON
    assert moment(event(at=NOON, at_sigma=30.0)) is None
    assert moment(event()) is None


def test_a_job_lives_by_its_own_lines_and_not_by_the_kernels() -> None:
    own = [event(at=NOON + s, at_sigma=0.1) for s in (0, 60)]
    kernel = event(at=NOON - 9999, speaker="kernel")
    vague = event(at=NOON - 500, at_sigma=30.0)
    lived = case(*own, kernel, vague)
    assert (lived.start, lived.end) == (NOON, NOON + 60)
    assert case(kernel).start is None


@pytest.mark.parametrize("speaker", ["scheduler", "cluster", "tool"])
def test_what_others_say_is_no_sign_of_life(speaker: str) -> None:
    assert case(event(at=NOON, speaker=speaker)).start is None


def test_only_the_kernels_lines_were_handed_in() -> None:
    assert case(event(speaker="kernel")).only_kernel
    assert not case(event(speaker="kernel"), event()).only_kernel


def test_a_kernel_log_at_hand_is_known_even_if_it_is_silent() -> None:
    assert case(sources=[source("dmesg.txt", "kernel")]).has_kernel_log
    assert not case(sources=[source("rank0.log")]).has_kernel_log


def test_events_by_what_their_patterns_tell_keep_their_order() -> None:
    other = pattern("a-shell-tells", None, tells=("exit", "end"))
    said = [event("1", pattern="worker-ended"), event("2", pattern="a-shell-tells"), event("3", pattern="worker-ended")]
    told = case(*said, patterns=[EXIT, other])
    assert told.telling("exit") == said
    assert told.telling("end") == said[1:2]
    assert told.telling("stop") == []
    assert told.seen("worker-ended") == [said[0], said[2]]


def test_events_by_rank_are_those_that_it_said_itself() -> None:
    said: list[Event] = [event("a", rank=0), event("b", file="rank1.log"), event("c", file="x.log")]
    told = case(*said, by_source={"rank1.log": 1})
    assert told.by_rank == {0: [said[0]], 1: [said[1]]}
    assert told.ranks_of(said) == {0, 1}


def test_a_note_stands_once() -> None:
    one = case()
    one.note("why")
    one.note("why")
    assert list(one.notes) == ["why"]


def test_kinds_are_found_together_in_order() -> None:
    said = [event("a", kind="line"), event("b", kind="progress"), event("c", kind="line"), event("d", kind="exit")]
    assert [e.text for e in case(*said).of_kind("line", "progress")] == ["a", "b", "c"]
    assert [e.text for e in case(*said).of_kind("line")] == ["a", "c"]
