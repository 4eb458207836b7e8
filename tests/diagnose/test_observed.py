"""Which rank, host or GPU a line speaks of, and one name for one line. One event in several files is
one; a line that stands twice in one file happened twice."""

from __future__ import annotations

import math
from typing import Any

import pytest

from claims import case, event, pattern, source
from conftest import table
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.claims.observed import numbers, observe
from postmortem.diagnose.who.copies import address_quality, merge
from postmortem.diagnose.who.evidence import Registry
from postmortem.model import Event, Pattern, ReadsAs


def seen(p: Pattern, e: Event, **known: Any) -> Claim:
    """The one claim that this line makes."""
    patterns = [p, *known.pop("patterns", ())]
    (one,) = observe(case(e._replace(pattern=p.id), patterns=patterns, **known))
    return one


# ── whom a line speaks of ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_bus_id_may_are_up_to_three_lines_above() -> None:
    xid = pattern("xid", "gpu-hardware", entity="gpu")
    above = ("NVRM: GPU at PCI:0000:48:00", "NVRM: a", "NVRM: b", "the line")
    assert seen(xid, event(context=above, before=3)).gpus == ("0000:48:00",)
    far = ("NVRM: GPU at PCI:0000:48:00", "NVRM: a", "NVRM: b", "NVRM: c", "the line")
    assert seen(xid, event(context=far, before=4)).gpus == ()
    assert seen(xid, event(context=("pcie 0000:48:00", "the line"), before=1)).gpus == ()


def test_the_kernels_line_on_a_kill_is_about_the_task_whose_cgroup_another_of_its_lines_names() -> None:
    """Slurm gives each task a cgroup of its own; the line with `Killed process` does not have it."""
    kill = pattern("kill", "host-oom", entity="pid")
    lines = [event(text, "dmesg", n, pattern=kill.id, speaker="kernel", pid=pid) for n, (text, pid) in enumerate((
        ("oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/slurm/uid_0/job_7/step_0/task_2,task=python3,pid=77", 77),
        ("Memory cgroup out of memory: Killed process 77 (python3)", 77),
        ("Memory cgroup out of memory: Killed process 78 (python3)", 78),
    ))]  # fmt: skip
    lines = [e._replace(fields={"pid": e.pid}) for e in lines]
    assert [c.ranks for c in observe(case(*lines, ranks=range(4), patterns=[kill]))] == [(2,), (2,), ()]


@pytest.mark.parametrize("peer, hosts", table("observe")["peers"])
def test_who_complains_is_not_who_is_complained_of(peer: str, hosts: list[str]) -> None:
    left = pattern("left", "network", entity="peer")
    assert seen(left, event(host="node-a", fields={"peer": peer})).hosts == tuple(hosts)
    assert seen(left, event(host="node-a", fields={"peer": peer, "host": "node-x"})).hosts == ("node-x",)


def test_numbers_are_bounded() -> None:
    assert numbers("0-99999999") == tuple(range(4096))
    assert len(numbers(" ".join(f"{n * 10000}-{n * 10000 + 5000}" for n in range(3)))) == 4096
    assert numbers("3-1") == ()
    assert numbers("2, 2 and 1") == (2, 1)


# ── what a line means under the versions at hand ─────────────────────────────────────────────────────────────────────

OLD = pattern("old-meaning", "shared-memory")
BUS_ERROR = pattern("bus-error", "native-crash", reads_as=ReadsAs("old-meaning", {"torch": "2.5"}))


@pytest.mark.parametrize("torch, means", table("observe")["versions"])
def test_a_line_reads_as_another_under_older_versions(torch: str | None, means: str) -> None:
    assert seen(BUS_ERROR, event(), torch=torch, patterns=[OLD]).pattern.id == means


# ── one line, one name ───────────────────────────────────────────────────────────────────────────────────────────────

GENERIC = pattern("raised", generic=True)
NAMED = pattern("out-of-memory", "gpu-oom")
CONTEXT = pattern("weather", None, role="context")


def names(*events: Event) -> list[str]:
    return [c.pattern.id for c in observe(case(*events, patterns=[GENERIC, NAMED, CONTEXT]))]


def raised(line: int = 20, **more: Any) -> Event:
    return event("RuntimeError: odd", more.pop("file", "rank1.log"), line, pattern="raised", rank=1, **more)


def named(line: int | None = 20, **more: Any) -> Event:
    more = {"rank": 1} | more
    return event(
        more.pop("text", "RuntimeError: odd"), more.pop("file", "rank1.log"), line, pattern="out-of-memory", **more
    )


def test_nor_is_an_exception_whose_message_has_a_name_in_a_further_line() -> None:
    assert names(raised(), named(25, text="further")) == ["out-of-memory"]
    assert names(raised(), named(60, text="further")) == ["out-of-memory"]
    assert names(raised(), named(61, text="further")) == ["raised", "out-of-memory"]
    assert names(raised(opened=15), named(15, text="above")) == ["out-of-memory"]
    assert names(raised(opened=15), named(14, text="above")) == ["raised", "out-of-memory"]


def test_a_wrapper_only_carries_the_failure_of_another() -> None:
    wrapper = raised(wrapper=True, type="torch.elastic.ChildFailedError(…)")
    (one,) = observe(case(wrapper, patterns=[GENERIC]))
    assert one.role == "symptom"
    assert one.because == "ChildFailedError only reports another process's failure"
    assert names(wrapper, named()) == ["out-of-memory"]


# ── claims of one pattern on one entity ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["exception", "exit", "crash", "stack", "cut"])
def test_behind_the_next_traceback_or_report_no_message_goes_on(kind: str) -> None:
    other = event("another", "rank1.log", 22, kind, rank=1)
    assert names(raised(), other, named(25, text="further")) == ["raised", "out-of-memory"]
    assert names(raised(), other._replace(kind="line"), named(25, text="further")) == ["out-of-memory"]


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
