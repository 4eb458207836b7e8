"""A stream of bytes -> a sliding window over it: some history, the current bytes, some of the next.

A read that fails (a truncated `.gz` after a crash is normal) ends the stream; the bytes before it count.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from postmortem.input.streams import Readable

NUMPY_PAYS = 384 << 20  # its import costs as much as it saves on counting the lines of this many bytes
SHORT = 1 << 13  # below this the call of numpy takes longer than the count


class Reader:
    """`data[0]` is byte `base` of the source."""

    def __init__(self, stream: Readable, *, copy_up_to: int = -1) -> None:
        self.data = b""
        self.base = 0
        self.eof = False
        self.error = ""
        self.skip: object = None  # the ledger's row, of an `Incomplete`
        self.copy: list[bytes] | None = [] if copy_up_to >= 0 else None
        self._copy_up_to = copy_up_to
        self._stream = stream

    @property
    def total(self) -> int:
        """Return the number of bytes read of the source."""
        return self.base + len(self.data)

    def fill(self, drop: int, want: int) -> None:
        """Drop the first `drop` bytes of `data`, and read `want` more or the rest."""
        pieces: list[bytes | memoryview] = [memoryview(self.data)[drop:]]
        got = 0
        while got < want:
            piece = self._read(want - got)
            if not piece:
                self.eof = True
                break
            pieces.append(piece)
            got += len(piece)
        if not drop and len(pieces) == 1:
            return
        if self.copy is not None:
            if self.total + got > self._copy_up_to:
                self.copy = None
            else:
                self.copy += map(bytes, pieces[1:])
        self.data = bytes(pieces[-1]) if len(pieces) == 2 and not pieces[0] else b"".join(pieces)
        self.base += drop

    def _read(self, n: int) -> bytes:
        try:
            return self._stream.read(n) or b""
        except Exception as e:  # each codec and archive has errors of its own, and a log is hostile input
            self.skip = getattr(e, "skip", None)
            self.error = f"{type(e).__name__}: {str(e)[:200]}"
            return b""


class LineCounter:
    r"""Counts `\n`: CPython at 3 GB/s, numpy at 20, once the logs are large enough to pay for its import."""

    def __init__(self) -> None:
        self.counted = 0  # bytes, in all sources
        self._numpy: Any = None

    def newlines(self, data: bytes, start: int, end: int) -> int:
        size = end - start
        if size < SHORT:
            return data.count(b"\n", start, end)
        if self._numpy is None:
            self.counted += size
            if self.counted <= NUMPY_PAYS and "numpy" not in sys.modules:
                return data.count(b"\n", start, end)
            self.numpy()
        np = self._numpy
        return int(np.count_nonzero(np.frombuffer(data, np.uint8, size, start) == 10))

    def numpy(self) -> Any:
        self._numpy = self._numpy or import_module("numpy")
        return self._numpy

    def lines(self, data: bytes, start: int) -> int:
        """Return the number of lines, the last of which may lack its end."""
        return self.newlines(data, start, len(data)) + (data[-1:] != b"\n" and start < len(data))
