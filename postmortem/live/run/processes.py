"""Processes of a job in `/proc`: parents and children, ranks, signals, exit statuses.

A process that cannot be read (it has just ended, or belongs to another user) has no rank and no children;
nothing here raises.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from postmortem.live import proc
from postmortem.live.hooks.postmortem_hook import HIGH, SIGNAL, STACKS
from postmortem.live.run.journal import Journal, stamp

MOST_PROCESSES = 4096  # processes of one job
PARENT = b"POSTMORTEM_HOOK_PID"  # a rank with our hook gives it to what it starts
PIDFD_INFO_EXIT = 1 << 3
PIDFD_INFO_SIZE = 64  # of the first version: the last field is the exit status
PIDFD_GET_INFO = 3 << 30 | PIDFD_INFO_SIZE << 16 | 0xFF << 8 | 11


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the job. `rank` is its own, not one that it inherited from the rank that started it."""

    pid: int
    parent: int
    name: str
    rank: int | None = None
    local_rank: int | None = None
    attempt: int | None = None
    of_rank: int | None = None  # of a DataLoader worker: the rank above it
    elastic: bool = False  # torchrun's variables are in its environment
    world: int | None = None


def children(pid: int) -> list[int]:
    """Return the children of a process: each belongs to the thread that started it."""
    try:
        threads = list(islice(Path(f"/proc/{pid}/task").iterdir(), MOST_PROCESSES))
    except OSError:
        return []
    lists = (proc.read(f"{thread}/children") for thread in threads)
    return [int(word) for found in lists for word in found.split()]


def below(pid: int) -> Iterator[tuple[int, int]]:
    """Yield every process below one, with its parent, from the top down."""
    waiting, found = [pid], 0
    while waiting and found < MOST_PROCESSES:
        parent = waiting.pop(0)
        for child in children(parent):
            found += 1
            waiting.append(child)
            yield child, parent


def look(pid: int, parent: int, above: Process | None) -> Process:
    """Identify a process; `above` is the one that started it."""
    pairs = (pair.partition(b"=") for pair in proc.read(f"/proc/{pid}/environ").split(b"\0"))
    env = {name: value for name, _, value in pairs}

    def number(name: bytes) -> int | None:
        value = env.get(name, b"")
        return int(value) if value.isdigit() and len(value) < 8 else None

    name = proc.text(f"/proc/{pid}/comm")
    rank, local_rank = number(b"RANK"), number(b"LOCAL_RANK")
    elastic = b"TORCHELASTIC_RUN_ID" in env
    above_rank = None if above is None else above.rank if above.rank is not None else above.of_rank
    inherited = above is not None and (above.elastic if elastic else above_rank is not None)
    inherited |= env.get(PARENT, b"%d" % pid) != b"%d" % pid  # its parent may have gone
    if rank is None or local_rank is None or inherited:
        return Process(pid, parent, name, of_rank=above_rank, elastic=elastic)
    attempt, world = number(b"TORCHELASTIC_RESTART_COUNT"), number(b"WORLD_SIZE")
    return Process(pid, parent, name, rank, local_rank, attempt, elastic=elastic, world=world)


def zombie_status(pid: int) -> tuple[int | None, int]:
    """Return the wait status of a process that its parent has not reaped yet, and the parent; None and 0 when it
    is too late. The parent reaps within a tenth of a second or so. The kernel shows it to the same user and root."""
    fields = proc.stat(pid)
    if len(fields) < 50 or fields[0] not in (b"Z", b"X"):
        return None, 0
    return int(fields[49]), int(fields[1])


def reaped_status(pidfd: int) -> int | None:
    """Return the wait status of a process that its parent has reaped; Linux 6.15 and later have it."""
    info = bytearray(struct.pack("Q", PIDFD_INFO_EXIT) + b"\0" * (PIDFD_INFO_SIZE - 8))
    try:
        fcntl.ioctl(pidfd, PIDFD_GET_INFO, info)
    except OSError:
        return None
    mask, status = struct.unpack_from("Q", info)[0], struct.unpack_from("i", info, PIDFD_INFO_SIZE - 4)[0]
    return status if mask & PIDFD_INFO_EXIT else None


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for this signal, which may end it otherwise."""
    return _bit(pid, b"SigCgt:", number)


def pending(pid: int, number: int) -> bool:
    """Return whether this signal waits for the process to run again."""
    return _bit(pid, b"ShdPnd:", number) or _bit(pid, b"SigPnd:", number)


def _bit(pid: int, field: bytes, number: int) -> bool:
    masks = (line.split()[1] for line in proc.read(f"/proc/{pid}/status").splitlines() if line.startswith(field))
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def cgroup(pid: int | str = "self") -> tuple[str, str]:
    """Return the version and the path of the cgroup that limits a process's memory."""
    unified = ""
    for line in proc.text(f"/proc/{pid}/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return "1", path
        if not controllers:
            unified = path
    return "2", unified


# ── stack dumps ─────────────────────────────────────────────────────────────────────────────────────────────

# A rank writes its stacks itself, in microseconds, into a file that the hook opened at its start. A process without
# such a file is sent no signal: another handler, or none, would get it. The kernel reports that a rank is stopped.

NEAR = 8  # descriptors from each of HIGH on among which the file is


def request_stacks(ranks: Sequence[Process], why: str, journal: Journal) -> None:
    """Request the stacks of all of them, then note which are stopped. Never raises."""
    stopped = [rank for rank in ranks if proc.state(rank.pid) == "T"]
    for rank in ranks:
        path = stack_file(rank.pid) if rank not in stopped else None
        if path and catches(rank.pid, SIGNAL):
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
