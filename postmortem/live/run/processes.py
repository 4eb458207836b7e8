"""What /proc tells of the processes of a job: who is below whom, which one is which rank, and how one ended.

A process that cannot be read (it has just ended, or is another user's) tells nothing; nothing here raises.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
MOST = 4096  # processes of one job that are looked at
PIDFD_INFO_EXIT = 1 << 3
PIDFD_INFO_SIZE = 64  # of the first version: the last field is the exit status
PIDFD_GET_INFO = 3 << 30 | PIDFD_INFO_SIZE << 16 | 0xFF << 8 | 11
_NAMES = (b"RANK", b"LOCAL_RANK", b"WORLD_SIZE", b"TORCHELASTIC_RUN_ID", b"TORCHELASTIC_RESTART_COUNT")


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the job. `rank` is its own, not one that it inherited from the rank that started it."""

    pid: int
    parent: int
    name: str
    rank: int | None = None
    local_rank: int | None = None
    attempt: int | None = None
    of_rank: int | None = None  # a DataLoader's worker: the rank above it
    elastic: bool = False  # torchrun's words stand in its environment
    world: int | None = None


def read(path: str) -> bytes:
    """A small file; empty where it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, 1 << 17)
    except OSError:
        return b""
    finally:
        os.close(file)


def children(pid: int) -> list[int]:
    """The children of a process: those of its main thread, which is the one that starts processes."""
    return [int(word) for word in read(f"{PROC}/{pid}/task/{pid}/children").split() if word.isdigit()]


def below(pid: int) -> Iterator[tuple[int, int]]:
    """Every process below one, with its parent, from the top down."""
    waiting, found = [pid], 0
    while waiting and found < MOST:
        parent = waiting.pop(0)
        for child in children(parent):
            found += 1
            waiting.append(child)
            yield child, parent


def look(pid: int, parent: int, above: Process | None) -> Process:
    """Who a process is. `above` is the process that started it."""
    said = _environment(pid)
    name = read(f"{PROC}/{pid}/comm").decode("utf-8", "replace").strip()
    rank, local = _number(said.get(b"RANK")), _number(said.get(b"LOCAL_RANK"))
    elastic = b"TORCHELASTIC_RUN_ID" in said
    inherited = above is not None and (
        above.elastic if elastic else above.rank is not None or above.of_rank is not None
    )
    if rank is None or local is None or inherited:
        of = None if above is None else above.rank if above.rank is not None else above.of_rank
        return Process(pid, parent, name, of_rank=of, elastic=elastic)
    attempt = _number(said.get(b"TORCHELASTIC_RESTART_COUNT"))
    world = _number(said.get(b"WORLD_SIZE"))
    return Process(pid, parent, name, rank, local, attempt, elastic=elastic, world=world)


def _environment(pid: int) -> dict[bytes, bytes]:
    pairs = (pair.partition(b"=") for pair in read(f"{PROC}/{pid}/environ").split(b"\0"))
    return {name: value for name, _, value in pairs if name in _NAMES}


def _number(text: bytes | None) -> int | None:
    return int(text) if text and text.isdigit() and len(text) < 8 else None


def ended(pid: int) -> tuple[int | None, int]:
    """How a process ended that nobody has reaped yet, as `wait` tells it, and its parent; None and 0 where it
    is too late to ask.

    The parent asks every tenth of a second or so. The kernel shows the status to the same user and to root.
    """
    text = read(f"{PROC}/{pid}/stat")
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 50 or fields[0] not in (b"Z", b"X"):
        return None, 0
    return int(fields[49]), int(fields[1])


def state(pid: int) -> str:
    """`T` where a signal has stopped it, as the kernel has it; empty where it has ended."""
    text = read(f"{PROC}/{pid}/stat")
    return text[text.rfind(b")") + 2 :][:1].decode("ascii", "replace")


def reaped(handle: int) -> int | None:
    """How a process ended that its parent has reaped already, by its pidfd; Linux 6.15 and later know."""
    asked = bytearray(struct.pack("Q", PIDFD_INFO_EXIT) + b"\0" * (PIDFD_INFO_SIZE - 8))
    try:
        fcntl.ioctl(handle, PIDFD_GET_INFO, asked)
    except OSError:
        return None
    said, status = struct.unpack_from("Q", asked)[0], struct.unpack_from("i", asked, PIDFD_INFO_SIZE - 4)[0]
    return status if said & PIDFD_INFO_EXIT else None


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for this signal. Who has none may die of it."""
    return _bit(pid, b"SigCgt:", number)


def pending(pid: int, number: int) -> bool:
    """Whether this signal waits for the process to run again."""
    return _bit(pid, b"ShdPnd:", number) or _bit(pid, b"SigPnd:", number)


def _bit(pid: int, field: bytes, number: int) -> bool:
    for line in read(f"{PROC}/{pid}/status").splitlines():
        if line.startswith(field):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def cgroup(pid: int | str = "self") -> tuple[str, str]:
    """Where a process is in the hierarchy that has the memory controller: its version, and the path."""
    unified = ""
    for line in read(f"{PROC}/{pid}/cgroup").decode("utf-8", "replace").splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return "1", path
        if not controllers:
            unified = path
    return "2", unified
