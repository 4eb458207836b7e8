"""A binary document that is read in parts, where most of it is not needed: of 40 GB of a core file some 200 KB.

parts = Parts(stream)
parts.take(0, 64)                  at any place of a file on disk; only forward in a compressed stream
parts.taken, parts.at              bytes read, and the place behind the last of them
"""

from __future__ import annotations

from typing import Protocol

KEPT = 32 << 20  # bytes of its beginning that are kept: gcore writes the notes behind the memory
AHEAD = 2 << 30  # bytes of a compressed stream that are passed over


class Stream(Protocol):
    """A source's bytes (`input.open.Stream`). Each call may raise `Incomplete`."""

    def read(self, n: int, /) -> bytes: ...
    def read_at(self, at: int, n: int, /) -> bytes | None: ...  # None where it can only be read forward
    def pass_over(self, n: int, /) -> int: ...


class Parts:
    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._head = b""  # what was read from the beginning without a gap
        self.at = self.taken = 0
        self.ended = False  # the stream ended before a part that was wanted

    def take(self, at: int, n: int) -> bytes:
        """Return n bytes from `at` on; fewer where they are out of reach."""
        if at < 0 or n <= 0 or at >= 1 << 62:
            return b""
        if at + n <= len(self._head):
            return self._head[at : at + n]
        found = self._stream.read_at(at, n)
        if found is not None:
            self.taken, self.at = self.taken + len(found), max(self.at, at + len(found))
            self.ended = self.ended or len(found) < n
            return found
        known = self._head[at:]
        if at + len(known) < self.at or at - self.at > AHEAD:
            return known
        try:
            if at <= KEPT and self.at == len(self._head):
                self._read(at - self.at)
            while self.at < at:
                if not (passed := self._stream.pass_over(at - self.at)):
                    self.ended = True
                    return known
                self.at += passed
            return known + self._read(n - len(known))
        except OSError:  # `Incomplete`: cut or damaged
            self.ended = True
            return known

    def _read(self, n: int) -> bytes:
        """The next n bytes; fewer at the end."""
        pieces: list[bytes] = []
        while (left := n - sum(map(len, pieces))) > 0 and (piece := self._stream.read(left)):
            pieces.append(piece)
        found = b"".join(pieces)
        if self.at == len(self._head):
            self._head += found
        self.at, self.taken = self.at + len(found), self.taken + len(found)
        self.ended = self.ended or len(found) < n
        return found
