"""Which collective the ranks were stuck in, and how far each had come: what lines tell, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import SAMPLES, solved, table
from postmortem.analyze import analyze
from postmortem.report import summary

STAMP = "E1120 10:10:{at:02d}.000000000"
TIMED_OUT = (
    "[rank{r}]:[{stamp} ProcessGroupNCCL.cpp:629] [Rank {r}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={n}, NumelOut={n}, Timeout(ms)=600000) ran for 600021 "
    "milliseconds before timing out.\n"
)
STATUS = (
    "[rank{r}]:[{stamp} ProcessGroupNCCL.cpp:2168] [PG ID {pg} Rank {r}]  failure detected by watchdog at work "
    "sequence id: {seq} PG status: last enqueued work: {last}, last completed work: {done}\n"
)


def watchdog(r: int, seq: int, op: str = "ALLREDUCE", n: int = 1048576, pg: str = "0 PG GUID 0(default_pg)") -> str:
    """What a rank's NCCL watchdog prints: it waits in `seq`, and had completed the one before."""
    stamp = STAMP.format(at=r)
    return TIMED_OUT.format(r=r, stamp=stamp, seq=seq, op=op, n=n) + STATUS.format(
        r=r, stamp=stamp, seq=seq, last=seq, done=seq - 1, pg=pg
    )  # fmt: skip


def analyzed(folder: Path, world: int, *said: str) -> dict[str, Any]:
    starts = "".join(f"[rank{r}]: rank {r} of {world} starts\n" for r in range(world))
    (folder / "job.log").write_text(starts + "".join(said))
    return analyze([str(folder)]).document


def ranks(document: dict[str, Any]) -> dict[int, str | None]:
    return {row["rank"]: row["last_collective"] for row in document["ranks"]}


def test_three_ranks_wait_in_a_collective_that_the_fourth_never_enqueued(tmp_path: Path) -> None:
    """Rank 2 is a collective behind: its own watchdog says so."""
    behind = STATUS.format(r=2, stamp=STAMP.format(at=2), pg="0 PG GUID 0(default_pg)", seq=8119, last=8119, done=8118)
    document = analyzed(tmp_path, 4, *(watchdog(r, 8120) for r in (0, 1, 3)), behind)
    assert document["verdict"]["collective"] == table("collective")["waits"]
    assert summary.collective(document) == (
        "ALLREDUCE #8120 in the default group, 1,048,576 elements: 3 of 4 ranks entered, rank 2 had completed #8118; "
        "timed out after 600 s"
    )
    assert ranks(document) == {r: f"{'collective #8119' if r == 2 else 'ALLREDUCE #8120'}" for r in range(4)}


def test_another_operation_under_the_same_number_is_no_entry(tmp_path: Path) -> None:
    document = analyzed(tmp_path, 3, watchdog(0, 7), watchdog(1, 7, "BROADCAST", 16), watchdog(2, 7))
    row = document["verdict"]["collective"]
    assert (row["op"], row["entered"], row["missing"]) == ("ALLREDUCE", [0, 2], [])
    assert row["elsewhere"] == {"1": "BROADCAST #7"}
    assert "2 of 3 ranks entered, rank 1 was in BROADCAST #7;" in summary.collective(document)


def test_of_a_subgroup_no_rank_knows_the_size(tmp_path: Path) -> None:
    """Two of eight ranks wait in a group of tensor parallelism; the others are not of it, for all that is known."""
    pg = "3 PG GUID 3(mesh_tp)"
    document = analyzed(tmp_path, 8, *(watchdog(r, 41, pg=pg) for r in (4, 5)))
    row = document["verdict"]["collective"]
    assert (row["group"], row["size"], row["entered"], row["missing"]) == ("3(mesh_tp)", None, [4, 5], [])
    assert ranks(document)[4] == "ALLREDUCE #41 of group 3(mesh_tp)" and ranks(document)[0] is None


@pytest.mark.parametrize(("sample", "said"), table("collective")["samples"])
def test_what_the_samples_were_stuck_in(sample: str, said: str) -> None:
    assert summary.collective(solved(SAMPLES / sample).document) == said
