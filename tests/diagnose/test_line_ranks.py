"""Whose a file or a traceback is that names nobody: by the number in its name, or by what nobody else can have said."""

from __future__ import annotations

from collections import Counter
from typing import Any

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


def test_two_numbers_that_disagree_name_no_rank() -> None:
    assert of_files("rank0.p1", "rank1.p0") == [None, None]
    assert of_files("rank0.p0", "rank1.p1") == [0, 1]
    assert of_files("node0.rank0", "node0.rank1") == [0, 1]


# ── tracebacks without a name ────────────────────────────────────────────────────────────────────────────────────────


def raised(line: int, text: str = "ValueError: odd", rank: int | None = None, **more: Any) -> Event:
    return event(text, "console", line, "exception", rank=rank, **more)


def ends(**codes: int) -> list[Event]:
    return [event(kind="exit", rank=int(k[1:]), exitcode=c, file="agent") for k, c in codes.items()]


def whose(*events: Event) -> dict[int | None, int]:
    found = failures.owners(events, lambda e: (e.rank, None), library(LOST))
    return {line: rank for (_, line), rank in found.items()}


def test_the_only_rank_that_failed_by_itself_owns_the_line_of_no_other() -> None:
    assert whose(raised(5), *ends(r0=-15, r1=1)) == {5: 1}
    assert whose(raised(5)) == {}
    assert whose(raised(5), *ends(r0=1, r1=1)) == {}
    assert whose(raised(5), raised(9), *ends(r0=-15, r1=1)) == {5: 1, 9: 1}


def test_where_as_many_failed_as_print_the_same_each_has_one() -> None:
    assert whose(raised(5), raised(9), *ends(r0=1, r1=1)) == {5: 0, 9: 1}
    assert whose(raised(5), raised(9, "KeyError: x"), *ends(r0=1, r1=1)) == {}


def test_a_rank_that_its_own_line_names_is_another() -> None:
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


def test_several_attempts_have_several_lists() -> None:
    two = [e._replace(attempt=n) for n, e in enumerate(ends(r0=-15, r1=1))]
    assert whose(raised(5), *two) == {}


LONG = "the tokenizer could not decode byte 17"


def test_a_later_line_names_the_rank_of_earlier_ones() -> None:
    orphan = raised(5, f"ValueError: {LONG}", message=LONG)
    echo = event(f"[rank3] watchdog: {LONG}", "console", 9, "line", rank=3)
    assert whose(orphan, echo) == {5: 3}
    assert whose(orphan, echo, echo._replace(rank=2)) == {}
    assert whose(orphan, echo._replace(rank=None)) == {}
    short = raised(5, "ValueError: odd", message="odd")
    assert whose(short, event("[rank3] odd", "console", 9, "line", rank=3)) == {}
    other = raised(7)
    assert whose(orphan, other, echo, *ends(r3=1, r1=1)) == {5: 3, 7: 1}
