"""A look at a job that still runs, as somebody on call would take it: `ps`, and `py-spy dump` of each rank.

In: the place of a run and the pids of its ranks. Out: `logs/ps.txt` and, where py-spy is installed,
`logs/pyspy/rank1_pid4711.txt`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from postmortem.replay.isolate import Place, tagged

COLUMNS = "pid,ppid,stat,wchan:24,pcpu,rss,etime,args"


def look(made: Place, pids: dict[int, int]) -> None:
    """Write what can be seen from outside; what is not installed is left out."""
    if not shutil.which("ps"):
        return
    alive = tagged(made.tag)
    done = subprocess.run(
        ["ps", "-o", COLUMNS, "-p", ",".join(map(str, alive))], capture_output=True, text=True, check=False
    )
    (made.logs / "ps.txt").write_text(done.stdout)
    beside = Path(sys.executable).with_name("py-spy")
    spy = str(beside) if beside.exists() else shutil.which("py-spy")
    if not spy:
        return
    (made.logs / "pyspy").mkdir(exist_ok=True)
    for rank, pid in sorted(pids.items()):
        if Path(f"/proc/{pid}").exists():
            done = subprocess.run(
                [spy, "dump", "--pid", str(pid)], capture_output=True, text=True, check=False, timeout=30
            )
            if done.stdout:
                (made.logs / "pyspy" / f"rank{rank}_pid{pid}.txt").write_text(done.stdout)
