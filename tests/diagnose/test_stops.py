"""Requests to stop: a signal without a sender, a rank that never exits, and rows of the table of processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from claims import bye, case, event, exits, steps
from postmortem.analyze import analyze

STEPS = "".join(f"[rank{r}] 2026-03-04 10:00:{i:02d} step {i} loss 2.{i}\n" for i in range(8) for r in range(4))
SIGNAL = "W0304 10:00:12.100000 4100 torch/distributed/elastic/agent/server/api.py:739] Received 15 death signal, shutting down workers\n"  # fmt: skip
ASKS = "W0304 10:00:12.200000 4100 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 4202 closing signal SIGTERM\n"  # fmt: skip
FINISHED = "".join(f"[rank{r}] Training finished.\n" for r in (0, 1, 3))
CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:4121"
BLOCK = """\
[0]:
  time      : 2026-03-04_10:12:31
  host      : gpu-3
  rank      : 1 (local_rank: 1)
  exitcode  : -15 (pid: 4201)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 4201
"""
TRACE = 'Traceback (most recent call last):\n  File "/srv/train.py", line 9, in <module>\n    main()\n'
CANCELED = "slurmstepd: error: *** STEP 991.0 ON node16 CANCELLED AT 2026-03-04T10:12:33 ***\n"


@pytest.mark.parametrize(
    "text, category, ranks",
    [
        (STEPS + FINISHED + SIGNAL + ASKS, "hang", [2]),  # the others had exited
        (STEPS + SIGNAL + ASKS, "external-signal", []),
        (STEPS + "".join(f"[rank{r}]: {CLOSED}\n" for r in (0, 2, 3)) + BLOCK, "external-signal", [1]),
        (
            STEPS + "".join(f"[rank{r}] WARNING got signal 15 (SIGTERM), leaving\n" for r in range(4)),
            "external-signal",
            [],
        ),
        (STEPS + CANCELED + TRACE + "KeyboardInterrupt\n", "scheduler", []),
        (STEPS + TRACE + "lightning_fabric.utilities.exceptions.SIGTERMException\n", "external-signal", []),
    ],
)
def test_the_verdict_on_a_stop(text: str, category: str, ranks: list[int], tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(text)
    verdict: Any = analyze([str(tmp_path)]).document["verdict"]
    assert (verdict["category"], verdict["culprit"]["ranks"]) == (category, ranks), verdict["headline"]


def test_a_process_has_its_steps_its_end_and_how_it_is_known() -> None:
    seen = case(*steps(0, 3, 7), bye(0), *steps(1, 3), *exits(r1=-9), ranks=(0, 1), pids={1: 101}, hosts={1: "a"})
    first, second = seen.processes
    assert (first.first_step, first.last_step, first.finished, first.end) == (3, 7, True, None)
    assert second.end is not None and (second.end.kind, second.pid, second.host) == ("kill", 101, "a")
    assert second.known["rank"].event.where.source == "rank1.log"


def test_a_request_to_stop_is_that_of_its_pid_else_that_of_the_job() -> None:
    asks = event(pattern="launcher-sending-sigterm", pid=9, speaker="launcher", fields={"pid": "101"})
    cancel = event(pattern="slurm-cancelled", line=2, speaker="scheduler")
    seen = case(asks, cancel, ranks=(0, 1), pids={1: 101})
    assert [(p.role, p.stop.by if p.stop else None) for p in seen.processes] == [
        ("rank", "scheduler"), ("rank", "launcher"), ("launcher", None),
    ]  # fmt: skip


def test_a_worker_of_a_data_loader_is_a_child_of_the_rank_that_reports_it() -> None:
    lost = event(
        "DataLoader worker (pid 4377) is killed by signal: Killed.", pattern="dataloader-worker-killed", rank=2
    )
    child = case(lost, ranks=(2,)).processes[-1]
    assert (child.role, child.pid, child.parent) == ("dataloader-worker", 4377, 2)
