"""tar and zip, read as streams: nothing is unpacked to disk, a member's name is a label and never a path.

    bundle.tar.gz -> ("node-a/rank0.log", 5120, <stream>), ("node-a/latest", 0, <refused: symbolic link>), ...

The tar reader is our own because the standard library's reads a name record of any size into memory, and stops
silently where an archive is cut. A member must be read, or left, before the next one.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from postmortem.input.codecs import CODECS, inflater
from postmortem.input.streams import Budget, Bytes, Decoded, File, Incomplete, InMemory, Refused

BLOCK = 512
NAME_MAX = 1 << 16
ZERO_TAIL_MAX = 2048  # blocks; archives are padded to 10 KiB or to a tape's record
DIRECTORY_MAX = 16 << 20  # of a zip, which has 46 bytes and a name for each member; each takes a kilobyte of memory
PAX_LENGTH = re.compile(rb"(\d{1,9}) ")
KINDS = {b"1": "hard link", b"2": "symbolic link", b"3": "character device", b"4": "block device", b"6": "FIFO"}


class Member(NamedTuple):
    """One member: its name as stored, its bytes in the archive and when expanded, its stream."""

    name: bytes
    stored: int
    size: int
    stream: Bytes


def is_tar(head: bytes) -> bool:
    """True where a head has the checksum of a tar header: V7 archives have no magic bytes."""
    return len(head) >= BLOCK and head[0] != 0 and _checksum_fits(head[:BLOCK])


def is_zip(head: bytes) -> bool:
    """True for a zip with members, and for an empty one."""
    return head[:4] in (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")


# ── tar ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Header:
    name: bytes
    size: int
    kind: bytes
    extended: bool  # old GNU sparse: more header blocks follow


class _TarData(Bytes):
    def __init__(self, tar: Tar, size: int) -> None:
        super().__init__()
        self._tar, self._size, self._rest = tar, size, size

    def left(self) -> int:
        return self._rest

    def _pull(self, n: int) -> bytes:
        if not self._rest:
            return b""
        piece = self._tar.take(min(n, self._rest))
        self._rest -= len(piece)
        if not piece:
            done = self._size - self._rest
            raise Incomplete(f"truncated: the archive ends after {done} of its {self._size} bytes", 0)
        return piece

    def drain(self) -> None:
        """Pass over the rest of the member."""
        while self._rest and (passed := self._tar.pass_over(self._rest)):
            self._rest -= passed


class Tar:
    """The members of a tar, in stream order. `failure` is why the archive could not be read to its end."""

    def __init__(self, inner: Bytes) -> None:
        self._inner = inner
        self._at = 0
        self.failure: Incomplete | None = None

    def take(self, n: int) -> bytes:
        """Return up to n bytes of the archive, b"" at its end or where it breaks."""
        if self.failure is None:
            with self._failing():
                data = self._inner.read(n)
                self._at += len(data)
                return data
        return b""

    def pass_over(self, n: int) -> int:
        """Leave up to n bytes out. Return how many, 0 at the end."""
        if self.failure is None:
            with self._failing():
                passed = self._inner.pass_over(n)
                self._at += passed
                return passed
        return 0

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except Incomplete as failure:
            self.failure = Incomplete(failure.reason, failure.lost)

    def __iter__(self) -> Iterator[Member]:
        name: bytes | None = None
        size: int | None = None
        while (header := self._next_header()) is not None:
            if header.kind in b"xgLK" and header.kind:
                record = self._record(header.size)
                if header.kind == b"L":
                    name = record.rstrip(b"\0")
                elif header.kind == b"x":
                    found = _pax(record)
                    name = found.get(b"GNU.sparse.name") or found.get(b"path", name)
                    size = _decimal(found.get(b"size"), size)
                continue
            member = self._member(name or header.name, header, header.size if size is None else size)
            name = size = None
            if member is not None:
                yield member
                if isinstance(member.stream, _TarData):
                    member.stream.drain()
                    self._pad(member.stored)

    def _member(self, name: bytes, header: _Header, size: int) -> Member | None:
        while header.extended:  # old GNU sparse: 21 more extents in each block
            block = self.take(BLOCK)
            header.extended = len(block) == BLOCK and block[504] == 1
        if header.kind in KINDS:
            return Member(name, 0, 0, Refused(f"{KINDS[header.kind]} in an archive: not followed", 0, meant=True))
        if header.kind == b"5" or name.endswith(b"/"):
            self._skip(size)
            return None
        return Member(name, size, size, _TarData(self, size))

    def _next_header(self) -> _Header | None:
        zeros = 0
        while self.failure is None:
            block = self.take(BLOCK)
            if not block:
                return None
            if not block.strip(b"\0"):
                zeros += 1  # two mark the end; but `cat a.tar b.tar` goes on after them
                if zeros > ZERO_TAIL_MAX:
                    self.failure = Incomplete("only zeros after the end of the archive", self._inner.left())
                continue
            if len(block) < BLOCK:
                self.failure = Incomplete(f"tar ends early: truncated in a header at offset {self._at}", 0)
            elif not _checksum_fits(block):
                reason = f"tar damaged: no header at offset {self._at - BLOCK}"
                self.failure = Incomplete(reason, self._inner.left() + BLOCK)
            else:
                return _parse(block)
        return None

    def _record(self, size: int) -> bytes:
        """Read the data of a name record, in bounded memory."""
        data = b""
        while len(data) < min(size, NAME_MAX):
            piece = self.take(min(size, NAME_MAX) - len(data))
            if not piece:
                return data
            data += piece
        self._skip(size - len(data), already=len(data))
        return data

    def _skip(self, n: int, already: int = 0) -> None:
        data = _TarData(self, n)
        data.drain()
        self._pad(n + already)

    def _pad(self, size: int) -> None:
        if size % BLOCK:
            self.take(BLOCK - size % BLOCK)


def _checksum_fits(block: bytes) -> bool:
    try:
        want = int(block[148:156].split(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        return False
    plain = sum(block) - sum(block[148:156]) + 8 * 32
    if want == plain:
        return True
    signed = sum(struct.unpack("148b8x356b", block)) + 8 * 32  # some old tars summed signed bytes
    return bool(want == signed)


def _parse(block: bytes) -> _Header:
    name = block[:100].split(b"\0")[0]
    kind = b"" if block[156:157] == b"\0" else block[156:157]
    if block[257:263] == b"ustar\0":
        prefix = block[345:500].split(b"\0")[0]
        name = prefix + b"/" + name if prefix else name
    size = _number(block[124:136])
    if kind in KINDS and kind != b"1":
        size = 0
    return _Header(name, 0 if kind in (b"1", b"2", b"5") else size, kind, kind == b"S" and block[482] == 1)


def _number(field: bytes) -> int:
    # GNU base-256, for members of 8 GiB and more; the sign bit would mean a negative size
    if field[0] & 0x80:
        return 0 if field[0] & 0x40 else int.from_bytes(field, "big") & ((1 << 94) - 1)
    try:
        return int(field.split(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        return 0


def _decimal(text: bytes | None, default: int | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and len(text) < 20 else default


def _pax(record: bytes) -> dict[bytes, bytes]:
    """Read `27 path=node-a/rank0.log\\n` records."""
    found: dict[bytes, bytes] = {}
    at = 0
    while m := PAX_LENGTH.match(record, at):
        length = int(m[1])
        key, _, value = record[m.end() : at + length - 1].partition(b"=")
        if length < 5 or at + length > len(record):
            break
        found[key] = value
        at += length
    return found


# ── zip ─────────────────────────────────────────────────────────────────────────────────────────────────────


class _Window(io.RawIOBase):
    """A seekable file for zipfile, bounded by the size when it was found."""

    def __init__(self, read_at: Callable[[int, int], bytes], size: int) -> None:
        self._read_at, self._size, self._pos = read_at, size, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._pos = max(0, offset + (0, self._pos, self._size)[whence])
        return self._pos

    def tell(self) -> int:
        return self._pos

    def read(self, n: int = -1) -> bytes:
        n = max(self._size - self._pos, 0) if n is None or n < 0 else n
        if n > DIRECTORY_MAX + (1 << 17):
            raise zipfile.BadZipFile("directory too large")
        data = self._read_at(self._pos, min(n, max(self._size - self._pos, 0)))
        self._pos += len(data)
        return data


class _Checked(Bytes):
    """A member's data; its checksum is compared at the end."""

    def __init__(self, inner: Bytes, checksum: int) -> None:
        super().__init__(inner)
        self._want, self._crc = checksum, 0

    def _pull(self, n: int) -> bytes:
        piece = self._inner.read(n)
        self._crc = zlib.crc32(piece, self._crc)
        if not piece and self._crc != self._want:
            raise Incomplete("zip member damaged: checksum differs", 0)
        return piece


