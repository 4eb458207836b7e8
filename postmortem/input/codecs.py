"""Compressed bytes -> bytes, a bounded piece at a time, for gzip, xz, bzip2, zstd, lz4 and raw deflate.

    b"\\x1f\\x8b\\x08..." -> Gzip;  b"\\x28\\xb5\\x2f\\xfd..." -> Zstd

A codec decodes one member (gzip), stream (xz, bz2) or frame (zstd). What follows its end is in `unused_data`,
because logs are rotated by appending: `cat old.gz new.gz` and zstd's multi-frame files are one log.
"""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable
from typing import Any, Protocol

GZIP_HEADER_MAX = 1 << 16  # of 10 bytes and three optional texts (RFC 1952)
ZSTD_SLICE = 1 << 10  # 4 input bytes can expand to 128 KiB (an RLE block), and the decoder has no limit of output
XZ_MEMORY = 256 << 20


class Damaged(Exception):
    """The bytes are no such stream, or its checksum differs."""


class Codec(Protocol):
    """The interface of `bz2.BZ2Decompressor`, which all of them follow."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class Gzip:
    """One gzip member. The trailer is checked after the data was delivered: the tail of a log matters most."""

    def __init__(self) -> None:
        self._pending = b""
        self._body: Any = None
        self._trailer: bytes | None = None
        self.eof = False
        self.unused_data = b""

    @property
    def needs_input(self) -> bool:
        if self._trailer is not None:
            return not self._pending
        return self._body is None or bool(self._body.needs_input)

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        if self._trailer is not None:
            return self._finish(data)
        if self._body is None:
            self._pending += data
            end = _gzip_header_end(self._pending)
            if end is None:
                return b""
            data, self._pending = self._pending[end:], b""
            self._body = inflater(checksum=True)
        out: bytes = self._body.decompress(data, max_length)
        if self._body.eof:
            self._trailer = b""
            if not out:
                return self._finish(self._body.unused_data)
            self._pending = self._body.unused_data
        return out

    def _finish(self, data: bytes) -> bytes:
        assert self._trailer is not None
        self._trailer += self._pending + data
        self._pending = b""
        if len(self._trailer) >= 8:
            self.eof, self.unused_data = True, self._trailer[8:]
            if int.from_bytes(self._trailer[:4], "little") != self._body.crc:
                raise Damaged("checksum differs")
        return b""


def _gzip_header_end(data: bytes) -> int | None:
    """Return where the deflate data starts, or None while the header is not complete."""
    if len(data) < 10:
        return None
    flags, at = data[3], 10
    if flags & 4:
        if len(data) < 12:
            return None
        at = 12 + int.from_bytes(data[10:12], "little")
    for bit in (8, 16):  # file name, comment: texts that end in NUL
        if flags & bit:
            at = data.find(b"\0", at, GZIP_HEADER_MAX) + 1
            if at == 0:
                if len(data) > GZIP_HEADER_MAX:
                    raise Damaged("header without end")
                return None
    at += 2 if flags & 2 else 0
    return at if len(data) >= at else None


class Zstd:
    """One zstd frame, fed in slices because a call has no limit of output."""

    def __init__(self) -> None:
        import zstandard

        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._error = zstandard.ZstdError
        self._pending = b""

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def needs_input(self) -> bool:
        return not self._pending

    @property
    def unused_data(self) -> bytes:
        return bytes(self._frame.unused_data) + self._pending

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        self._pending += data
        piece, self._pending = self._pending[:ZSTD_SLICE], self._pending[ZSTD_SLICE:]
        try:
            return bytes(self._frame.decompress(piece))
        except self._error as error:
            raise Damaged(str(error)) from None


def inflater(checksum: bool = False) -> Codec:
    """Return a decoder of raw deflate data, as gzip members and zip members hold it."""
    from isal import igzip_lib

    flag = igzip_lib.DECOMP_GZIP_NO_HDR if checksum else igzip_lib.DECOMP_DEFLATE
    codec: Codec = igzip_lib.IgzipDecompressor(flag=flag)
    return codec


def _xz() -> Codec:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)


def _lz4() -> Codec:
    import lz4.frame

    codec: Codec = lz4.frame.LZ4FrameDecompressor()
    return codec


CODECS: dict[str, Callable[[], Codec]] = {
    "gz": Gzip, "xz": _xz, "bz2": bz2.BZ2Decompressor, "zst": Zstd, "lz4": _lz4,
}  # fmt: skip


def compression(head: bytes) -> str | None:
    """Return the compression of a file by its magic bytes: gz, xz, bz2, zst, lz4, or None."""
    if head[:3] == b"\x1f\x8b\x08":
        return "gz"
    if head[:6] == b"\xfd7zXZ\0":
        return "xz"
    if head[:3] == b"BZh" and head[3:4] in b"123456789" and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):
        return "bz2"
    if head[:4] == b"\x04\x22\x4d\x18":
        return "lz4"
    if head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F):
        return "zst"  # the second form is a skippable frame, which pzstd writes first
    return None
