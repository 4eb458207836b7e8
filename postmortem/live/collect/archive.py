"""A tar that is written as it goes: whoever is killed in the middle leaves an archive that can be read.

    Archive(fd, "zst").add("host=node-a/kernel.log", b"...")

Each member is one compressed frame (a gzip member, a zstd frame) that is written before the next begins. What
does not fit is taken back, so that the archive ends behind the last member that did.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress

SYNC = 1.0  # seconds
RESERVE = 256 << 10  # bytes for the index, where the archive fills the disk


class Archive:
    """An open archive. `form` is zst, gz, or none for a plain tar."""

    def __init__(self, fd: int, form: str, reserve: str = "") -> None:
        self._fd, self._packed = fd, _packing(form)
        self._kept, self._synced = 0, 0.0
        self._files = os.path.isfile(f"/proc/self/fd/{fd}")
        self._reserve = _reserved(reserve) if reserve else -1

    def add(self, name: str, data: bytes, changed: float) -> int:
        """Append one member; return the bytes that it takes. Raise OSError, and take back what was
        written."""
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = len(data), int(changed), 0o600
        head = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        return self._append(head + data + b"\0" * (-len(data) % tarfile.BLOCKSIZE))

    def last(self, name: str, data: bytes, changed: float) -> None:
        """Append the index in the room that was kept for it, and the end of the archive."""
        self._release()
        self.add(name, data, changed)
        self._synced = 0.0
        self._append(b"\0" * 2 * tarfile.BLOCKSIZE)

    def close(self) -> None:
        self._release()
        os.close(self._fd)

    def _sync(self) -> None:
        """Once a second, since hundreds of hosts may answer at once: who kills this process loses nothing,
        and a host that fails one second."""
        if self._files and time.monotonic() - self._synced > SYNC:
            os.fsync(self._fd)
            self._synced = time.monotonic()

    def _release(self) -> None:
        fd, self._reserve = self._reserve, -1
        if fd >= 0:
            os.close(fd)

    def _append(self, data: bytes) -> int:
        packed = self._packed(data)
        try:
            left = memoryview(packed)
            while left:
                left = left[os.write(self._fd, left) :]
            self._sync()
            self._kept += len(packed)
        except BaseException:  # a signal too: the index will follow
            if self._files:
                os.ftruncate(self._fd, self._kept)
                os.lseek(self._fd, self._kept, os.SEEK_SET)
            raise
        return len(packed)


def _packing(form: str) -> Callable[[bytes], bytes]:
    if form == "zst":
        import zstandard

        return zstandard.ZstdCompressor(level=6).compress
    if form == "gz":
        return lambda data: gzip.compress(data, 6)
    return bytes


def _reserved(beside: str) -> int:
    """Room on the same disk, held by a file without a name."""
    path = f"{beside}.reserve"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return -1
    with suppress(OSError):
        os.unlink(path)
    with suppress(OSError):
        free = os.statvfs(f"/proc/self/fd/{fd}")
        # an eighth where there is little; no zeros, of which some file systems keep nothing
        os.write(fd, os.urandom(min(RESERVE, free.f_bavail * free.f_frsize // 8)))
    return fd
