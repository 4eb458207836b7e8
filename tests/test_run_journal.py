"""The journal of `postmortem run` and the stacks it requested: how ranks ended, and what the others did then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_jobs import wait_for

from postmortem.analyze import analyze
from postmortem.blocks import read_text
from postmortem.live import proc
from postmortem.live.run.journal import Journal
from postmortem.live.run.kernel_state import Memory
from postmortem.live.run.processes import Process
from postmortem.live.run.quiet import Quiet
from postmortem.live.run.tracker import Tracker

HEAD = ("run", "postmortem run on node-a: torchrun train.py", {})
STARTS = [("start", f"rank {rank} pid {4710 + rank} runs", {"pid": 4710 + rank}) for rank in range(3)]
OOM = "memory cgroup /job counted an OOM kill when pid 4711 (python, rank 1) ended by SIGKILL"
NO_OOM = OOM.replace("an OOM", "no OOM")
TORCHRUN = """\
epoch 0 step {n} loss 2.30
E1120 21:20:01.061000 4700 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 4711) of binary: python3
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_21:20:01
  host      : node-a
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 4711)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4711
============================================================
"""
Record = tuple[str, str, dict[str, Any]]


def lines(*records: Record) -> str:
    rows = [
        {"time": f"2026-11-20T21:20:{n:02d}.000000Z", "host": "node-a", "event": event, "message": text, **facts}
        for n, (event, text, facts) in enumerate(records)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def verdict(folder: Path, *records: Record, console: str = TORCHRUN) -> dict[str, Any]:
    (folder / "run.jsonl").write_text(lines(HEAD, *STARTS, *records))
    (folder / "stderr.log").write_text(console)
    return dict(analyze([str(folder)]).document["verdict"])


def ended(rank: int, end: str, **facts: str) -> Record:
    return "end", f"rank {rank} (pid {4710 + rank}) {end}", {"pid": 4710 + rank, **facts}


KILLED = ended(1, "killed by SIGKILL", signal="SIGKILL")


def test_the_cgroup_decides_whether_a_sigkill_was_an_oom_kill(tmp_path: Path) -> None:
    counted, not_counted = ("oom", OOM, {"pid": 4711}), ("kill", NO_OOM, {"pid": 4711})
    for records, category, confidence in (
        ((), "external-signal", "hypothesis"),
        ((counted,), "host-oom", "established"),
        ((not_counted,), "external-signal", "established"),
    ):
        found = verdict(tmp_path, KILLED, *records)
        assert (found["category"], found["confidence"]) == (category, confidence)
        assert found["culprit"]["ranks"] == [1] and found["culprit"]["hosts"] == ["node-a"]


def test_the_wrapper_is_no_rank() -> None:
    """Its journal has ends and processes, but no progress and no last lines."""
    events = read_text(lines(HEAD, *STARTS, KILLED, ("done", "the command ended: exit code 1", {})), kind="run")
    assert {e.kind for e in events} == {"pid", "exit", "pattern"}
    assert {e.rank for e in events if e.kind == "pid"} == {0, 1, 2}
    (end,) = [e for e in events if e.kind == "exit"]
    assert (end.rank, end.pid, end.host, end.speaker) == (1, 4711, "node-a", "launcher")


def test_a_command_that_exits_without_a_line_accuses_no_host(tmp_path: Path) -> None:
    """`sh -c 'exit 3'`: it chose its end by itself."""
    end = ("end", "process 4700 exited with code 3", {"pid": 4700, "code": 3})
    (tmp_path / "run.jsonl").write_text(lines(HEAD, end, ("done", "the command ended: exit code 3", {})))
    found = analyze([str(tmp_path)]).document["verdict"]
    assert not found["culprit"]["hosts"] and "exited with code 3" in found["headline"]
    assert found["headline"].endswith("and printed no reason.")


@pytest.mark.parametrize("kind", ["console", "kernel", "json-lines"])
def test_a_rank_that_prints_the_sentence_establishes_nothing(kind: str) -> None:
    assert not [e for e in read_text(f"step 1\n{OOM}\n{NO_OOM}\n", kind=kind) if e.pattern]


class FakeMemory(Memory):
    """A memory cgroup with chosen members and counts."""

    def __init__(self) -> None:
        self.version, self.path, self._folder = "2", "/job", "/job"
        self.kills, self.inside = 0, True

    def events(self) -> dict[str, int]:
        return {"oom_kill": self.kills}

    def holds(self, pid: int) -> bool:
        return self.inside


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="`postmortem run` is for Linux")
@pytest.mark.parametrize(("first", "last"), [(True, True), (True, False), (False, True), (False, False)])
def test_a_process_that_ends_is_in_no_cgroup_and_was_in_ours(tmp_path: Path, first: bool, last: bool) -> None:
    """A worker of many gigabytes takes long to die, and is outside of its cgroup meanwhile."""
    memory = FakeMemory()
    tracker = Tracker(Journal(tmp_path, "node-a"), memory)
    worker = subprocess.Popen(["sleep", "60"], env=os.environ | {"RANK": "1", "LOCAL_RANK": "1"})
    wait_for(lambda: proc.text(f"/proc/{worker.pid}/comm") == "sleep")
    memory.inside = first
    tracker._see(worker.pid, os.getpid(), Process(1, 0, "python", of_rank=1))
    memory.inside = last
    tracker.look(worker.pid)
    worker.kill()
    worker.wait()
    memory.kills = 1
    tracker.end(worker.pid, 9)
    tracker.close()
    assert ("counted an OOM kill when pid" in (tmp_path / "run.jsonl").read_text()) is (first or last)


REQUESTED = "2026-11-20T21:20:31.000100Z node-a rank {rank} (pid {pid}) dumps its stacks: {why}\n"
FRAMES = """\
Thread 0x00007f84f0000640 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f84f4890b80 (most recent call first):
  File "/job/train.py", line 39 in load_batch
  File "/job/train.py", line 60 in main
