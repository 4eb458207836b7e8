"""What follows from trouble that the same rank had before, or that another rank had first."""

from __future__ import annotations

from typing import Any

import pytest

from claims import NOON, case, claim, event, parts, pattern, steps
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.rules import aftermath
from postmortem.diagnose.rules.view import Rule, View

LOST = pattern("lost", "peer-lost", role="symptom")
RAISED = pattern()
CRASHED = pattern("crashed", "native-crash")
NAN = pattern("nan", "numerics", spreads=True)


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


@pytest.mark.parametrize("category", ["host-oom", "gpu-hardware", "storage", "collective-mismatch"])
def test_what_a_rank_cannot_get_from_its_peers_is_its_own(category: str) -> None:
    assert fallen(aftermath.peers_lost_before, of_rank(LOST, 5), of_rank(pattern("own", category), 9)) == {}


def test_a_rank_that_dies_and_then_loses_its_peers_is_none() -> None:
    assert fallen(aftermath.peers_lost_before, of_rank(RAISED, 5), of_rank(LOST, 9)) == {}
    assert fallen(aftermath.peers_lost_before, of_rank(RAISED, 5), of_rank(LOST, 5)) == {}


def test_what_another_rank_or_another_log_lost_does_not_count() -> None:
    assert fallen(aftermath.peers_lost_before, of_rank(LOST, 5, rank=2), of_rank(RAISED, 9)) == {}
    elsewhere = claim(LOST, event(file="agent.err", line=5, rank=1))
    assert fallen(aftermath.peers_lost_before, elsewhere, of_rank(RAISED, 9)) == {}
    nobody = [claim(p, event(file="a.log", line=line)) for p, line in ((LOST, 5), (RAISED, 9))]
    assert fallen(aftermath.peers_lost_before, *nobody) == {}


def test_what_the_kernel_says_or_what_accuses_nobody_is_no_loss() -> None:
    kernel = claim(LOST, event(file="rank1.log", line=5, rank=1, speaker="kernel"))
    assert fallen(aftermath.peers_lost_before, kernel, of_rank(RAISED, 9)) == {}
    weather = claim(LOST, event(file="rank1.log", line=5, rank=1), role="context")
    assert fallen(aftermath.peers_lost_before, weather, of_rank(RAISED, 9)) == {}


def test_the_first_loss_counts_wherever_it_stands_among_the_claims() -> None:
    late, early = of_rank(LOST, 20), of_rank(LOST, 5)
    assert fallen(aftermath.peers_lost_before, late, early, of_rank(RAISED, 9)) == {2: "symptom"}


def test_of_a_loss_that_is_a_cause_itself_a_hang_does_not_follow() -> None:
    cause = of_rank(pattern("unreachable", "network"), 5)
    assert fallen(aftermath.peers_lost_before, cause, of_rank(pattern("waits", "hang"), 9)) == {}
    assert fallen(aftermath.peers_lost_before, cause, of_rank(RAISED, 9)) == {1: "symptom"}


@pytest.mark.parametrize("signal", ["Aborted", "SIGABRT", "6"])
def test_an_abort_is_the_end_of_what_the_same_process_said(signal: str) -> None:
    abort = of_rank(CRASHED, 9, signal=signal)
    assert fallen(aftermath.abort_after_reason, of_rank(RAISED, 5), abort) == {1: "symptom"}


def test_an_abort_stays_a_cause_without_a_reason() -> None:
    abort = of_rank(CRASHED, 9, signal="Aborted")
    assert fallen(aftermath.abort_after_reason, of_rank(RAISED, 5, rank=2), abort) == {}
    assert fallen(aftermath.abort_after_reason, of_rank(LOST, 5), abort) == {}
    assert fallen(aftermath.abort_after_reason, of_rank(CRASHED, 5), abort) == {}
    kernel = claim(RAISED, event(file="rank1.log", line=5, speaker="kernel"), ranks=(1,))
    assert fallen(aftermath.abort_after_reason, kernel, abort) == {}
    in_one_log = claim(RAISED, event(file="rank1.log", line=5), ranks=(2,))
    assert fallen(aftermath.abort_after_reason, in_one_log, abort) == {}


def test_a_nameless_reason_in_the_same_log_is_one() -> None:
    reason = claim(RAISED, event(file="rank1.log", line=5))
    assert fallen(aftermath.abort_after_reason, reason, of_rank(CRASHED, 9, signal="6")) == {1: "symptom"}


def test_other_signals_are_causes_whatever_was_said() -> None:
    assert fallen(aftermath.abort_after_reason, of_rank(RAISED, 5), of_rank(CRASHED, 9, signal="SIGSEGV")) == {}


def test_a_single_nan_that_goes_away_is_no_failure() -> None:
    def left(*claims: Claim) -> dict[int, str]:
        return parts(aftermath.single_nan(View(case(*steps(1, 5, 6, kind="worked", by="count")), claims)))

    assert left(of_rank(NAN, 5)) == {0: "context"}
    assert left(of_rank(NAN, 5), of_rank(NAN, 5, rank=2)) == {}
    assert left(of_rank(NAN, 5), of_rank(RAISED, 5, rank=2)) == {0: "context"}


