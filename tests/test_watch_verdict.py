"""What `analyze` makes of the folder that `watch` leaves: stacks of a moment, and that nothing had moved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from postmortem import analyze
from postmortem.live.collect.ranks import Rank
from postmortem.live.watch import evidence
from postmortem.live.watch.evidence import Hang

STACK = """\
Process {pid}: /opt/venv/bin/python -u train.py
Python v3.11.7 (/opt/venv/bin/python3.11)

Thread {pid} (idle): "MainThread"
    {top} (torch/distributed/distributed_c10d.py:3004)
    train (train.py:{line})
    <module> (train.py:60)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two ranks that stand in all_reduce, as `watch` saves them."""
    here = tmp_path / "standstill-1"
    found = [Rank(n, 700 + n, 1, 0, "S", 0.0, "RANK", "") for n in (0, 1)]
    monkeypatch.setattr(evidence, "_save_stacks", lambda *_: {})
    assert evidence.save(here, found, Hang(64.0, 1.2, "step 9", 2)) == []
    for n in (0, 1):
        stack(here, n, "all_reduce", 41)
    return here


def stack(folder: Path, rank: int, top: str, line: int) -> None:
    text = STACK.format(pid=700 + rank, top=top, line=line)
    (folder / f"rank{rank}.pid{700 + rank}.stack.txt").write_text(text)


def headline(folder: Path) -> str:
    return analyze([str(folder)]).document["verdict"]["headline"]


def test_all_ranks_in_one_collective_are_a_hang_only_if_nothing_moved(folder: Path) -> None:
    """Stacks of a job at work look the same: most are taken in a collective."""
    assert headline(folder).startswith("Both ranks waited in all_reduce (train.py:41): none was missing or late")
    (folder / "run.jsonl").unlink()
    assert analyze([str(folder)]).document["verdict"]["category"] is None


def test_all_ranks_in_recv_wait_for_what_none_sends(folder: Path) -> None:
    for n in (0, 1):
        stack(folder, n, "recv", 71)
    assert headline(folder).startswith("Both ranks waited in recv (train.py:71), and none sent")


def test_the_rank_that_is_elsewhere_is_named_with_its_code(folder: Path) -> None:
    text = STACK.format(pid=701, top="x", line=17).replace("    x (torch/distributed/distributed_c10d.py:3004)\n", "")
    (folder / "rank1.pid701.stack.txt").write_text(text)
    assert "Rank 1" in headline(folder) and "train.py:17" in headline(folder)


def test_a_stopped_rank_outweighs_where_it_stands(folder: Path) -> None:
    with (folder / "run.jsonl").open("a") as file:
        said = "rank 1 (pid 701) is stopped by a signal: state T"
        record = {"time": "2026-11-23T10:00:00.000000Z", "host": "n", "event": "waits", "message": said}
        file.write(json.dumps(record) + "\n")
    told = analyze([str(folder)]).document["verdict"]
    assert "was stopped by a signal" in told["headline"] and told["culprit"]["ranks"] == [1]
    assert "kill -CONT" in told["actions"][0]["text"]


def test_without_any_stack_a_standstill_is_a_hang_of_nobody(folder: Path) -> None:
    for path in folder.glob("*.stack.txt"):
        path.unlink()
    told = analyze([str(folder)]).document["verdict"]
    assert told["outcome"] == "incident" and told["category"] == "hang" and not told["culprit"]["ranks"]
    assert "no rank made progress for 64 s" in told["headline"]


def test_what_the_kernel_says_of_a_rank_is_a_sentence(tmp_path: Path) -> None:
    rank = Rank(3, 4711, 1, 0, "S", 0.0, "RANK", "")
    path = tmp_path / "rank3.pid4711.process.txt"

    def said(state: str) -> str:
        path.write_text(
            f"==> /proc/4711/status <==\nName:\tpython\nState:\t{state}\n"
            "==> /proc/4711/wchan <==\npipe_read\n==> /proc/4711/syscall <==\n232 0x5 0x7f 0x1\n"
        )
        return evidence._kernel_wait(tmp_path, rank)

    assert said("S (sleeping)") == "rank 3 (pid 4711) is in state S (sleeping) in pipe_read"
    assert said("T (stopped)") == "rank 3 (pid 4711) is stopped by a signal: state T"
    assert said("t (tracing stop)") == "rank 3 (pid 4711) is stopped by a debugger: state t"
    path.unlink()
    assert evidence._kernel_wait(tmp_path, rank) == ""