"""
IN_A_COLLECTIVE = """\
Current thread 0x00007f84f4890b80 (most recent call first):
  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2810 in all_reduce
  File "/job/train.py", line 61 in main
"""
WAITED = """\
2026-11-20 21:20:2{rank},000 INFO [rank{rank}] train: step 6
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/job/train.py", line 61, in main
[rank{rank}]:     loss.backward()
[rank{rank}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 8000ms for recv operation to complete
"""
FIRST = "rank 0 (pid 4710) exited with code 1"
FAILED = [ended(rank, "exited with code 1") for rank in (0, 2)]
BY_LAUNCHER = ended(1, "killed by SIGTERM", signal="SIGTERM")


def stacks(rank: int, why: str, frames: str = FRAMES) -> str:
    return REQUESTED.format(rank=rank, pid=4710 + rank, why=why) + frames


def of_a_timeout(folder: Path, *records: Record, why: str = FIRST, waited: tuple[int, ...] = (0, 2)) -> dict[str, Any]:
    """Return the verdict on a run whose rank 1 printed nothing; its stacks were requested when rank 0 ended."""
    (folder / "rank1.pid4711.stacks.txt").write_text(stacks(1, why))
    console = "".join(WAITED.format(rank=rank) for rank in waited)
    return verdict(folder, *records, console=console + "2026-11-20 21:20:21,500 INFO [rank1] train: step 6\n")


def test_a_rank_elsewhere_when_the_others_timed_out_is_established(tmp_path: Path) -> None:
    found = of_a_timeout(tmp_path, *FAILED, BY_LAUNCHER)
    assert (found["category"], found["confidence"], found["culprit"]["ranks"]) == ("hang", "established", [1])
    assert "in load_batch (train.py:39)" in found["headline"]
    found = of_a_timeout(tmp_path, FAILED[0], BY_LAUNCHER, waited=(0,))  # rank 2 may not have waited
    assert found["confidence"] != "established"


def test_a_rank_at_work_while_another_is_killed_does_not_hang(tmp_path: Path) -> None:
    killed = ended(0, "killed by SIGABRT", signal="SIGABRT")
    found = of_a_timeout(tmp_path, killed, BY_LAUNCHER, why="rank 0 (pid 4710) killed by SIGABRT", waited=())
    assert found["category"] == "native-crash" and found["culprit"]["ranks"] == [0]


@pytest.mark.parametrize("why", [FIRST, "SIGTERM came"])
def test_the_others_waited_for_a_stopped_rank(tmp_path: Path, why: str) -> None:
    stopped = ("stopped", f"rank 1 (pid 4711) is stopped (state T): {why}", {})
    of_a_timeout(tmp_path, stopped, *FAILED, BY_LAUNCHER)
    (tmp_path / "rank1.pid4711.stacks.txt").unlink()
    found = dict(analyze([str(tmp_path)]).document["verdict"])
    assert (found["category"], found["confidence"], found["culprit"]["ranks"]) == ("hang", "established", [1])
    assert "stopped by a signal" in found["headline"]


def test_a_requested_dump_has_rank_time_and_reason() -> None:
    event = next(e for e in read_text(stacks(1, FIRST)) if e.kind == "stack")
    assert (event.rank, event.pid, event.fields["after"]) == (1, 4711, 0)
    assert event.raw_time.startswith("2026-11-20T21:20:31.0001") and event.fields["code"] == "train.py:39"
    for why in ("SIGTERM came to the wrapper", "rank x (pid 1) exited", "", "rank 0 fell"):  # it names no rank
        assert all("after" not in e.fields for e in read_text(stacks(1, why)) if e.kind == "stack")


STILL = "SIGTERM came; the job had printed nothing for 312 s, and before that never for more than 4 s"


@pytest.mark.parametrize(("why", "category", "ranks"), [(STILL, "hang", [1]), ("SIGTERM came", "external-signal", [])])
def test_stacks_of_a_job_that_was_ended_count_only_after_long_silence(
    tmp_path: Path, why: str, category: str, ranks: list[int]
) -> None:
    """At any moment one rank is at its batch, and the others wait for it."""
    for rank in range(3):
        text = stacks(rank, why, FRAMES if rank == 1 else IN_A_COLLECTIVE)
        (tmp_path / f"rank{rank}.pid{4710 + rank}.stacks.txt").write_text(text)
    steps = [
        f"2026-11-20 21:1{n // 60}:{n % 60:02d},000 INFO [rank{n % 3}] train: step {n // 3} loss 2.1" for n in range(60)
    ]
    agent = "W1120 21:20:01.061000 4700 torch/distributed/elastic/agent/server/api.py:740] Received 15 death signal, shutting down workers"
    came = ("signal", "SIGTERM came to the wrapper, passed on to 4700", {"signal": "SIGTERM"})
    ends = [ended(rank, "killed by SIGTERM") for rank in range(3)]
    found = verdict(tmp_path, came, *ends, console="\n".join([*steps, agent, ""]))
    assert (found["category"], found["culprit"]["ranks"]) == (category, ranks)
    assert category != "hang" or "in load_batch (train.py:39)" in found["headline"]


def test_silence_is_compared_with_the_rhythm_of_the_job(tmp_path: Path) -> None:
    for case, (growths, now, long) in enumerate(
        (
            ([34, 40, 44, 48, 52, 56], 200, True),
            ([34, 40, 44, 48, 52, 56], 100, False),  # 44 s: an evaluation
            ([34, 40, 44, 48, 52, 100], 300, False),  # it was as silent before
            ([0, 40, 44], 900, False),  # its rhythm is unknown: it may print into a file of its own
            ([], 900, False),
        )
    ):
        folder = tmp_path / str(case)
        folder.mkdir()
        quiet = Quiet(folder, -30)
        for number, moment in enumerate(growths, 1):
            (folder / "stdout.log").write_text("x" * number)
            quiet.look(moment)
            quiet.look(moment + 0.5)
        assert bool(quiet.report(now)) is long, case


def test_a_rank_that_raised_in_a_step_had_not_done_it(tmp_path: Path) -> None:
    """Rank 1 exits in step 6 without a message; the others lose it in the same step: no rank was behind."""
    lost = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:5163"
    trace = (
        f'Traceback (most recent call last):\n  File "/job/train.py", line 61, in main\n    loss.backward()\n{lost}\n'
    )
    for rank in (0, 2):
        record = {"time": "2026-11-20T21:20:06.000000Z", "host": "node-a", "event": "exception", "rank": rank}
        record |= {"pid": 4710 + rank, "in_step": 6, "message": f"rank {rank} raised RuntimeError", "traceback": trace}
        (tmp_path / f"rank{rank}.pid{4710 + rank}.exceptions.jsonl").write_text(json.dumps(record) + "\n")
    steps = [f"2026-11-20 21:20:0{s},{r}00 INFO [rank{r}] train: step {s} loss 2.1" for s in range(5) for r in range(3)]
    found = verdict(tmp_path, ended(1, "exited with code 3"), *FAILED, console="\n".join([*steps, ""]))
    assert found["pattern"] == "rank-exit-without-reason" and found["culprit"]["ranks"] == [1]
