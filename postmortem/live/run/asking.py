"""Where the living ranks stand in the moment in which the first one gives up.

    ask(ranks, "rank 0 (pid 6939) exited with code 1", journal)

        2026-11-23T07:05:12.123456Z node-a rank 1 (pid 6940) dumps its stacks: rank 0 (pid 6939) exited with …
        Current thread 0x00007f84f4890b80 (most recent call first):
          File "train.py", line 39 in load_batch

A rank writes its stacks itself, in microseconds, into the file that the hook has opened at its start
(`hooks/`). Who has no such file is sent nothing: another program's handler, or none, would get the signal. A
rank that was stopped writes nothing, and the kernel says that.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

from postmortem.live.hooks.postmortem_hook import HIGH, SIGNAL, STACKS
from postmortem.live.run import processes
from postmortem.live.run.processes import PROC, Process
from postmortem.live.run.record import Journal, stamp

NEAR = 8  # descriptors from HIGH on among which the file is


def ask(ranks: Sequence[Process], why: str, journal: Journal) -> None:
    """Each of them, at once; who is stopped is noted. Never raises: a rank may end meanwhile."""
    stopped = [who for who in ranks if not _asked(who, why, journal.host)]
    for who in stopped:
        facts = {"pid": who.pid, "local_rank": who.local_rank}
        journal.write("stopped", f"rank {who.rank} (pid {who.pid}) is stopped (state T): {why}", facts)


def _asked(who: Process, why: str, host: str) -> bool:
    """False where it cannot answer, because a signal has stopped it."""
    if processes.state(who.pid) == "T":
        return False
    path = _file(who.pid)
    if path and processes.catches(who.pid, SIGNAL):
        head = f"{stamp(time.time())} {host} rank {who.rank} (pid {who.pid}) dumps its stacks: {why}\n"
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                os.write(file, head.encode("utf-8", "backslashreplace"))
            finally:
                os.close(file)
            os.kill(who.pid, SIGNAL)
    return True


def _file(pid: int) -> str:
    """The file that a rank has open for its stacks; empty where it has none."""
    for number in range(HIGH, HIGH + NEAR):
        with contextlib.suppress(OSError):
            path = os.readlink(f"{PROC}/{pid}/fd/{number}")  # noqa: PTH115
            if path.endswith(STACKS):
                return path
    return ""
