"""Whose a file or a traceback is that names nobody: by the number in its name, or by what nobody else can have said."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from claims import event, library, pattern, source
from postmortem.diagnose import failures, numbering
from postmortem.model import Event

LOST = pattern("lost", "peer-lost", role="symptom")
Votes = dict[str, Counter[int]]


def of_files(*names: str, votes: dict[str, int] | None = None, world: int | None = None, kind: str = "console") -> Any:
    said: Votes = {name: Counter({rank: 1}) for name, rank in (votes or {}).items()}
    found = numbering.numbered([source(n, kind) for n in names], {n: n for n in names}, said, world)
    return [found.get(n) for n in names]


# ── numbers in names ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("word", ["rank", "r", "proc", "p", "process"])
def test_a_word_that_numbers_ranks(word: str) -> None:
    assert of_files(f"{word}0", f"{word}_1", f"{word}1") == [0, None, 1]
    assert of_files(f"{word}0") == [None]
    assert of_files(f"{word}1", f"{word}2") == [None, None]  # not all are there


@pytest.mark.parametrize("word", ["worker", "gpu", "task", "t", "actor"])
def test_a_word_that_may_number_parts_of_a_node(word: str) -> None:
    assert of_files(f"{word}-0", f"{word}-1") == [0, 1]
    assert of_files(f"{word}-0", f"{word}-1", world=8) == [None, None]
    assert of_files(f"{word}-0", f"{word}-1", world=2) == [0, 1]


@pytest.mark.parametrize(
    "word",
    ["attempt", "run", "epoch", "step", "part", "seed", "job", "node", "host", "trial", "version", "shard", "try"],
)
def test_a_word_that_numbers_something_else(word: str) -> None:
    assert of_files(f"{word}0", f"{word}1", world=2) == [None, None]
    assert of_files(f"{word}0", f"{word}1", votes={f"{word}1": 1}) == [0, 1]  # but a file says so itself


def test_a_word_that_says_nothing_needs_the_size_of_the_job() -> None:
    assert of_files("go.0", "go.1") == [None, None]
    assert of_files("go.0", "go.1", world=2) == [0, 1]
    assert of_files("go.0", "go.1", world=3) == [None, None]
    assert of_files("go.0", "go.1", votes={"go.0": 0}) == [0, 1]


def test_what_a_file_says_otherwise_decides() -> None:
    assert of_files("rank0", "rank1", votes={"rank0": 1}) == [None, None]
    assert of_files("rank3", "rank5", votes={"rank3": 3}) == [None, None]
    assert of_files("rank3", "rank5", votes={"rank3": 3, "rank5": 5}) == [3, 5]
    assert of_files("rank0", "rank1", world=1) == [None, None]


def test_one_file_for_each_number() -> None:
    assert of_files("rank0", "rank00", "rank1") == [None, None, None]
    assert of_files("rank123456", "rank0") == [None, None]


def test_two_numbers_that_disagree_name_nobody() -> None:
    assert of_files("rank0.p1", "rank1.p0") == [None, None]
    assert of_files("rank0.p0", "rank1.p1") == [0, 1]
    assert of_files("node0.rank0", "node0.rank1") == [0, 1]


def test_only_logs_in_which_ranks_speak() -> None:
    assert of_files("rank0", "rank1", kind="kernel") == [None, None]
    assert of_files("rank0", "rank1", kind="json-lines") == [0, 1]


def test_writers_of_a_common_log() -> None:
    def of(names: tuple[str, ...], world: int | None = None, said: dict[str, int] | None = None) -> dict[str, int]:
        votes = {n: Counter({(said or {})[n]: 1}) if n in (said or {}) else Counter[int]() for n in names}
        return numbering.of_names(votes, world)

    assert of(("pod-0", "pod-1"), 2) == {"pod-0": 0, "pod-1": 1}
    assert of(("pod-0", "pod-1"), 8) == {}
    assert of(("pod-0", "pod-1")) == {}
    assert of(("pod-0", "pod-1"), None, {"pod-1": 1}) == {"pod-0": 0, "pod-1": 1}
    assert of(("rank-0", "rank-1")) == {"rank-0": 0, "rank-1": 1}


def test_what_lines_say_of_their_own_rank() -> None:
    stems = {"a.log": "a"}
    own = [event(file="a.log", kind=k, rank=1) for k in ("identity", "line", "progress", "finished", "exception")]
    worker = event(file="a.log", kind="line", fields={"said_worker": 1})
    others = [
        event(file="a.log", kind="pattern", rank=2),
        event(file="a.log", kind="line", rank=2, reported_by="agent"),
        event(file="a.log", kind="line", rank=2, quoted=True),
        event(file="b.log", kind="line", rank=2),
        event(file="a.log", kind="line"),
    ]
    assert numbering.votes_of([*own, worker, *others], stems) == {"a": Counter({1: 6})}


# ── tracebacks without a name ────────────────────────────────────────────────────────────────────────────────────────


def raised(line: int, text: str = "ValueError: odd", rank: int | None = None, **more: Any) -> Event:
    return event(text, "console", line, "exception", rank=rank, **more)


def ends(**codes: int) -> list[Event]:
    return [event(kind="exit", rank=int(k[1:]), exitcode=c, file="agent") for k, c in codes.items()]


def whose(*events: Event) -> dict[int | None, int]:
    found = failures.owners(events, lambda e: (e.rank, None), library(LOST))
    return {line: rank for (_, line), rank in found.items()}


def test_the_only_rank_that_failed_by_itself_said_what_nobody_else_can_have_said() -> None:
    assert whose(raised(5), *ends(r0=-15, r1=1)) == {5: 1}
    assert whose(raised(5)) == {}
    assert whose(raised(5), *ends(r0=1, r1=1)) == {}
    assert whose(raised(5), raised(9), *ends(r0=-15, r1=1)) == {5: 1, 9: 1}


def test_where_as_many_failed_as_say_the_same_each_has_one() -> None:
    assert whose(raised(5), raised(9), *ends(r0=1, r1=1)) == {5: 0, 9: 1}
    assert whose(raised(5), raised(9, "KeyError: x"), *ends(r0=1, r1=1)) == {}


def test_who_spoke_under_its_own_name_is_another() -> None:
    assert whose(raised(5), raised(7, "KeyError: x", rank=0), *ends(r0=1, r1=1)) == {5: 1}


def lost(rank: int, line: int) -> list[Event]:
    said = event("reset", "console", line, pattern="lost", rank=rank)
    return [said, raised(line, "reset", rank=rank)]


def test_where_all_others_complain_of_a_peer_the_one_that_does_not_is_the_peer() -> None:
    assert whose(raised(5), *lost(0, 7), *ends(r0=-6, r1=-6)) == {5: 1}
    assert whose(raised(5), *ends(r1=-6)) == {}
    assert whose(raised(5), *ends(r0=-6, r1=-6)) == {}
    spoke = raised(3, "KeyError: x", rank=1)
    assert whose(raised(5), spoke, *lost(0, 7), *ends(r0=-6, r1=-6)) == {}


def test_a_complaint_of_a_peer_without_a_name_is_no_orphan() -> None:
    nameless = [event("reset", "console", 7, pattern="lost"), raised(7, "reset")]
    assert whose(*nameless, *ends(r0=-15, r1=1)) == {}


def test_what_a_launcher_quotes_or_wraps_was_not_raised_here() -> None:
    code = ends(r0=-15, r1=1)
    assert whose(raised(5, reported_by="agent"), *code) == {}
    assert whose(raised(5, wrapper=True), *code) == {}
    assert whose(raised(5, "  ValueError: odd", source_kind="agent"), *code) == {}
    assert whose(raised(5, "ValueError: odd", source_kind="agent"), *code) == {5: 1}


def test_several_lives_have_several_lists() -> None:
    two = [e._replace(attempt=n) for n, e in enumerate(ends(r0=-15, r1=1))]
    assert whose(raised(5), *two) == {}


LONG = "the tokenizer could not decode byte 17"


def test_what_a_rank_says_later_in_its_own_name_it_said_before() -> None:
    orphan = raised(5, f"ValueError: {LONG}", message=LONG)
    echo = event(f"[rank3] watchdog: {LONG}", "console", 9, "line", rank=3)
    assert whose(orphan, echo) == {5: 3}
    assert whose(orphan, echo, echo._replace(rank=2)) == {}
    assert whose(orphan, echo._replace(rank=None)) == {}
    short = raised(5, "ValueError: odd", message="odd")
    assert whose(short, event("[rank3] odd", "console", 9, "line", rank=3)) == {}
    other = raised(7)
    assert whose(orphan, other, echo, *ends(r3=1, r1=1)) == {5: 3, 7: 1}
