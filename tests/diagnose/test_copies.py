"""One event in several files is one; a line that stands twice in one file happened twice."""

from __future__ import annotations

import math

from claims import event, source
from postmortem.diagnose.copies import address_quality, merge
from postmortem.diagnose.identity import Registry

SOURCES = {
    s.path: s for s in (source("agent.err", "agent"), source("rank1.log", rank=1), source("console.txt"), source("e.json"))
}  # fmt: skip


def test_a_tee_is_merged_and_the_ranks_own_file_is_its_address() -> None:
    own = event("RuntimeError: odd", "rank1.log", 8, rank=1)
    tee = event("[rank1]: RuntimeError: odd", "agent.err", 40, rank=1)
    assert [e.where for e in merge([tee, own], SOURCES, Registry()).events] == [own.where]


def test_a_line_that_is_twice_in_one_file_happened_twice() -> None:
    twice = [event("RuntimeError: odd", "rank1.log", line, rank=1) for line in (8, 20)]
    tee = [event("RuntimeError: odd", "agent.err", line, rank=1) for line in (30, 50)]
    assert len(merge([*twice, *tee], SOURCES, Registry()).events) == 2


def test_the_same_words_of_two_ranks_are_two_events() -> None:
    both = [event("RuntimeError: odd", "agent.err", 8 + rank, rank=rank) for rank in (0, 1)]
    assert len(merge([*both, event("other", "rank1.log", rank=1)], SOURCES, Registry()).events) == 3


def test_the_same_words_in_two_attempts_are_two_events() -> None:
    lives = [event("RuntimeError: odd", f"rank1.{n}.log", 8, rank=1, attempt=n) for n in (0, 1)]
    assert len(merge(lives, SOURCES, Registry()).events) == 2
    of_none = event("RuntimeError: odd", "agent.err", 40, rank=1)
    assert len(merge([lives[0], of_none], SOURCES, Registry()).events) == 1


def test_the_launchers_quotation_is_a_copy_in_the_same_file() -> None:
    report = event("RuntimeError: odd", "agent.err", 8, rank=1)
    quoted = event("RuntimeError: odd", "agent.err", 40, rank=1, reported_by="agent")
    assert [e.where.line for e in merge([quoted, report], SOURCES, Registry()).events] == [8]


def test_a_copy_has_the_time_of_the_copy_that_knows_it_best() -> None:
    own = event("RuntimeError: odd", "rank1.log", 8, rank=1, at=7.0, at_sigma=3.0)
    tee = event("RuntimeError: odd", "agent.err", 40, rank=1, at=5.0, at_sigma=0.1)
    (one,) = merge([own, tee], SOURCES, Registry()).events
    assert (one.where, one.at, one.at_sigma) == (own.where, 5.0, 0.1)
    undated = own._replace(at=None, at_sigma=0.0)
    (one,) = merge([undated, tee], SOURCES, Registry()).events
    assert (one.where, one.at) == (own.where, 5.0)


def test_addresses_own_file_console_launcher_document() -> None:
    own, console = event(file="rank1.log", line=90), event(file="console.txt", line=2)
    reported, block = event(file="rank1.log", reported_by="agent"), event(file="agent.err", block="1")
    document = event(file="e.json", line=None)
    quality = [address_quality(e, SOURCES)[0] for e in (own, console, reported, block, document)]
    assert quality == [0, 1, 2, 2, 3]


def test_a_line_without_a_stamp_has_the_launchers_time_and_its_neighbours_lie_between() -> None:
    """The timeline's lines are changed as the verdict's are: a page that dates one line twice is not believed."""
    step = event("step 8", "rank1.log", 7, rank=1, clock="naive", at=100.0, at_sigma=0.001)
    head = event("Traceback", "rank1.log", 8, rank=1, clock="none", at=100.0, at_sigma=60.0)
    own = event("RuntimeError: odd", "rank1.log", 12, rank=1, clock="none", at=100.0, at_sigma=60.0)
    report = event("RuntimeError: odd", "agent.err", 40, rank=1, clock="naive", at=104.0, at_sigma=0.5)
    merged = merge([step, head, own, report], SOURCES, Registry())
    assert merged.times == {("rank1.log", 12): (104.0, 0.5), ("rank1.log", 8): (102.0, math.hypot(2.0, 0.5))}
    assert [(e.where.line, e.at) for e in merged.events] == [(7, 100.0), (8, 102.0), (12, 104.0)]


def test_a_time_that_the_lines_around_it_contradict_belongs_to_another() -> None:
    """Each node's launcher writes `Root Cause (first observed failure):`, at its own time."""
    heading = "Root Cause (first observed failure):"
    here = [
        event("a", "node-x.out", 1, clock="naive", at=500.0, at_sigma=0.5),
        event(heading, "node-x.out", 2, clock="none", at=500.0, at_sigma=60.0),
    ]
    there = event(heading, "node-y.out", 9, clock="naive", at=480.0, at_sigma=0.5)
    assert merge([*here, there], SOURCES, Registry()).times == {}
