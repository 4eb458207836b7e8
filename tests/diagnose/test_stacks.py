"""Stacks side by side: alike ones are one group, and the odd group stands first; and which collective
the ranks were stuck in, and how far each had come: what lines tell, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from claims import case, event
from conftest import SAMPLES, solved, table
from postmortem.analyze import analyze
from postmortem.model import Event
from postmortem.report import summary
from postmortem.say.evidence import stacks

LOADER = ("torch/utils/data/dataloader.py", 725, "__next__")
REDUCE = ("/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d.py", 90, "all_reduce")


def stack(rank: int | None, line: int, *libraries: tuple[str, int, str], **more: Any) -> Event:
    frames = (*libraries, ("train.py", line, "main"), ("/home/x/job/run/train.py", 46, "<module>"))
    own = (*(False for _ in libraries), True, True)
    fields = {"frames": frames, "own": own, "code": f"train.py:{line}", "tool": "py-spy", **more}
    return event("Thread 1", f"r{rank}.txt", 4, "stack", rank=rank, fields=fields)


def test_all_stacks_are_used_and_the_odd_one_comes_first() -> None:
    """32 dumps were given and the page showed one."""
    waiting = [stack(r, 43, REDUCE, collective="all_reduce") for r in range(32) if r != 7]
    rows = stacks(case(*waiting, stack(7, 39, LOADER), ranks=range(32)), [])
    assert [(len(row["ranks"]), row["code"], row["collective"]) for row in rows] == [
        (1, "train.py:39", None),
        (31, "train.py:43", "all_reduce"),
    ]
    assert rows[0]["ranks"] == [7] and rows[0]["how"] == "py-spy"


def test_tracebacks_of_time_outs_are_in_for_ranks_that_no_rank_looked_at() -> None:
    """A traceback names the outermost frame first."""

    def raised(rank: int, line: int) -> Event:
        frames = (("train.py", 46, "<module>"), ("train.py", line, "main"), REDUCE)
        fields = {"frames": frames, "own": (True, True, False), "code": f"train.py:{line}", "collective": "barrier"}
        return event("RuntimeError: timed out", f"r{rank}.log", 9, "exception", rank=rank, fields=fields)

    rows = stacks(case(raised(0, 24), raised(1, 30), ranks=(0, 1)), [])
    assert [(row["how"], row["frames"][1]["line"]) for row in rows] == [("traceback", 24), ("traceback", 30)]
    assert stacks(case(raised(0, 24), ranks=(0, 1)), []) == []  # one traceback is the evidence itself
    mixed = stacks(case(stack(0, 39), raised(0, 24), raised(1, 30), ranks=(0, 1)), [])
    assert [(row["ranks"], row["how"]) for row in mixed] == [([0], "py-spy"), ([1], "traceback")]


def test_the_flight_recorder_states_where_a_rank_waits_and_not_where_it_had_been() -> None:
    """Of rank 2 the last collective is done: the frames tell where it was then, not where it is."""

    def dump(rank: int, line: int, *pending: object) -> Event:
        fields = {**stack(rank, line, REDUCE).fields, "pending": pending}
        return event("last enqueued", f"dump{rank}", None, "recorder", rank=rank, fields=fields | {"tool": None})

    seen = case(dump(0, 24, "all_reduce 23"), dump(1, 24, "all_reduce 23"), dump(2, 9), stack(2, 30), ranks=(0, 1, 2))
    rows = stacks(seen, [2])
    assert [(row["ranks"], row["how"], row["code"]) for row in rows] == [
        ([2], "py-spy", "train.py:30"),
        ([0, 1], "flight recorder", "train.py:24"),
    ]
    assert stacks(case(dump(0, 24, "x"), dump(2, 9), ranks=(0, 2)), []) == []


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
