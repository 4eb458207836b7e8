"""Which rank, host or GPU a line speaks of, and one name for one line."""

from __future__ import annotations

from typing import Any

import pytest

from claims import case, event, pattern
from conftest import table
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.observe import numbers, observe
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