def test_a_nan_in_the_last_step_of_a_log_has_not_gone_away() -> None:
    """Thundernet_Pytorch issue 45: one step with a NaN, and warnings of TensorBoard below it."""
    assert fallen(aftermath.single_nan, of_rank(NAN, 5)) == {}


def test_the_rank_whose_nan_has_the_lowest_step_has_it() -> None:
    nans = [of_rank(NAN, 5, rank=rank, step=step) for rank, step in ((0, 12), (1, 11), (2, 12))]
    assert fallen(aftermath.nan_that_spread, *nans) == {0: "symptom", 2: "symptom"}


def test_without_steps_the_first_by_time_has_it_and_those_of_the_same_moment() -> None:
    nans = [claim(NAN, event(rank=r, at=at), ranks=(r,)) for r, at in ((0, 5.0), (1, 5.2), (2, 5.21), (3, None))]
    assert fallen(aftermath.nan_that_spread, *nans) == {2: "symptom", 3: "symptom"}


def test_without_steps_or_times_nobody_is_known_to_be_the_first() -> None:
    assert fallen(aftermath.nan_that_spread, of_rank(NAN, 5), of_rank(NAN, 5, rank=2)) == {}


# ── a node that failed, an import that could be done without ─────────────────────────────────────────────────────────

NODE = pattern("node", "scheduler", entity="host", tells=("node-lost",))


def on(p: Any, host: str | None = None, at: float | None = None, **more: Any) -> Claim:
    role = more.pop("role", p.role)
    return claim(p, event(at=at, **more), hosts=(host,) if host else (), role=role)


def test_what_a_rank_sees_of_a_node_that_fails_is_the_failure_from_inside() -> None:
    for p in (CRASHED, pattern("fault", "gpu-fault")):
        assert fallen(aftermath.node_was_lost, on(NODE, "a"), on(p, "a.cluster")) == {1: "symptom"}
    assert fallen(aftermath.node_was_lost, on(NODE), on(CRASHED, "a")) == {1: "symptom"}
    assert fallen(aftermath.node_was_lost, on(NODE, "a"), on(CRASHED)) == {1: "symptom"}


def test_not_another_nodes_nor_the_kernels_word_nor_long_after() -> None:
    far = aftermath.FAILING_S
    assert fallen(aftermath.node_was_lost, on(NODE, "a"), on(CRASHED, "b")) == {}
    assert fallen(aftermath.node_was_lost, on(NODE, "a"), on(CRASHED, "a", speaker="kernel")) == {}
    assert fallen(aftermath.node_was_lost, on(NODE, "a"), on(RAISED, "a")) == {}
    assert fallen(aftermath.node_was_lost, on(NODE, "a", role="symptom"), on(CRASHED, "a")) == {}
    assert fallen(aftermath.node_was_lost, on(NODE, "a", 0.0), on(CRASHED, "a", far)) == {1: "symptom"}
    assert fallen(aftermath.node_was_lost, on(NODE, "a", 0.0), on(CRASHED, "a", far + 1)) == {}
    assert fallen(aftermath.node_was_lost, on(NODE, "a"), on(CRASHED, "a", far + 1)) == {1: "symptom"}


def imported(line: int = 5, rank: int | None = None, type: str = "ModuleNotFoundError") -> Claim:
    return claim(RAISED, event(file="a.log", line=line, rank=rank, fields={"type": type}))


def later(rank: int, line: int = 9, file: str = "a.log", **more: Any) -> Claim:
    return claim(RAISED, event(file=file, line=line, rank=rank, fields={"excepthook": True} | more), ranks=(rank,))


def optional(*claims: Claim, ranks: tuple[int, ...] = (0, 1)) -> bool:
    return bool(list(aftermath.import_was_optional(View(case(ranks=ranks), claims))))


def test_nobody_died_of_an_import_after_which_every_rank_raises_something_else() -> None:
    assert optional(imported(), later(0), later(1))
    assert optional(imported(type="ImportError"), later(0), later(1))
    assert optional(imported(), later(0, 3), later(0), later(1))


def test_somebody_may_have_where_one_did_not_or_had_before() -> None:
    assert not optional(imported(), later(0))
    assert not optional(imported(), later(0), later(1, 3))
    assert not optional(imported(), later(0), later(1, 5))
    assert not optional(imported(), later(0), later(1, file="b.log"))
    assert not optional(imported(), later(0), later(1, excepthook=False))
    assert not optional(imported(rank=1), later(0), later(1))
    assert not optional(imported(type="ValueError"), later(0), later(1))
    assert not optional(imported(), ranks=())


# ── who stopped the job after a time-out ─────────────────────────────────────────────────────────────────────


def test_who_stops_a_job_after_a_time_out_is_a_messenger() -> None:
    stop = pattern("stop", "external-signal", entity="job", tells=("stop",))
    late = claim(stop, event(file="agent.log", at=NOON + 60, host="a", speaker="launcher"))
    early = claim(stop, event(file="agent.log", at=NOON - 60, host="a", speaker="launcher"))
    hang = pattern("hang", "hang", role="symptom")
    waited = claim(hang, event(at=NOON, host="a", rank=0, speaker="rank"), ranks=(0,))
    rule = aftermath.stopped_after_time_out
    assert fallen(rule, late, waited) == {0: "symptom"}
    assert fallen(rule, early, waited) == {}
    assert fallen(rule, late) == {}
