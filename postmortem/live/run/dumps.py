"""Stack dumps of the ranks that still run when the first one fails, or when the job is ended.

    request(ranks, "rank 0 (pid 6939) exited with code 1", journal)

        2026-11-23T07:05:12.123456Z node-a rank 1 (pid 6940) dumps its stacks: rank 0 (pid 6939) exited with …
        Current thread 0x00007f84f4890b80 (most recent call first):
          File "train.py", line 39 in load_batch

A rank writes its stacks itself, in microseconds, into a file that the hook opened at its start. A process without
such a file is sent no signal: another handler, or none, would get it. The kernel reports that a rank is stopped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from postmortem.live import proc
from postmortem.live.hooks.postmortem_hook import HIGH, SIGNAL, STACKS
from postmortem.live.run import processes
from postmortem.live.run.journal import Journal, stamp
from postmortem.live.run.processes import Process

NEAR = 8  # descriptors from each of HIGH on among which the file is


def request(ranks: Sequence[Process], why: str, journal: Journal) -> None:
    """Request the stacks of all of them, then note which are stopped. Never raises."""
    stopped = [rank for rank in ranks if proc.state(rank.pid) == "T"]
    for rank in ranks:
        path = stack_file(rank.pid) if rank not in stopped else None
        if path and processes.catches(rank.pid, SIGNAL):
            head = f"{stamp(time.time())} {journal.host} rank {rank.rank} (pid {rank.pid}) dumps its stacks: {why}\n"
            with suppress(OSError):  # it may end meanwhile
                file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    os.write(file, head.encode("utf-8", "backslashreplace"))
                finally:
                    os.close(file)
                os.kill(rank.pid, SIGNAL)
    for rank in stopped:
        facts = {"pid": rank.pid, "local_rank": rank.local_rank}
        journal.write("stopped", f"rank {rank.rank} (pid {rank.pid}) is stopped (state T): {why}", facts)


def stack_file(pid: int) -> Path | None:
    """Return the file that the hook of a rank has opened for its stacks."""
    for number in (lowest + more for lowest in HIGH for more in range(NEAR)):
        with suppress(OSError):
            path = Path(f"/proc/{pid}/fd/{number}").readlink()
            if path.name.endswith(STACKS):
                return path
    return None
