"""Stacks side by side: alike ones are one group, and the odd group stands first."""

from __future__ import annotations

from typing import Any

from claims import case, event
from postmortem.diagnose.stacks import stacks
from postmortem.model import Event

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
