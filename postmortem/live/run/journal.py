"""The folder of a run and its journal.

Each record of `run.jsonl` is a JSON object on one line, with a sentence in `message`, written at once: it is complete
even if the wrapper is killed. `docs/how-to/run.md` lists the other files of the folder.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

RUNS = "postmortem-runs"
RESERVE, FILES = 1 << 24, 1000  # free bytes and files that are left to the job; on a small disk a part of it:
SHARE = 2
MOST_BYTES = 1 << 26  # bytes of a journal, in which every process that a signal kills has a line
JOURNAL = "run.jsonl"
REPORT = "report.html"
_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"


def print_line(text: str) -> None:
    """Print one line on standard error, if that is open."""
    try:
        sys.stderr.write(f"postmortem: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass


def stamp(moment: float) -> str:
    """Return `2026-11-23T07:05:12.123456Z`."""
    return f"{datetime.fromtimestamp(moment, UTC).isoformat(timespec='microseconds')[:-6]}Z"


def has_room(path: int | Path, reserve: int = RESERVE) -> bool:
    """Return whether a disk, by a file or a descriptor of it, has more room than the job may need."""
    disk = os.statvfs(path)
    if disk.f_files and disk.f_favail <= min(FILES, disk.f_files // SHARE):
        return False
    return disk.f_bavail > min(reserve // disk.f_frsize, disk.f_blocks // SHARE)


def make_folder(parent: Path) -> Path | None:
    """Return a new folder below `parent`; None, and the reason printed, if that fails."""
    began = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    for _ in range(8):
        folder = parent / f"{began}-{''.join(secrets.choice(_LETTERS) for _ in range(4))}"
        try:
            if not has_room(next(path for path in folder.absolute().parents if path.exists())):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            folder.mkdir(parents=True, mode=0o700)
            return folder.absolute()
        except FileExistsError:  # another host of the job, in the same second
            continue
        except OSError as error:
            print_line(f"no evidence of this run is saved: {folder}: {error.strerror}")
            return None
    return None


class Journal:
    """`run.jsonl`: appends records, and never raises. Without a folder it writes nothing."""

    def __init__(self, folder: Path | None, host: str) -> None:
        self.host = host
        self._file, self._told = -1, False
        if folder is not None:
            try:
                self._file = os.open(folder / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            except OSError as error:
                print_line(f"no {JOURNAL} in {folder}: {error.strerror}")

    def write(self, event: str, message: str, facts: Mapping[str, object] | None = None) -> None:
        if self._file >= 0:
            record = {"time": stamp(time.time()), "host": self.host, "event": event, "message": message}
            try:
                if os.fstat(self._file).st_size > MOST_BYTES:
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
                if not has_room(self._file):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.write(self._file, (json.dumps(record | dict(facts or {})) + "\n").encode("ascii"))
            except OSError as error:
                if not self._told:
                    self._told = True
                    print_line(f"{JOURNAL} is not complete: {error.strerror}")

    def close(self) -> None:
        if self._file >= 0:
            file, self._file = self._file, -1
            with suppress(OSError):
                os.close(file)
