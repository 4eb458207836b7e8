"""What torch itself compared: fingerprints of collectives and the desync report."""

from __future__ import annotations

from typing import Any

from claims import case, event, pattern
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive.hangs import stated
from postmortem.diagnose.derive.hangs.views import scene
from postmortem.model import Event

ANNOUNCED = pattern("announced", "collective-mismatch", role="symptom", tells=("announces",))
LAGGARDS = pattern("laggards", "hang", role="symptom", tells=("laggards",))
Found = tuple[str, tuple[int, ...]] | None


def print_of(op: str, shape: str = "16") -> str:
    return f"OpType={op}, TensorShape=[{shape}], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(…)"


def told(rank: int, op: str = "ALLREDUCE", peer: int | None = None, shape: str = "16") -> Event:
    """ProcessGroupWrapper.cpp writes its own fingerprint, and the first peer's that differs."""
    said = f"Rank {rank} is running collective: CollectiveFingerPrint({print_of(op, shape)}"
    said += f"), but Rank {peer} is running collective: …" if peer is not None else ""
    return event(said, f"rank{rank}.log", rank=rank, pattern="announced")


def claims(*events: Event, ranks: int = 4) -> Claim | None:
    seen = case(*events, ranks=range(ranks), patterns=[ANNOUNCED, LAGGARDS])
    return stated.fingerprints(scene(seen, []))


def found(*events: Event, **more: Any) -> Found:
    claim = claims(*events, **more)
    return None if claim is None else (claim.pattern.id, claim.ranks)


def differ(*ranks: int) -> Found:
    return ("ranks-in-different-collectives", ranks)


def test_the_rank_in_another_collective_than_most_is_accused() -> None:
    others = [told(r, peer=2) for r in (0, 1, 3)]
    assert found(*others, told(2, "BROADCAST", peer=0)) == differ(2)
    claim = claims(*others, told(2, "BROADCAST", peer=0))
    assert claim is not None
    assert claim.because == "ranks 0, 1 and 3 had OpType=ALLREDUCE; rank 2 had OpType=BROADCAST"
    assert [e.rank for e in claim.events][0] == 2


def test_what_a_peer_is_said_to_run_counts_where_it_says_nothing_itself() -> None:
    assert found(*[told(r, peer=2) for r in (0, 1, 3)]) == differ(2)
    assert found(told(0, peer=2), told(1, peer=2)) == differ(2)


def test_of_two_who_differ_neither_is_known_to_be_right() -> None:
    assert found(told(0, peer=1), told(1, "BROADCAST", peer=0), ranks=2) == differ(0, 1)
    assert found(told(0, peer=1), ranks=2) is None


def test_one_ranks_word_of_one_peer_accuses_nobody_and_of_none_says_nothing() -> None:
    assert found(told(0, peer=1)) is None
    assert found(told(0)) is None
    assert found() is None


def test_whom_all_who_speak_name_is_odd_though_they_differ_from_each_other() -> None:
    assert found(told(0, peer=3), told(1, "BROADCAST", peer=3)) == differ(3)
    assert found(told(0, peer=3), told(1, "BROADCAST", peer=0)) == differ(0, 1)


def test_where_all_that_are_left_to_read_agree_nobody_is_named() -> None:
    """torch prints a fingerprint only where two differ: somebody did, whose line is not here."""
    assert found(*[told(r) for r in range(4)]) == differ()


def test_a_size_in_which_ranks_differ_is_told() -> None:
    claim = claims(*[told(r) for r in (0, 1, 2)], told(3, shape="32"))
    assert claim is not None and claim.ranks == (3,)
    assert "rank 3 had TensorShape=[32]" in claim.because


def lagging(ranks: str, rank: int = 0) -> Found:
    said = event(
        "[2] joined but [..] did not",
        f"rank{rank}.log",
        rank=rank,
        pattern="laggards",
        fields={"ranks": ranks},
    )
    seen = case(said, ranks=range(4), patterns=[ANNOUNCED, LAGGARDS])
    claim = stated.laggards(scene(seen, []))
    return None if claim is None else (claim.pattern.id, claim.ranks)


def test_the_desync_report_names_who_did_not_come() -> None:
    assert lagging("2, 3") == ("rank-never-arrived", (2, 3))
    assert lagging("0, 3") is None  # it is itself among them
    assert lagging("") is None
