"""Container -> its sources with their streams: one of a plain or compressed file, one of each archive member.

    bundle.tar.gz -> (Source("bundle.tar.gz!/node-a/rank0.log", "console", rank=0), <Readable>), ...

A file that cannot be read is a source all the same, whose stream raises Incomplete with the ledger's row: no
loss is silent.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from postmortem.input import names, sniff
from postmortem.input.archives import Member, Tar, is_tar, is_zip, zip_members
from postmortem.input.codecs import compression
from postmortem.input.container import Container
from postmortem.input.remote import Remote
from postmortem.input.sniff import magic
from postmortem.input.streams import (
    Budget,
    Bytes,
    Decoded,
    Descriptor,
    File,
    Incomplete,
    InMemory,
    Limits,
    Readable,
    Refused,
    Utf16,
    utf16_order,
)
from postmortem.model import Source
from postmortem.model.vocabulary import WRITTEN_REASON

HEAD = 1 << 16
NAME_MAX = 1024
SURVEYED, MANY = 16 << 20, 256  # bytes of an archive in which logs are counted, and logs that are many
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Stream:
    """A source's bytes. `read` raises Incomplete, with the path, once nothing more can be read."""

    def __init__(self, inner: Bytes, path: str, budget: Budget | None = None) -> None:
        self._inner, self._path, self._budget = inner, path, budget

    def read(self, n: int) -> bytes:
        if self._budget is not None and (why := self._budget.timed_out()):
            raise Incomplete(why, self._inner.left(), self._path)
        try:
            return self._inner.read(n)
        except Incomplete as failure:
            failure.path = self._path
            raise

    def read_at(self, at: int, n: int) -> bytes | None:
        """Return n bytes at an offset of a file on disk; None where the bytes come only one after the other."""
        if not isinstance(self._inner, File):
            return None
        return self._inner.read_at(at, max(0, min(n, self._inner.size - at)))

    def pass_over(self, n: int) -> int:
        """Skip about n bytes, at most n. Return how many; 0 at the end."""
        return self._inner.pass_over(n)


def open_regular(path: str | Path) -> int:
    """Open a file without following a link or waiting for a FIFO's writer. Raise OSError."""
    try:
        return os.open(path, FLAGS)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return os.open(path, FLAGS)  # a file server lost its handle


@contextmanager
def _opened(container: Container, at: int = 0) -> Iterator[Bytes]:
    """Open a local or remote file at byte `at`. Raise OSError."""
    if container.url:
        yield Remote(container.url, container.size, at)
        return
    fd = Descriptor(open_regular(container.path))
    try:
        yield File(fd, container.size, at)
    finally:
        fd.close()


def open_sources(container: Container, limits: Limits | None = None) -> Iterator[tuple[Source, Readable]]:
    """Yield every source of a container with its stream, which is valid until the next one, in stored order."""
    limits = limits or Limits()
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(_opened(container))
        except OSError as error:
            reason = f"cannot be opened: {os.strerror(error.errno or 0)}"
            yield _refused(container.label, reason, container.size, container)
            return
        yield from _Opening(container, limits).sources(container.label, stream, container.size, 0)


def divisible(container: Container) -> Source | None:
    """Return the source of a plain text file, which can be read from the middle; None for other containers."""
    if container.form != "plain":
        return None
    try:
        with _opened(container) as stream:
            sparse = isinstance(stream, File) and stream.is_sparse
            head = b"" if sparse else stream.peek(HEAD)
    except OSError:
        return None
    kind, _ = sniff.kind(container.label, head)
    if not head or kind == "binary" or utf16_order(head):
        return None
    return names.source(container.label, kind, container.size, container.path, head)


def logs_in(container: Container) -> int:
    """Return about how many logs a container holds. Those in the first 16 MiB of an archive are counted; where they
    are many, the rest is estimated by its size."""
    if not container.is_archive or container.url:
        return 1
    try:
        with _opened(container) as file:
            return _counted(file, container.size)
    except OSError:  # reported where it is read
        return 1


def _counted(file: Bytes, size: int) -> int:
    limits = Limits()
    budget = Budget(limits)
    form = compression(file.peek(16))
    members: Iterable[Member] = Tar(Decoded(file, form, budget) if form else file)
    look = SURVEYED
    if isinstance(file, File) and is_zip(file.peek(4)):
        members, look = zip_members(File(file.fd, size), budget), limits.total  # the directory has them all
    found = seen = 0
    for member in members:
        found, seen = found + 1, seen + member.size
        if found == limits.members or seen > look:
            rest = file.left() * found // max(1, size - file.left())
            return found + (rest if found >= MANY else 0)
    return max(1, found)


