"""The file of a stream: each line behind the time of its first byte, the beginning and the end of a long output.

    stdout.log.2    the first 42 MiB of an output that is larger
    stdout.log.1    what came before stdout.log; anything between it and the beginning is not kept
    stdout.log      the end

The job needs its disk more than we do: nothing is kept while less than RESERVE is free.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from postmortem.live.run.journal import has_room, print_line, stamp

MOST_BYTES = 1 << 28  # bytes of both streams
PART = MOST_BYTES // 6
RESERVE = 1 << 28  # free bytes
LOOK_S = 0.1  # between two looks at the disk


class StreamLog:
    """The file of one stream. Never raises."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self._path = folder / f"{name}.log" if folder else None
        self._file, self._size = -1, 0
        self._at_line_start = True
        self._room, self._due = True, 0.0
        self._lost = self._told = False
        if self._path:
            self._open(os.O_APPEND)

    def _open(self, how: int) -> None:
        try:
            assert self._path
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o600)
            self._size = os.fstat(self._file).st_size
        except OSError as error:
            self._report(str(error.strerror))

    def save(self, piece: bytes) -> None:
        """Append a piece of the stream."""
        if self._file < 0:
            return
        time_stamp = stamp(time.time()).encode("ascii") + b" "
        text = piece.replace(b"\n", b"\n" + time_stamp)
        if self._at_line_start or self._lost:
            text = (b"\n" if self._lost else b"") + time_stamp + text
        self._at_line_start = piece.endswith(b"\n")
        if self._at_line_start:
            text = text[: -len(time_stamp)]
        self._lost = True
        try:
            if not self._has_room():
                os.utime(self._file)  # the job is not silent
                return self._report("too little space is left on the disk")
            while text:
                text = text[os.write(self._file, text) :]
            self._lost = False
            if os.fstat(self._file).st_size >= PART:
                self._rotate()
        except OSError as error:
            self._report(str(error.strerror))
        return None

    def _has_room(self) -> bool:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + LOOK_S
            with suppress(OSError):
                self._room = has_room(self._file, RESERVE)
        return self._room

    def _rotate(self) -> None:
        """Begin another file, in place of the middle of the output."""
        assert self._path
        first, before = (self._path.with_name(f"{self._path.name}.{number}") for number in (2, 1))
        self._path.replace(before if first.exists() else first)
        os.close(self._file)
        self._file, self._at_line_start = -1, True
        self._open(os.O_EXCL)

    def _report(self, why: str) -> None:
        if not self._told and self._path:
            self._told = True
            print_line(f"{self._path.name} is incomplete; the command continues: {why}")
