"""How a process of a job under `postmortem run` is known to have been killed for memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from run_jobs import until

from postmortem.live import proc
from postmortem.live.run import processes
from postmortem.live.run.counters import Memory
from postmortem.live.run.record import Journal
from postmortem.live.run.tracker import Tracker

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="`postmortem run` is for Linux")


class Counted(Memory):
    """A memory cgroup of which the test says who is in it, and how many were killed."""

    def __init__(self) -> None:
        self.version, self.path, self._folder = "2", "/job", "/job"
        self.kills, self.inside = 0, True

    def events(self) -> dict[str, int]:
        return {"oom_kill": self.kills}

    def holds(self, pid: int) -> bool:
        return self.inside

    def gauges(self) -> dict[str, int | str]:
        return {}


@pytest.mark.parametrize("in_the_end", [True, False])
@pytest.mark.parametrize("at_first", [True, False])
def test_a_process_that_ends_is_in_no_cgroup_and_was_in_ours(tmp_path: Path, at_first: bool, in_the_end: bool) -> None:
    """A worker of many gigabytes takes long to die. Who looks at it meanwhile finds it outside, and its OOM kill
    was not taken for its own."""
    memory = Counted()
    tracker = Tracker(Journal(tmp_path, "node-a"), memory)
    worker = subprocess.Popen(["sleep", "60"], env=os.environ | {"RANK": "1", "LOCAL_RANK": "1"})
    until(lambda: proc.read(f"/proc/{worker.pid}/comm") == b"sleep\n")
    memory.inside = at_first
    tracker._see(worker.pid, os.getpid(), processes.Process(1, 0, "python", of_rank=1))
    memory.inside = in_the_end
    tracker.look(worker.pid)
    worker.kill()
    worker.wait()
    memory.kills = 1
    tracker.end(worker.pid, 9)
    tracker.close()
    told = "counted an OOM kill when pid" in (tmp_path / "run.jsonl").read_text()
    assert told is (at_first or in_the_end)
