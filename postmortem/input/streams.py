"""The bytes of a log: of a file on disk, a compressed file, a member of an archive.

    File(fd, size) -> Decoded(File, "gz") -> Utf16(Decoded) -> .read(n)

Everything is read once, in order, in bounded pieces. `Incomplete` is raised after everything readable was
delivered, with the number of stored bytes that are lost.
"""

from __future__ import annotations

import codecs
import errno
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, cast

from postmortem.input.codecs import CODECS, Codec
from postmortem.model import Skip

AHEAD = 1 << 16  # bytes of a file that are read at least: its head
FEED = 1 << 14
STEP = 1 << 14  # small, because a decoder that fails at damaged bytes loses its last step
HOLE = 1 << 20
HOLE_SHOWN = 1 << 12  # NULs in place of a hole, so that the text before and after it is not one word


class Readable(Protocol):
    """The input of the scan: `read` returns up to n bytes, b"" only at the end; it may raise Incomplete."""

    def read(self, n: int, /) -> bytes: ...


class Incomplete(OSError):
    """Not all of a source could be read. Raised after everything readable; `skip` is the ledger's row."""

    def __init__(self, reason: str, lost: int, path: str = "", meant: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.lost = max(lost, 0)
        self.path = path
        self.meant = meant  # see `Skip`

    def __str__(self) -> str:
        return self.reason

    @property
    def skip(self) -> Skip:
        return Skip(self.path, self.lost, self.reason, self.meant)


@dataclass(frozen=True, slots=True)
class Limits:
    """Where reading one container stops: limits of work and memory. There is none of the compression ratio: a log
    of repeated lines packs 2,000 times, and the line that matters is its last."""

    total: int = 16 << 30  # bytes that a compressed container may expand to
    seconds: float = math.inf  # for all of a container
    members: int = 100_000
    depth: int = 2  # archives in archives
    spool: int = 64 << 20  # bytes of a zip in an archive, which is read into memory: its directory is at its end


class Bytes:
    """A stream with `peek`, made of `inner` if there is one. Subclasses implement `_pull`."""

    def __init__(self, inner: Bytes | None = None) -> None:
        self._inner = cast("Bytes", inner)
        self._ahead = b""
        self._ended = False
        self._failure: Incomplete | None = None

    def _pull(self, n: int) -> bytes:
        """Return some bytes, about n, or b"" at the end. May raise Incomplete, which ends the stream."""
        raise NotImplementedError

    def left(self) -> int:
        """Return the number of stored bytes that were not taken yet."""
        return self._inner.left()

    def peek(self, n: int) -> bytes:
        """Return the next n bytes, fewer at the end, without taking them."""
        if len(self._ahead) < n:
            self._ahead = self._gather(n)
        return self._ahead[:n]

    def read(self, n: int) -> bytes:
        out = self._gather(n)
        if len(out) > n:
            out, self._ahead = out[:n], out[n:]
        else:
            self._ahead = b""
            if not out and self._failure is not None:
                raise self._failure
        return out

    def pass_over(self, n: int) -> int:
        """Skip about n bytes, at most n. Return how many; 0 at the end."""
        return len(self.read(min(n, 1 << 18)))

    def _gather(self, n: int) -> bytes:
        have = len(self._ahead)
        if have >= n or self._ended:
            return self._ahead
        parts = [self._ahead] if have else []
        while have < n:
            try:
                piece = self._pull(n - have)
            except Incomplete as failure:
                self._failure, piece = failure, b""
            if not piece:
                self._ended = True
                break
            parts.append(piece)
            have += len(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class Descriptor:
    """An open file. Closing forgets the number: a later read fails instead of reading the number's next file."""

    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        number, self.number = self.number, -1
        os.close(number)


class File(Bytes):
    """A regular file on disk, read through its descriptor up to the size it had when it was found.

    mmap is not used: a log that is truncated while it is read would kill the process with SIGBUS.
    """

    def __init__(self, fd: Descriptor, size: int, at: int = 0) -> None:
        super().__init__()
        self.fd, self.at, self.size = fd, at, size
        self._holes = 0
        self._data_until = size

    @cached_property
    def is_sparse(self) -> bool:
        return os.fstat(self.fd.number).st_blocks * 512 < self.size

    def expect_holes(self) -> None:
        """Skip the holes of a sparse file, which `truncate -s 1T` and power losses make."""
        if self.is_sparse:
            self._data_until = self.at

    def left(self) -> int:
        return self.size - self.at + len(self._ahead)

    def read_at(self, at: int, n: int) -> bytes:
        """Return n bytes at an offset of the file."""
        return os.pread(self.fd.number, n, at)

    def pass_over(self, n: int) -> int:
        if self._ahead:
            return super().pass_over(min(n, len(self._ahead)))
        passed = min(n, self.left())
        self.at += passed
        return passed

    def _pull(self, n: int) -> bytes:
        try:
            if self.at >= self._data_until and self.at < self.size:
                start = self.at
                data, self._data_until = _extent(self.fd.number, start, self.size)
                if data - start < HOLE:
                    return self._pull(HOLE)
                self._holes += data - start - HOLE_SHOWN
                self.at = data
                return bytes(HOLE_SHOWN)
            n = min(n if self.is_sparse else max(n, AHEAD), self._data_until - self.at)
            if n <= 0:
                return self._end()
            piece = os.pread(self.fd.number, n, self.at)
        except Incomplete:
            raise
        except OSError as error:
            reason = f"read error at offset {self.at}: {os.strerror(error.errno or 0)}"
            raise Incomplete(reason, self.size - self.at + self._holes) from None
        if not piece:
            reason = f"shrank while it was read: ends at {self.at} of {self.size} bytes"
            raise Incomplete(reason, self.size - self.at + self._holes)
        self.at += len(piece)
        return piece

    def _end(self) -> bytes:
        if self._holes:
            raise Incomplete("holes of a sparse file, no data on disk", self._holes, meant=True)
        return b""


def _extent(fd: int, at: int, size: int) -> tuple[int, int]:
    """Return where the next data starts and ends; all is data where the file system has no answer."""
    try:
        data = min(os.lseek(fd, at, os.SEEK_DATA), size)
        return data, min(max(os.lseek(fd, data, os.SEEK_HOLE), at + 1), size) if data < size else size
    except OSError as error:
        if error.errno == errno.ENXIO and os.fstat(fd).st_size >= size:  # no data from here on
            return size, size
        return at, size


class InMemory(Bytes):
    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._ahead = data

    def _pull(self, n: int) -> bytes:
        return b""

    def left(self) -> int:
        return len(self._ahead)

    def read_at(self, at: int, n: int) -> bytes:
        """Return n bytes at an offset, while nothing was read yet."""
        return self._ahead[at : at + n]


class Refused(Bytes):
    """A source that is not read, with the reason."""

    def __init__(self, reason: str, lost: int, meant: bool = False) -> None:
        super().__init__()
        self._ended, self._failure = True, Incomplete(reason, lost, meant=meant)

    def left(self) -> int:
        return 0


class Budget:
    """The expanded bytes and the time of one container."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.total = 0
        self.ends = time.monotonic() + limits.seconds

    def spend(self, n: int) -> str | None:
        """Count n more bytes. Return why to stop, or None."""
        self.total += n
        return f"stopped at {self.limits.total} decompressed bytes" if self.total > self.limits.total else None

    def timed_out(self) -> str | None:
        """Return why to stop, or None."""
        if time.monotonic() > self.ends:
            return f"stopped after {self.limits.seconds:.0f} seconds"
        return None


class Decoded(Bytes):
    """A compressed stream: members, frames or streams one after the other."""

    def __init__(self, inner: Bytes, form: str, budget: Budget, codec: Callable[[], Codec] | None = None) -> None:
        super().__init__(inner)
        self._form, self._budget = form, budget
        self._single = codec is not None  # a zip member is one deflate stream, whatever follows it
        self._members = 1
        self._new = codec or CODECS[form]
        self._codec = self._new()
        self._unused = b""
        self._taken = self._out = self._fed_last = 0

    def _pull(self, n: int) -> bytes:
        while True:
            if self._codec.eof:
                if not self._advance():
                    return b""
                continue
            data = self._fed() if self._codec.needs_input else b""
            try:
                piece = self._codec.decompress(data, STEP)
            except MemoryError:
                raise
            except Exception as error:  # each codec has its own error class, and none of them means anything else
                lost = len(self._codec.unused_data) if self._codec.eof else self._fed_last
                reason = " ".join(str(error).split())[:80] or type(error).__name__
                where = f"near offset {self._taken}, {self._out} bytes decompressed"
                raise Incomplete(f"{self._form} damaged {where}: {reason}", lost + self.left()) from None
            self._out += len(piece)
            if why := self._budget.spend(len(piece)):
                raise Incomplete(f"{self._form} {why}", self.left())
            if piece:
                return piece

    def _fed(self) -> bytes:
        data, self._unused = self._unused or self._stored(), b""
        self._taken += len(data)
        self._fed_last = len(data)  # where a decoder fails, this much is not decoded to its end
        if not data:
            where = f"at offset {self._taken}, {self._out} bytes decompressed"
            raise Incomplete(f"{self._form} ends early: truncated {where}", 0)
        return data

    def _advance(self) -> bool:
        """Start the next member, if there is one. NULs may pad members."""
        rest = self._codec.unused_data
        self._taken -= len(rest)
        while not (rest := rest.lstrip(b"\0")):
            rest = self._stored()
            if not rest:
                return False
        if self._single:
            return False
        self._members += 1
        # `rest` may start another member; a cut magic counts, it is a truncated member
        magics = {"gz": b"\x1f\x8b\x08", "xz": b"\xfd7zXZ\0", "bz2": b"BZh", "zst": b"\x28\xb5\x2f\xfd",
                  "lz4": b"\x04\x22\x4d\x18"}  # fmt: skip
        magic = magics.get(self._form, b"")
        head = rest[: len(magic)]
        if not (magic.startswith(head) or (self._form == "zst" and rest[1:4] == b"\x2a\x4d\x18"[: len(rest) - 1])):
            reason = f"bytes after the end of the {self._form} data, at offset {self._taken}"
            raise Incomplete(reason, len(rest) + self.left())
        if self._members > self._budget.limits.members:
            raise Incomplete(f"{self._form}: more than {self._budget.limits.members} members", len(rest) + self.left())
        self._unused, self._codec = rest, self._new()
        return True

    def _stored(self) -> bytes:
        try:
            return self._inner.read(FEED)
        except Incomplete as failure:
            raise Incomplete(f"{self._form}: {failure.reason}", failure.lost) from None


class Utf16(Bytes):
    """UTF-16 text as UTF-8. PowerShell's `>` and some Windows collectors write it, with a byte order mark or not."""

    def __init__(self, inner: Bytes, order: str) -> None:
        super().__init__(inner)
        self._decoder = codecs.getincrementaldecoder(f"utf-16-{order}")("backslashreplace")
        self._first = True
        self._done = False

    def _pull(self, n: int) -> bytes:
        while not self._done:
            try:
                data = self._inner.read(max(1 << 16, n))
            except Incomplete:
                self._done = True
                raise
            self._done = not data
            text = self._decoder.decode(data, final=not data)
            if self._first and text:
                text, self._first = text.removeprefix("\ufeff"), False
            if text:
                return text.encode("utf-8", "surrogatepass")
        return b""


def utf16_order(head: bytes) -> str | None:
    """Return the byte order of UTF-16 text ("le", "be") by its mark or by NULs in every other byte, or None."""
    if head[:2] == b"\xff\xfe" and head[2:4] != b"\0\0":
        return "le"
    if head[:2] == b"\xfe\xff":
        return "be"
    sample = head[:4096]
    if len(sample) < 8 or b"\0" not in sample:
        return None
    half = len(sample) // 2
    even, odd = sample[::2].count(0) / half, sample[1::2].count(0) / half
    if odd > 0.6 and even < 0.05:
        return "le"
    return "be" if even > 0.6 and odd < 0.05 else None
