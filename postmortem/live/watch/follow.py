"""Files that grow, rotate, appear and are cut short: what is new in them, in whole lines.

    Follower(["logs/"]).new()  ->  Piece(source, head, b"step 12 loss 0.31\\n"), ...

A file is known by its device and inode, so one that is renamed is read on under its new name, and the new one
under the old name from its beginning. One that is shorter than what was read of it, or begins otherwise, was
cut (`copytruncate`) and is read anew; its copy holds nothing new. No file stays open, and of each no more is
kept than its first lines, which tell how lines are built, and the line that is not whole yet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from postmortem import input as collect
from postmortem.errors import PathMissing
from postmortem.input import Container
from postmortem.input.open import open_regular
from postmortem.model import Source

HEAD = 16 << 10  # of a file, kept
MARK = 256  # bytes by which a file's beginning is known again
TAIL = 1 << 20  # of what was there before: the rest is ordinary, and old
PIECE = 4 << 20  # of one file, one round
CUT = 1024  # files that were cut and are known again
LINE = 64 << 10  # of a line without an end
SPOKEN = frozenset({"console", "agent", "json-lines", "ray", "scheduler", "run"})
OURS = "standstill-"  # how folders of evidence are called
LOOK_S, SHARE = 2.0, 50  # between two walks through the folders; and the part of the time that they may take


@dataclass(frozen=True, slots=True)
class Piece:
    """What a file has said since the last round."""

    source: Source
    path: str
    head: bytes  # first whole lines of the file, which stand in front of `text` already or here
    text: bytes
    old: bool = False  # it stood there before we came
    changed: float = 0.0  # when the file did, by its own clock


@dataclass(slots=True)
class _File:
    """How far one file was read."""

    container: Container
    source: Source | None = None
    at: int = 0
    head: bytes = b""
    mark: bytes = b""
    rest: bytes = b""
    first: bool = True  # nothing of it was read before
    asked: int = -1  # its size when it was last asked what it is


class Follower:
    """All files below some paths. In `leave` are folders of our own."""

    def __init__(self, paths: Sequence[str], leave: Sequence[Path] = ()) -> None:
        self.paths, self.leave = list(paths), list(leave)
        self._files: dict[tuple[int, int], _File] = {}
        self._due = 0.0
        self._marks: dict[bytes, tuple[int, int]] = {}  # beginnings of files that were cut
        self._come = True  # the first walk: what is there now was there before
        self._walk(first=True)

    @property
    def known(self) -> list[str]:
        return [str(file.container.path) for file in self._files.values()]

    def new(self) -> Iterator[Piece]:
        """What came since the last round. A file that cannot be read now is read in a later one."""
        if time.monotonic() >= self._due:
            self._walk()
        for key, file in list(self._files.items()):
            try:
                piece = self._read(key, file)
            except OSError:
                continue
            if piece is not None:
                yield piece

    def _walk(self, first: bool = False) -> None:
        began = time.monotonic()
        try:
            found = collect.collect(self.paths).containers
        except PathMissing:
            if first:
                raise
            found = ()
        there = set()
        for container in found:
            if container.url or container.form != "plain" or self._is_ours(container.path):
                continue
            try:
                info = os.lstat(container.path)
            except OSError:
                continue
            key = (info.st_dev, info.st_ino)
            there.add(key)
            if key in self._files:
                self._files[key].container = container
            else:
                self._files[key] = _File(container, first=self._come)
        for key in [key for key in self._files if key not in there]:
            del self._files[key]
        self._come = False
        spent = time.monotonic() - began
        self._due = time.monotonic() + max(LOOK_S, SHARE * spent)

    def _is_ours(self, path: Path) -> bool:
        """Evidence of ours may lie among the logs."""
        return any(
            path.is_relative_to(folder) and path.relative_to(folder).parts[0].startswith(OURS) for folder in self.leave
        )

    def _read(self, key: tuple[int, int], file: _File) -> Piece | None:
        fd = open_regular(file.container.path)
        try:
            info = os.fstat(fd)
            if (info.st_dev, info.st_ino) != key:
                self._due = 0.0  # renamed: the next walk finds it
                return None
            if info.st_size < file.at or (file.mark and os.pread(fd, len(file.mark), 0) != file.mark):
                self._begin_anew(key, file)
            if info.st_size == file.at:
                return None
            self._begin(fd, key, file, info.st_size)
            if info.st_size - file.at > 2 * PIECE:  # a flood: its end tells where the ranks are
                file.at, file.rest = info.st_size - PIECE, b""
            data = os.pread(fd, PIECE, file.at)
        finally:
            os.close(fd)
        start = file.at - len(file.rest)
        file.at += len(data)
        old, file.first = file.first, False
        text = _whole(file, data)
        source = _source(file)
        if source is None or source.kind not in SPOKEN or not text:
            return None
        return Piece(source, str(file.container.path), file.head[:start], text, old, info.st_mtime)

    def _begin_anew(self, key: tuple[int, int], file: _File) -> None:
        if file.mark:
            self._marks[file.mark] = key
        while len(self._marks) > CUT:
            del self._marks[next(iter(self._marks))]
        file.at, file.head, file.mark, file.rest, file.source, file.asked = 0, b"", b"", b"", None, -1

    def _begin(self, fd: int, key: tuple[int, int], file: _File, size: int) -> None:
        """Read how a file begins. Of what was there before, and of a copy of what was read, only the end."""
        if len(file.head) >= HEAD // 2:
            return
        new = not file.head and not file.at
        head = os.pread(fd, HEAD, 0)
        file.head = head[: _end(head)]
        file.mark = head[:MARK] if len(head) >= MARK else b""
        if new and file.mark and self._marks.get(file.mark, key) != key:
            file.at = size
        elif new and file.first and size > TAIL:
            file.at = size - TAIL


def _whole(file: _File, data: bytes) -> bytes:
    """Whole lines; a bar that is drawn over and over ends in `\r`."""
    data = file.rest + data
    cut = _end(data)
    if not cut and len(data) > LINE:
        cut = len(data)
    file.rest = data[cut:]
    return data[:cut]


def _source(file: _File) -> Source | None:
    """What the file is; asked again while it is short."""
    if file.asked < HEAD and file.at != file.asked:
        file.asked = file.at
        file.source = collect.divisible(file.container) or file.source
    return file.source


def _end(data: bytes) -> int:
    """Where the last line ends."""
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
