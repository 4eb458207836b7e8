"""A tar whose members are complete as soon as they are written, so that a killed writer leaves a readable archive.

    Archive(fd, "zst").add("host=node-a/kernel.log", b"...", 1795000000.0)

Each member is one compressed frame (a gzip member, a zstd frame), written before the next one begins. A member
that does not fit is removed again, so that the archive ends behind the last one that did.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import time
from contextlib import suppress

SYNC = 1.0  # seconds
RESERVE = 256 << 10  # bytes for the index, where the archive fills the disk


class Archive:
    """An open archive. `form` is zst, gz, or empty for a plain tar."""

    def __init__(self, fd: int, form: str, reserve: str = "") -> None:
        self._fd, self._form = fd, form
        self._size, self._synced = 0, 0.0
        self._is_file = os.path.isfile(f"/proc/self/fd/{fd}")
        self._reserve = _reserved(f"{reserve}.reserve") if reserve else -1

    def add(self, name: str, data: bytes, changed: float) -> None:
        """Append one member. Raise OSError if it does not fit."""
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = len(data), int(changed), 0o600
        head = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        self._append(head + data + b"\0" * (-len(data) % tarfile.BLOCKSIZE))

    def add_last(self, name: str, data: bytes, changed: float) -> None:
        """Append the index in the space reserved for it, and the end of the archive."""
        self._release()
        self.add(name, data, changed)
        self._synced = 0.0
        self._append(b"\0" * 2 * tarfile.BLOCKSIZE)

    def close(self) -> None:
        self._release()
        os.close(self._fd)

    def _release(self) -> None:
        fd, self._reserve = self._reserve, -1
        if fd >= 0:
            os.close(fd)

    def _append(self, data: bytes) -> None:
        if self._form == "zst":
            import zstandard

            data = zstandard.ZstdCompressor(level=6).compress(data)
        elif self._form == "gz":
            data = gzip.compress(data, 6)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(self._fd, left) :]
            # once a second: hundreds of hosts may answer at once, and a host that fails loses one second
            if self._is_file and time.monotonic() - self._synced > SYNC:
                os.fsync(self._fd)
                self._synced = time.monotonic()
            self._size += len(data)
        except BaseException:  # also a signal: the index follows
            if self._is_file:
                os.ftruncate(self._fd, self._size)
                os.lseek(self._fd, self._size, os.SEEK_SET)
            raise


def _reserved(path: str) -> int:
    """Return the descriptor of an unnamed file that holds space on the same disk."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return -1
    with suppress(OSError):
        os.unlink(path)
        free = os.statvfs(f"/proc/self/fd/{fd}")
        # at most an eighth of the free space; no zeros, since some file systems do not store them
        os.write(fd, os.urandom(min(RESERVE, free.f_bavail * free.f_frsize // 8)))
    return fd
