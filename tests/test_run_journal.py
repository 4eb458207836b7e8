"""The journal of `postmortem run` and the stacks it requested; see data/excerpts/run.yaml for verdicts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_jobs import wait_for

from conftest import table
from postmortem.analyze import analyze
from postmortem.blocks import read_text
from postmortem.live import proc
from postmortem.live.run import journal
from postmortem.live.run.job import Quiet
from postmortem.live.run.journal import Journal
from postmortem.live.run.kernel_state import Memory
from postmortem.live.run.processes import Process
from postmortem.live.run.tracker import Tracker

HEAD = ("run", "postmortem run on node-a: torchrun train.py", {})
STARTS = [("start", f"rank {rank} pid {4710 + rank} runs", {"pid": 4710 + rank}) for rank in range(3)]
OOM = "memory cgroup /job counted an OOM kill when pid 4711 (python, rank 1) ended by SIGKILL"
NO_OOM = OOM.replace("an OOM", "no OOM")
Record = tuple[str, str, dict[str, Any]]


def lines(*records: Record) -> str:
    rows = [
        {"time": f"2026-11-20T21:20:{n:02d}.000000Z", "host": "node-a", "event": event, "message": text, **facts}
        for n, (event, text, facts) in enumerate(records)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


KILLED = ("end", "rank 1 (pid 4711) killed by SIGKILL", {"pid": 4711, "signal": "SIGKILL"})


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


def test_the_journal_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(journal, "MOST_BYTES", 100)
    own = Journal(tmp_path, "node-a")
    for _ in range(4):
        own.write("end", "helper 17 (sh) killed by SIGKILL", {"pid": 17})
    assert (tmp_path / "run.jsonl").read_text().count("\n") == 1
    assert capsys.readouterr().err == "postmortem: run.jsonl is not complete: File too large\n"


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
    tracker = Tracker(Journal(tmp_path, "node-a"), memory, None)
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
    assert not tracker.known, "a job may start any number of processes"
    assert ("counted an OOM kill when pid" in (tmp_path / "run.jsonl").read_text()) is (first or last)


REQUESTED = "2026-11-20T21:20:31.000100Z node-a rank {rank} (pid {pid}) dumps its stacks: {why}\n"
FRAMES = """\
Thread 0x00007f84f0000640 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f84f4890b80 (most recent call first):
  File "/job/train.py", line 39 in load_batch
  File "/job/train.py", line 60 in main
"""


FIRST = "rank 0 (pid 4710) exited with code 1"


def stacks(rank: int, why: str, frames: str = FRAMES) -> str:
    return REQUESTED.format(rank=rank, pid=4710 + rank, why=why) + frames


def test_a_requested_dump_has_rank_time_and_reason() -> None:
    event = next(e for e in read_text(stacks(1, FIRST)) if e.kind == "stack")
    assert (event.rank, event.pid, event.fields["after"]) == (1, 4711, 0)
    assert event.raw_time.startswith("2026-11-20T21:20:31.0001") and event.fields["code"] == "train.py:39"
    for why in ("SIGTERM came to the wrapper", "rank x (pid 1) exited", "", "rank 0 fell"):  # it names no rank
        assert all("after" not in e.fields for e in read_text(stacks(1, why)) if e.kind == "stack")


def test_silence_is_compared_with_the_rhythm_of_the_job(tmp_path: Path) -> None:
    for case, (growths, now, long) in enumerate(table("run_journal")["silences"]):
        folder = tmp_path / str(case)
        folder.mkdir()
        quiet = Quiet(folder, -30)
        for number, moment in enumerate(growths, 1):
            (folder / "stdout.log").write_text("x" * number)
            quiet.look(moment)
            quiet.look(moment + 0.5)
        assert bool(quiet.report(now)) is long, case
