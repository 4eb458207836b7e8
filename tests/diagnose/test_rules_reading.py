"""What a line is: quoted, raised in a handler, a request to stop, or a peer's silence in other words; and what follows
from trouble that the same rank had before, or that another rank had first."""

from __future__ import annotations

from typing import Any

import pytest

from claims import NOON, case, claim, event, parts, pattern
from conftest import table
from postmortem.diagnose import topics
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.rules import aftermath, reading
from postmortem.diagnose.rules.view import Rule, View

RAISED = pattern(generic=True)
CRASH = pattern("crashed", "native-crash")


def reduced(rule: Rule, *claims: Claim) -> list[tuple[int, str]]:
    return list(parts(rule(View(case(), claims))).items())


def raised(type: str = "ValueError", **fields: Any) -> Claim:
    return claim(fields.pop("of", RAISED), event(fields={"type": type, **fields}))


def test_a_quoted_line_is_about_another_place() -> None:
    assert reduced(reading.quoted, raised(quoted=True)) == [(0, "context")]
    assert reduced(reading.quoted, claim(RAISED, event(quoted=True), role="confirms")) == [(0, "context")]
    assert reduced(reading.quoted, raised(), claim(RAISED, event(quoted=True), role="symptom")) == []


@pytest.mark.parametrize("type, line", table("rules_reading")["exceptions"])
def test_an_exception_of_the_collective_library_is_a_peers_silence(type: str, line: str) -> None:
    found = topics.read(raised(type, line=line, of=pattern(generic=True, topic="own")))
    assert found.role == "symptom" and found.of("others")
    assert topics.read(raised(type, line=line, of=pattern())).role == "cause"


@pytest.mark.parametrize("fields", [{"terminate": "c10::DistBackendError"}, {"what": "[Rank 1] Watchdog caught …"}])
def test_an_abort_on_an_exception_of_the_collective_library_repeats_it(fields: dict[str, str]) -> None:
    crash = claim(CRASH, event(fields=fields))
    assert reduced(reading.abort_of_a_collective, crash) == [(0, "symptom")]
    assert reduced(reading.abort_of_a_collective, claim(RAISED, event(fields=fields))) == []
    assert reduced(reading.abort_of_a_collective, claim(CRASH, event(terminate="std::out_of_range"))) == []


# ── what only opens a message ────────────────────────────────────────────────────────────────────────────────────────


def opens(first: Claim, *others: Claim) -> list[tuple[int, str]]:
    return reduced(reading.opens_a_message, first, *others)


def claim_at(text: str, line: int, of: Any = CRASH, file: str = "a.log", rank: int | None = 0, **fields: Any) -> Claim:
    role = fields.pop("role", of.role)
    return claim(of, event(text, file, line, rank=rank, fields=fields), role=role)


HEAD = claim_at("terminate called after throwing an instance of 'std::x'", 5)


def test_an_uncaught_exception_gives_way_to_its_what() -> None:
    more = "  what():  CUDA error"
    assert opens(HEAD, claim_at(more, 6)) == [(0, "symptom")]
    assert opens(HEAD, claim_at(more, 5 + reading.FAR)) == [(0, "symptom")]
    for other in (
        claim_at(more, 6 + reading.FAR),
        claim_at(more, 5),
        claim_at(more, 4),
        claim_at(more, 6, file="b.log"),
        claim_at(more, 6, rank=1),
        claim_at(more, 6, role="symptom"),
        claim_at(more, 6, role="context"),
        claim_at("another line", 6),
    ):
        assert opens(HEAD, other) == []


def test_a_library_that_only_carries_what_a_rank_raised() -> None:
    head = claim_at("CheckpointException ranks: {1}", 5)
    parent = {"reported_by": "parent"}
    assert opens(head, claim_at("ValueError", 9, of=pattern(), **parent)) == [(0, "symptom")]
    assert opens(head, claim_at("ValueError", 9, of=RAISED, **parent)) == []
    assert opens(head, claim_at("ValueError", 9, of=pattern())) == []


NAN = pattern("nan", "numerics", survived_by=("finite-loss",))


def test_a_nan_that_another_rank_had_before_came_with_the_gradients() -> None:
    """`loss: nan` at step 7 on one rank, and on all others at step 8."""

    def nan(**more: Any) -> Claim:
        return claim(NAN, event("loss: nan", **more))

    assert reduced(aftermath.nan_that_spread, nan(step=7), nan(step=8)) == [(1, "symptom")]
    assert reduced(aftermath.nan_that_spread, nan(step=7, at=NOON + 9), nan(step=7, at=NOON)) == []
    assert reduced(aftermath.nan_that_spread, nan(at=NOON), nan(at=NOON + 0.1), nan(at=NOON + 0.3)) == [(2, "symptom")]
    assert reduced(aftermath.nan_that_spread, nan(at=NOON), nan()) == [(1, "symptom")]
    assert reduced(aftermath.nan_that_spread, nan(), nan()) == []


LOST = pattern("lost", "peer-lost", role="symptom")
DIED = pattern()


def fallen(rule: Rule, *claims: Claim) -> dict[int, str]:
    return parts(rule(View(case(), claims)))


def of_rank(p: Any, line: int, rank: int = 1, **more: Any) -> Claim:
    return claim(p, event(file=f"rank{rank}.log", line=line, rank=rank, fields=more), ranks=(rank,))


@pytest.mark.parametrize(
    "category", ["native-crash", "python-exception", "environment", "hang", "rendezvous", "network"]
)
def test_a_rank_that_lost_its_peers_and_then_dies_is_a_victim(category: str) -> None:
    dies = of_rank(pattern("dies", category), 9)
    assert fallen(aftermath.peers_lost_before, of_rank(LOST, 5), dies) == {1: "symptom"}


def test_a_rank_that_dies_and_then_loses_its_peers_is_none() -> None:
    assert fallen(aftermath.peers_lost_before, of_rank(DIED, 5), of_rank(LOST, 9)) == {}
    assert fallen(aftermath.peers_lost_before, of_rank(DIED, 5), of_rank(LOST, 5)) == {}


def test_the_loss_of_a_service_that_is_no_rank_makes_no_victim() -> None:
    """`raise RuntimeError("the feature store is gone") from error`, in a line of the program's own."""
    for file, chained, left in (
        ("features.py", True, {}),
        ("features.py", False, {1: "symptom"}),
        ("/opt/lib/torch/distributed/distributed_c10d.py", True, {1: "symptom"}),
    ):
        lost = of_rank(LOST, 5, chained=chained, frames=((file, 3, "get"),))
        assert fallen(aftermath.peers_lost_before, lost, of_rank(DIED, 9)) == left, (file, chained)


def test_a_collective_that_a_loss_aborts_may_ask_for_any_amount_of_memory() -> None:
    full = pattern("full", "gpu-oom")
    loss = of_rank(pattern("unreachable", "network"), 5)
    assert fallen(aftermath.peers_lost_before, loss, of_rank(full, 9, collective="all_gather_object")) == {1: "symptom"}
    assert fallen(aftermath.peers_lost_before, loss, of_rank(full, 9)) == {}


def test_of_a_loss_that_is_a_cause_itself_a_hang_does_not_follow() -> None:
    cause = of_rank(pattern("unreachable", "network"), 5)
    assert fallen(aftermath.peers_lost_before, cause, of_rank(pattern("waits", "hang"), 9)) == {}
    assert fallen(aftermath.peers_lost_before, cause, of_rank(DIED, 9)) == {1: "symptom"}
