"""The lines of a script that started the ranks about how they ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from postmortem.analyze import analyze
from postmortem.blocks.identities import End, end_in

ENDS = {
    "lidar.py rank 0: exit status 139": End(0, 139),
    "supervise: launch 2 rank 3 ended with 1": End(3, 1),
    "12:04:11 system  | rank1.1 stopped (rc=-9)": End(1, -9),
    "worker 3 (pid 3322) exit status 0": End(3, 0, 3322),
    "[launcher] rank 2 exited with code 0": End(2, 0),
    "rank 0 -> 132": End(0, 132),
    "start.sh: rank 2 (pid 20958) died of SIGXCPU": End(2, -24, 20958),
    "worker 3 killed by signal 9": End(3, -9),
    "start.sh: rank0 pid 16379 ended: exit status 137 (KILL)": End(0, 137, 16379),
    "rank 3 exited: code 139 (Segmentation fault)": End(3, 139),
    "member 1: ProcessExpired: Abnormal termination -11": End(1, -11),  # pebble
}
NOTHING = (
    "rank 1 finished 12",
    "rank 2: returned 5",
    "rank 2 done: accuracy 93 (best)",
    "worker 4 finished with 12 steps",
    "rank 3 -> 1",  # of a ring, or of GPUs
    "rank 3 status 700",
    "step 3 of rank 1 left 20",
    "process 1 terminated with signal SIGKILL",  # torch.multiprocessing.spawn's, which counts its own
)


PREFIXED = {
    ("app.py exited with 1", 3): End(3, 1),
    ("status 124", 3): End(3, 124),
    ("app.py exited with 1", None): None,
    ("exited by signal SIGTERM", 1): End(1, -15),
    ("worker killed by signal 9", 2): End(2, -9),
    ("exited by signal SIGTERM", None): None,
}


def test_an_end_is_a_rank_a_word_and_a_code() -> None:
    assert {line: end_in(line, None) for line in ENDS} == ENDS
    assert {line: end_in(line, None) for line in NOTHING} == dict.fromkeys(NOTHING)
    assert {given: end_in(*given) for given in PREFIXED} == PREFIXED  # the rank of the line's prefix


LOST = "RuntimeError: [../gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:18340: Connection reset by peer."


def crashed(by: int, tmp_path: Path) -> Any:
    """Three ranks of one shell script, of which one crashes."""
    steps = [f"<r{r}> tile {n}" for n in range(0, 30, 10) for r in (1, 2, 0)]
    lost = [f"[rank{r}]: {LOST}" for r in range(3) if r != by]
    ends = [f"rank {r} exit status {139 if r == by else 1}" for r in range(3)]
    shell = "run.sh: line 2:   356 Segmentation fault      RANK=$i python t.py"
    (tmp_path / "nohup.out").write_text("\n".join([*steps, shell, *lost, *ends, ""]))
    return analyze([str(tmp_path)]).document["verdict"]


@pytest.mark.parametrize("by", [0, 1, 2])
def test_the_script_names_the_rank_of_which_the_shell_prints_only_the_pid(by: int, tmp_path: Path) -> None:
    verdict = crashed(by, tmp_path)
    assert (verdict["category"], verdict["culprit"]["ranks"]) == ("native-crash", [by])


def test_an_end_after_which_the_rank_goes_on_belongs_to_an_earlier_attempt(tmp_path: Path) -> None:
    first = [f"|rank {r}| step {n} loss 2.0" for n in range(0, 40, 10) for r in range(2)]
    ends = [f"supervise: rank {r} ended with 88" for r in range(2)]
    second = [f"|rank {r}| step {n} loss 1.0" for n in range(40, 80, 10) for r in range(2)]
    done = [f"|rank {r}| training finished, exiting" for r in range(2)]
    (tmp_path / "job.log").write_text("\n".join([*first, *ends, *second, *done, ""]))
    assert analyze([str(tmp_path)]).document["verdict"]["outcome"] == "healthy"


def record(rank: int, message: str, **more: object) -> str:
    return json.dumps({"level": 30, "time": 1795373033849 + rank, "rank": rank, "msg": message, **more})


@pytest.mark.parametrize("how, category", [({"signal": "SIGTERM", "code": None}, "external-signal"),
                                           ({"signal": "SIGSEGV", "code": None}, "native-crash"),
                                           ({"signal": None, "code": 139}, "native-crash")])  # fmt: skip
def test_a_supervisors_record_has_the_end_beside_its_message(
    how: dict[str, object], category: str, tmp_path: Path
) -> None:
    """pino's lines of a supervisor in Node: `"signal": "SIGTERM", "msg": "exited"`."""
    steps = [record(r, f"batch {n} loss 0.5", time=1795373007552 + n) for n in range(0, 150, 50) for r in range(3)]
    lost = [record(r, f"[rank{r}]: {LOST}") for r in (0, 2)]
    ends = [record(r, "exited", code=1, signal=None, time=1795373035000) for r in (0, 2)]
    (tmp_path / "run.ndjson").write_text("\n".join([*steps, record(1, "exited", **how), *lost, *ends, ""]))
    verdict = analyze([str(tmp_path)]).document["verdict"]
    assert (verdict["category"], verdict["culprit"]["ranks"]) == (category, [1]), verdict["headline"]


def test_the_end_of_rank_0_comes_before_the_store_that_is_unreachable(tmp_path: Path) -> None:
    """Rank 0 hosts the store, and is killed before it opens it; ten seconds later the others give up."""
    refused = "The client socket has timed out after 8000ms while trying to connect to (127.0.0.1, 22547)."
    (tmp_path / "rank0.log").write_text("2026-11-23 14:05:57,391 INFO [rank0] train: loading the vocabulary\n")
    for rank in (1, 2):
        (tmp_path / f"rank{rank}.log").write_text(
            f"2026-11-23 14:06:01,789 INFO [rank{rank}] train: initializing process group backend=gloo\n"
            f"[E1123 14:06:08.933146326 socket.cpp:1028] [c10d] {refused}\n"
            f"torch.distributed.DistNetworkError: {refused}\n"
        )
    ends = ("05:58 start.sh: rank0 pid 16379 ended: exit status 137 (KILL)",)
    ends += tuple(f"06:1{rank} start.sh: rank{rank} pid 1638{rank} ended: exit status 1" for rank in (1, 2))
    start = tmp_path / "start.log"
    start.write_text("".join(f"2026-11-23 14:{end}\n" for end in ends))
    verdict = analyze([str(tmp_path)]).document["verdict"]
    assert (verdict["category"], verdict["culprit"]["ranks"]) == ("external-signal", [0])
    start.write_text("".join(f"2026-11-23 14:{end}\n" for end in ends[1:]))
    assert analyze([str(tmp_path)]).document["verdict"]["category"] == "rendezvous"
