"""What follows from trouble that the same rank had before, or that another rank had first."""

from __future__ import annotations

from typing import Any

import pytest

from claims import case, claim, event, parts, pattern
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.rules import aftermath
from postmortem.diagnose.rules.view import Rule, View

LOST = pattern("lost", "peer-lost", role="symptom")
RAISED = pattern()


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
    assert fallen(aftermath.peers_lost_before, of_rank(RAISED, 5), of_rank(LOST, 9)) == {}
    assert fallen(aftermath.peers_lost_before, of_rank(RAISED, 5), of_rank(LOST, 5)) == {}


def test_of_a_loss_that_is_a_cause_itself_a_hang_does_not_follow() -> None:
    cause = of_rank(pattern("unreachable", "network"), 5)
    assert fallen(aftermath.peers_lost_before, cause, of_rank(pattern("waits", "hang"), 9)) == {}
    assert fallen(aftermath.peers_lost_before, cause, of_rank(RAISED, 9)) == {1: "symptom"}
