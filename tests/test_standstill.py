"""A time limit that only swept up a job which had stood still: told apart from one that ended a working job.
Synthetic logs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from conftest import table
from postmortem.analyze import analyze

START = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
HOUR = 3600


def job(
    folder: Path, *, limit: float, pace: float = 2.0, steps: int = 400, zone: str = "", shift: float = 0, end: str = ""
) -> Any:
    """Four ranks that stop printing after `steps` steps; Slurm ends them `limit` after the start,
    by a clock that is `shift` ahead."""
    for rank in range(4):
        ready = f"process group ready: rank {rank} of 4, pid {1000 + rank}"
        lines = [f"{START:%Y-%m-%d %H:%M:%S}{zone} INFO [rank{rank}] {ready}"]
        for step in range(1, steps):
            at = START + timedelta(seconds=pace * step, milliseconds=7 * rank)
            lines.append(f"{at:%Y-%m-%d %H:%M:%S.%f}{zone} INFO [rank{rank}] step {step} loss {3 - step / 400:.4f}")
        lines += [end] if end else []
        (folder / f"rank{rank}.log").write_text("\n".join(lines) + "\n")
    ended = START + timedelta(seconds=limit + shift)
    (folder / "slurm-991.out").write_text(
        f"slurmstepd: error: *** JOB 991 ON node01 CANCELLED AT {ended:%Y-%m-%dT%H:%M:%S} DUE TO TIME "
        f"LIMIT ***\n"
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
    )
    return analyze([str(folder)]).document["verdict"]


def test_hours_of_silence_are_the_cause_and_not_the_limit(tmp_path: Path) -> None:
    verdict = job(tmp_path, limit=12 * HOUR)
    assert (verdict["category"], verdict["pattern"]) == ("hang", "job-stood-still")
    assert verdict["culprit"]["ranks"] == []
    assert (
        "no rank printed a line in the last 11.8 hours; before that, up to step 399, a step took 2.0 s"
        in verdict["headline"]
    )


@pytest.mark.parametrize("why, how", table("standstill")["limits"])
def test_a_time_limit_remains_one_where(tmp_path: Path, why: str, how: dict[str, Any]) -> None:
    assert job(tmp_path, **how)["pattern"] != "job-stood-still", why


def test_a_zone_that_is_unknown_may_explain_whole_half_hours(tmp_path: Path) -> None:
    """The ranks write UTC, Slurm writes no zone: four hours are a zone as well as a silence."""
    assert job(tmp_path, limit=4 * HOUR + 800, zone="Z")["pattern"] == "slurm-time-limit"


@pytest.mark.parametrize(("limit", "pattern", "ranks"), [
    pytest.param(12 * HOUR, "rank-never-arrived", [2], id="hours after the last line"),
    pytest.param(801, "slurm-time-limit", [], id="of a job that worked to the end"),
])  # fmt: skip
def test_stacks_taken_before_the_limit_state_who_was_waited_for(
    tmp_path: Path, limit: float, pattern: str, ranks: list[int]
) -> None:
    """A batch script may have stacks taken of any job that nears its limit: in one that works, a rank that
    computes while others wait in a collective proves nothing."""
    for rank in range(4):
        (tmp_path / f"rank{rank}.{1000 + rank}.pyspy.txt").write_text(
            f"Process {1000 + rank}: python -u train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
            f'Thread {1000 + rank} (idle): "MainThread"\n'
            + (
                "    load_batch (train.py:5)\n    <module> (train.py:12)\n"
                if rank == 2
                else "    all_reduce (torch/distributed/distributed_c10d.py:3252)\n"
                "    _exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)\n"
                "    <module> (train.py:13)\n"
            )
        )
    verdict = job(tmp_path, limit=limit)
    assert (verdict["pattern"], verdict["culprit"]["ranks"]) == (pattern, ranks)