@contextmanager
def open_at(container: Container, source: Source, at: int) -> Iterator[Readable]:
    """Open a divisible file at byte `at`."""
    with _opened(container, at) as stream:
        yield Stream(stream, source.path)


def _refused(path: str, reason: str, lost: int, container: Container, meant: bool = False) -> tuple[Source, Readable]:
    return names.source(path, "binary", lost, container.path), Stream(Refused(reason, lost, meant), path)


class _Opening:
    """One container being opened, with its budget and the names of its members so far."""

    def __init__(self, container: Container, limits: Limits) -> None:
        self.container, self.limits = container, limits
        self.budget = Budget(limits)
        self.members = 0
        self.copies: dict[str, int] = {}  # by name: the last number given to a copy of it

    def sources(self, path: str, stream: Bytes, stored: int, depth: int) -> Iterator[tuple[Source, Readable]]:
        """Decompress, walk archives, yield sources. `stored` is the size of the file or member as it is stored."""
        raw = stream
        for _ in range(2):  # a collector may compress `rank0.log.gz` once more; more than that is a trap
            form = compression(stream.peek(16))
            if form is None:
                break
            stream = Decoded(stream, form, self.budget)
        head = stream.peek(512)
        if is_tar(head):
            yield from self._archive(path, stream, stored, depth, "tar")
        elif is_zip(head) and not magic(head):
            yield from self._archive(path, stream, stored, depth, "zip")
        else:
            if stream is raw and isinstance(raw, File):
                raw.expect_holes()
            yield self._leaf(path, stream, stored)

    def _leaf(self, path: str, stream: Bytes, stored: int) -> tuple[Source, Readable]:
        head = stream.peek(HEAD)
        if not head and isinstance(stream, Refused):
            return names.source(path, "binary", stored, self.container.path), Stream(stream, path)
        if (order := utf16_order(head)) and not magic(head):
            stream = Utf16(stream, order)
            head = stream.peek(HEAD)
        kind, reason = sniff.kind(path, head)
        if kind == "binary":
            stream = Refused(reason, stored, meant=True)
        return names.source(path, kind, stored, self.container.path, head), Stream(stream, path, self.budget)

    def _archive(
        self, path: str, stream: Bytes, stored: int, depth: int, form: str
    ) -> Iterator[tuple[Source, Readable]]:
        if depth >= self.limits.depth:
            yield _refused(path, f"{form} inside {depth} archives: read no deeper", stored, self.container)
            return
        tar = Tar(stream)
        try:
            for member in tar if form == "tar" else self._zip(stream):
                self.members += 1
                if self.members > self.limits.members:
                    raise Incomplete(f"more than {self.limits.members} members", stream.left())
                if why := self.budget.timed_out():
                    raise Incomplete(why, stream.left())
                name = self._name(path, member.name)
                if not names.PASSED_BY.isdisjoint(name.split("/")[:-1]):
                    yield _refused(name, names.PASSED_BY_REASON, member.stored, self.container, meant=True)
                elif names.WRITTEN.search(name):
                    yield _refused(name, WRITTEN_REASON, member.stored, self.container, meant=True)
                else:
                    yield from self.sources(name, member.stream, member.stored, depth + 1)
        except Incomplete as failure:
            tar.failure = failure
        if tar.failure is not None:
            yield _refused(path, tar.failure.reason, tar.failure.lost, self.container)

    def _zip(self, stream: Bytes) -> Iterator[Member]:
        if isinstance(stream, File):
            return zip_members(File(stream.fd, stream.size), self.budget)
        data = stream.read(self.limits.spool + 1)
        if len(data) > self.limits.spool:
            raise Incomplete(f"zip inside another archive, larger than {self.limits.spool} bytes", stream.left())
        return zip_members(InMemory(data), self.budget)

    def _name(self, archive: str, member: bytes) -> str:
        """Return the label of a member; a second member of the same name has a number."""
        inside = names.printable(member if len(member) <= NAME_MAX else member[:NAME_MAX] + b"...")
        while inside.startswith(("./", "/")):
            inside = inside.removeprefix("./").lstrip("/")
        name = path = f"{archive}!/{inside or '?'}"
        while path in self.copies:
            self.copies[name] += 1
            path = f"{name}~{self.copies[name]}"
        self.copies[path] = 1
        return path
