"""Files that grow, rotate, appear and are truncated: their new whole lines.

    Follower(["logs/"]).new()  ->  Piece(source, head, b"step 12 loss 0.31\\n"), ...

A file is identified by device and inode, so that a renamed one is read on. One that is shorter than before, or begins
otherwise, was truncated (`copytruncate`) and is read again; its copy holds nothing new. No file stays open; only the
first lines, which show the line format, and the incomplete last line are in memory.
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

HEAD = 16 << 10  # of a file, in memory
MARK = 256  # bytes that identify the beginning of a file
TAIL = 1 << 20  # of an existing file: the rest is ordinary, and old
PIECE = 4 << 20  # of one file, one round
TRUNCATED = 1024  # truncated files with a known beginning
LINE = 64 << 10  # of a line without an end
FOLLOWED = frozenset({"console", "agent", "json-lines", "ray", "scheduler", "run"})
OURS = "standstill-"  # prefix of folders of evidence
LOOK_S, SHARE = 2.0, 50  # between two walks through the folders; part of the time that they may take


@dataclass(frozen=True, slots=True)
class Piece:
    """New lines of a file."""

    source: Source
    path: str
    head: bytes  # first whole lines of the file that precede `text`
    text: bytes
    old: bool = False  # it existed before the first round
    changed: float = 0.0  # modification time of the file


@dataclass(slots=True)
class _File:
    """How far one file was read."""

    container: Container
    is_first: bool = True  # nothing of it was read before
    source: Source | None = None
    at: int = 0
    head: bytes = b""
    mark: bytes = b""
    rest: bytes = b""  # the incomplete line
    identified: int = -1  # bytes that were there when its kind was last determined


class Follower:
    """All files below some paths. `leave` lists folders of our own."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = list(paths)
        self.leave: list[Path] = []
        self._files: dict[tuple[int, int], _File] = {}
        self._due = 0.0
        self._marks: dict[bytes, tuple[int, int]] = {}  # beginnings of files that were truncated
        self._walk(first=True)

    @property
    def known(self) -> list[str]:
        return [str(file.container.path) for file in self._files.values()]

    def new(self) -> Iterator[Piece]:
        """Yield everything new since the last round. A file that cannot be read now is read in a later one."""
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
            containers = collect.collect(self.paths).containers
        except PathMissing:
            if first:
                raise
            containers = ()
        present: dict[tuple[int, int], _File] = {}
        for container in containers:
            if container.url or container.form != "plain" or self._is_ours(container.path):
                continue
            try:
                info = os.lstat(container.path)
            except OSError:
                continue
            key = (info.st_dev, info.st_ino)
            present[key] = self._files.get(key) or _File(container, is_first=first)
            present[key].container = container
        self._files = present
        now = time.monotonic()
        self._due = now + max(LOOK_S, SHARE * (now - began))

    def _is_ours(self, path: Path) -> bool:
        """Return whether it belongs to our evidence among the logs."""
        own = (folder for folder in self.leave if path.is_relative_to(folder))
        return any(path.relative_to(folder).parts[0].startswith(OURS) for folder in own)

    def _read(self, key: tuple[int, int], file: _File) -> Piece | None:
        fd = open_regular(file.container.path)
        try:
            info = os.fstat(fd)
            if (info.st_dev, info.st_ino) != key:
                self._due = 0.0  # renamed: the next walk finds it
                return None
            if info.st_size < file.at or (file.mark and os.pread(fd, len(file.mark), 0) != file.mark):
                if file.mark:
                    self._marks[file.mark] = key
                while len(self._marks) > TRUNCATED:
                    del self._marks[next(iter(self._marks))]
                self._files[key] = file = _File(file.container, file.is_first)
            if info.st_size == file.at:
                return None
            self._read_head(fd, key, file, info.st_size)
            if info.st_size - file.at > 2 * PIECE:  # a flood: its end shows the state of the ranks
                file.at, file.rest = info.st_size - PIECE, b""
            data = os.pread(fd, PIECE, file.at)
        finally:
            os.close(fd)
        start = file.at - len(file.rest)
        file.at += len(data)
        old, file.is_first = file.is_first, False
        data = file.rest + data
        cut = _end(data) or (len(data) if len(data) > LINE else 0)
        text, file.rest = data[:cut], data[cut:]
        if file.identified < HEAD and file.at != file.identified:  # again while it is short
            file.identified = file.at
            file.source = collect.divisible(file.container) or file.source
        if file.source is None or file.source.kind not in FOLLOWED or not text:
            return None
        return Piece(file.source, str(file.container.path), file.head[:start], text, old, info.st_mtime)

    def _read_head(self, fd: int, key: tuple[int, int], file: _File, size: int) -> None:
        """Read the beginning. Of an existing file, and of a copy of one that was read, skip to the end."""
        if len(file.head) >= HEAD // 2:
            return
        is_new = not file.head and not file.at
        head = os.pread(fd, HEAD, 0)
        file.head = head[: _end(head)]
        file.mark = head[:MARK] if len(head) >= MARK else b""
        if is_new and file.mark and self._marks.get(file.mark, key) != key:
            file.at = size
        elif is_new and file.is_first and size > TAIL:
            file.at = size - TAIL


def _end(data: bytes) -> int:
    """Return where the last line ends; a progress bar ends in `\\r`."""
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
