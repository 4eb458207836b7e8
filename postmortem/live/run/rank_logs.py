"""Torchrun's logs of the ranks, which must not fill the disk: a rank fails if its log cannot be written.

What torchrun has read of a log is on the console. Where little room is left, a hole (fallocate(2)) takes the place of
the middle: it needs no room, and readers and writers keep their offsets.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

from postmortem.live import proc
from postmortem.live.run import processes
from postmortem.live.run.journal import print_line

FOLDER = "torchelastic"
ROOM = 1 << 30  # free bytes below which holes are made
KEPT = 1 << 24  # bytes of a log at its beginning, and at its end
PUNCH_HOLE, KEEP_SIZE = 2, 1


class RankLogs:
    """The logs of a run, if torchrun writes any."""

    def __init__(self, folder: Path | None) -> None:
        self._folder, self._told = Path(os.path.realpath(folder or os.devnull), FOLDER), False

    def look(self) -> None:
        """Make room if there is little. Never raises."""
        with suppress(OSError, AttributeError):  # there are no such logs, or no such call
            disk = os.statvfs(self._folder)
            if disk.f_bavail * disk.f_frsize <= ROOM:
                for pid in (os.getpid(), *(pid for pid, _ in processes.below(os.getpid()))):
                    self._make_room(pid)

    def _make_room(self, pid: int) -> None:
        """Take the middle out of the logs that this process reads, up to its place in them."""
        with suppress(OSError, ValueError):  # it ends
            for link in Path(f"/proc/{pid}/fd").iterdir():
                path = link.readlink()
                if path.suffix == ".log" and path.is_relative_to(self._folder):
                    _, at, _, flags, *_ = proc.text(f"/proc/{pid}/fdinfo/{link.name}").split()
                    end = min(int(at), path.stat().st_size - KEPT)
                    if int(flags, 8) & os.O_ACCMODE == os.O_RDONLY and end > KEPT and _punch(path, end):
                        self._report(path.name)

    def _report(self, name: str) -> None:
        if not self._told:
            self._told = True
            print_line(f"the {name} of a rank is not complete: too little space is left on the disk")


def _punch(path: Path, end: int) -> bool:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    span = ctypes.c_long(KEPT), ctypes.c_long(end - KEPT)
    made = ctypes.CDLL(None).fallocate(file, PUNCH_HOLE | KEEP_SIZE, *span)
    os.close(file)
    return bool(made == 0)
