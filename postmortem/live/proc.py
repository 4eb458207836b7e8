"""Files of `/proc` and the like, read without errors: a process that has just ended has empty ones.

Runs on Python 3.8 with the standard library only: `postmortem collect` sends this module to other hosts.
"""

from __future__ import annotations

import os


def read(path: str, limit: int = 1 << 17) -> bytes:
    """Return the content of a small file; empty if it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, limit)
    except OSError:
        return b""
    finally:
        os.close(file)


def text(path: str) -> str:
    """Return the same as text without the line end."""
    return read(path).decode("utf-8", "replace").strip()


def stat(pid: int) -> list[bytes]:
    """Return the fields of `/proc/PID/stat` behind the name: state, parent, ...; empty if there are none."""
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def state(pid: int) -> str:
    """Return `R`, `S`, `D`, `T`, `Z` as in `ps`; empty if there is no such process."""
    return b"".join(stat(pid)[:1]).decode("ascii", "replace")


def alive(pid: int) -> bool:
    return state(pid) not in ("", "Z", "X")
