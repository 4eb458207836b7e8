"""The analysis of the folder that `watch` writes: stacks at one moment, and the time without progress."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import table
from postmortem import analyze
from postmortem.live.collect.rank_search import Rank
from postmortem.live.watch import hang_folder
from postmortem.live.watch.hang_folder import Hang

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
    """Two ranks in all_reduce, as `watch` saves them."""
    folder = tmp_path / "standstill-1"
    found = [Rank(n, 700 + n, 1, 0, "S", 0.0, "RANK", "") for n in (0, 1)]
    monkeypatch.setattr(hang_folder, "_save_stacks", lambda *_: {})
    assert hang_folder.save(folder, found, Hang(64.0, 1.2, "step 9", 2)) == []
    write_stacks(folder, "all_reduce", 41)
    return folder


def write_stacks(folder: Path, top: str, line: int) -> None:
    for pid in (700, 701):
        (folder / f"rank{pid - 700}.pid{pid}.stack.txt").write_text(STACK.format(pid=pid, top=top, line=line))


def headline(folder: Path) -> str:
    return analyze([str(folder)]).document["verdict"]["headline"]


def test_all_ranks_in_one_call_hang_only_without_progress(folder: Path) -> None:
    """Most stacks of a job at work are in a collective too."""
    assert headline(folder).startswith("Both ranks waited in all_reduce (train.py:41): none was missing or late")
    write_stacks(folder, "recv", 71)
    assert headline(folder).startswith("Both ranks waited in recv (train.py:71), and none sent")
    (folder / "run.jsonl").unlink()
    assert analyze([str(folder)]).document["verdict"]["category"] is None


def test_the_rank_elsewhere_is_named_with_its_code(folder: Path) -> None:
    text = STACK.format(pid=701, top="x", line=17).replace("    x (torch/distributed/distributed_c10d.py:3004)\n", "")
    (folder / "rank1.pid701.stack.txt").write_text(text)
    assert "Rank 1" in headline(folder) and "train.py:17" in headline(folder)


def test_a_stopped_rank_outweighs_its_stack(folder: Path) -> None:
    message = "rank 1 (pid 701) is stopped by a signal: state T"
    with (folder / "run.jsonl").open("a") as file:
        record = {"time": "2026-11-23T10:00:00.000000Z", "host": "n", "event": "waits", "message": message}
        file.write(json.dumps(record) + "\n")
    found = analyze([str(folder)]).document["verdict"]
    assert "was stopped by a signal" in found["headline"] and found["culprit"]["ranks"] == [1]
    assert "kill -CONT" in found["actions"][0]["text"]


def test_without_stacks_a_hang_names_no_rank(folder: Path) -> None:
    for path in folder.glob("*.stack.txt"):
        path.unlink()
    found = analyze([str(folder)]).document["verdict"]
    assert found["outcome"] == "incident" and found["category"] == "hang" and not found["culprit"]["ranks"]
    assert "no rank made progress for 64 s" in found["headline"]


def test_the_kernels_view_of_a_rank_is_a_sentence(tmp_path: Path) -> None:
    rank = Rank(3, 4711, 1, 0, "S", 0.0, "RANK", "")
    path = tmp_path / "rank3.pid4711.process.txt"
    for state, sentence in table("watch_verdict")["states"].items():
        path.write_text(
            f"==> /proc/4711/status <==\nName:\tpython\nState:\t{state}\n"
            "==> /proc/4711/wchan <==\npipe_read\n==> /proc/4711/syscall <==\n232 0x5 0x7f 0x1\n"
        )
        assert hang_folder._kernel_wait(tmp_path, rank) == f"rank 3 (pid 4711) is {sentence}"
    path.unlink()
    assert hang_folder._kernel_wait(tmp_path, rank) == ""
