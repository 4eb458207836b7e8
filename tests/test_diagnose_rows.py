"""A scheduler's table of many jobs beside the logs of one: only its own rows count.
The rows are as sacct prints them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postmortem.analyze import analyze

TABLE = """\
JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
990               train        gpu       proj         64 OUT_OF_ME+    0:125
990.batch         batch                  proj         64 OUT_OF_ME+    0:125
991               train        gpu       proj         64  COMPLETED      0:0
992               train        gpu       proj         64    TIMEOUT      0:0
"""
PIPED = "JobID|JobName|State|ExitCode\n990|train|OUT_OF_MEMORY|0:125\n991|train|COMPLETED|0:0\n"
WORK = "".join(f"2026-11-20 08:00:{s:02d} INFO rank 0: step {s} loss 2.1\n" for s in range(30))
DONE = "2026-11-20 08:00:31 INFO rank 0: Training finished.\n"


def verdict(folder: Path, files: dict[str, str]) -> Any:
    for name, text in files.items():
        (folder / name).write_text(text)
    return analyze([str(folder)]).document["verdict"]


@pytest.mark.parametrize("table", [TABLE, PIPED])
@pytest.mark.parametrize("console", ["slurm-991.out", "train_job991.log", "rank0.log"])
def test_another_jobs_row_is_no_failure_of_a_job_that_finished(tmp_path: Path, table: str, console: str) -> None:
    assert verdict(tmp_path, {"sacct.txt": table, console: WORK + DONE})["outcome"] == "healthy"


def test_the_jobs_own_row_counts(tmp_path: Path) -> None:
    assert verdict(tmp_path, {"sacct.txt": TABLE, "slurm-990.out": WORK})["category"] == "host-oom"


def test_a_table_of_one_job_counts(tmp_path: Path) -> None:
    one = "".join(line for line in TABLE.splitlines(keepends=True) if not line.startswith(("991", "992")))
    found = verdict(tmp_path, {"sacct.txt": one, "rank0.log": WORK})
    assert (found["outcome"], found["category"]) == ("incident", "host-oom")