def zip_members(source: File | InMemory, budget: Budget) -> Iterator[Member]:
    """Yield the members of a zip by its directory, in stored order. Raise Incomplete where it cannot be read."""
    size = source.left()
    read_at = source.read_at
    try:
        infos = zipfile.ZipFile(_Window(read_at, size)).infolist()
    except Incomplete:
        raise
    except Exception as error:  # zipfile lets struct.error, UnicodeDecodeError, OverflowError and others through
        reason = " ".join(str(error).split())[:60]
        raise Incomplete(f"zip without a readable directory, truncated? ({reason})", size) from None
    infos.sort(key=lambda info: info.header_offset)
    end = 0
    for info in infos[: budget.limits.members]:
        if info.filename.endswith("/"):  # is_dir() of Python 3.11 raises on a name without a letter
            continue
        stored = min(info.compress_size, size)
        if info.header_offset < end:
            stream: Bytes = Refused("overlaps another member of the zip", 0)
        else:
            stream, end = _zip_stream(info, source, budget)
        yield Member(info.orig_filename.encode("utf-8", "surrogateescape"), stored, info.file_size, stream)
    if len(infos) > budget.limits.members:
        raise Incomplete(f"zip with {len(infos)} members, read {budget.limits.members}", max(size - end, 0))


def _zip_stream(info: zipfile.ZipInfo, source: File | InMemory, budget: Budget) -> tuple[Bytes, int]:
    """Open one member. Return its stream and where it ends."""
    stored = info.compress_size
    head = source.read_at(info.header_offset, 30) if info.header_offset >= 0 else b""
    if len(head) < 30 or head[:4] != b"PK\x03\x04":
        return Refused("no member at its place in the zip", 0), info.header_offset
    names = int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
    start = info.header_offset + 30 + names
    if start + stored > source.left():
        return Refused("truncated: the zip ends before this member", max(source.left() - start, 0)), source.left()
    end = start + stored
    if info.flag_bits & 1:
        return Refused("encrypted", stored), end
    inner = File(source.fd, end, start) if isinstance(source, File) else InMemory(source.read_at(start, stored))
    if info.compress_type == 0:
        return _Checked(inner, info.CRC), end
    codec = {8: inflater, 12: CODECS["bz2"], 93: CODECS["zst"], 95: CODECS["xz"]}.get(info.compress_type)
    if codec is None:
        return Refused(f"zip compression method {info.compress_type} is not read", stored), end
    return _Checked(Decoded(inner, "zip", budget, codec), info.CRC), end
