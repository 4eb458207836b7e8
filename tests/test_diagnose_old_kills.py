"""A kernel log without a date beside a console without a clock: an OOM kill in it may be of any day.
The kernel's lines are real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from postmortem.analyze import analyze

DMESG = """\
[   12.345678] eth0: link up
[ 1234.567890] python3 invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0
[ 1234.667890] Out of memory: Killed process 9991 (python3) total-vm:98301120kB, anon-rss:64321024kB, file-rss:512kB, shmem-rss:0kB, UID:1000 pgtables:131072kB oom_score_adj:0
[99999.100000] eth0: flow control
"""  # whole lines, as the kernel writes them
WORK = "".join(f"rank 0: step {step} loss 2.1\n" for step in range(30))


def document(folder: Path, console: str) -> Any:
    (folder / "dmesg.txt").write_text(DMESG)
    (folder / "train.log").write_text(console)
    return analyze([str(folder)]).document


def test_no_rank_was_killed_where_all_finished(tmp_path: Path) -> None:
    assert document(tmp_path, WORK + "Training finished.\n")["verdict"]["outcome"] == "healthy"


def test_who_fell_silent_may_have_been_killed_but_its_pid_is_not_known(tmp_path: Path) -> None:
    found = document(tmp_path, WORK)["verdict"]
    assert found["pattern"] == "kernel-oom-killed-process"
    assert not any("is rank 0 by the launcher" in reason for reason in found["because"])
