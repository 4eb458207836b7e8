"""The lines around an address, from wherever they lie: a plain or compressed file, a member of an archive.

    lines_around(paths, "bundle.tar.gz!/node-b/dmesg.txt.gz", Wanted(81, 81, 5), …)
    -> Window(first=12, lines=(…), asked=(76, 86))

A file is read as `analyze` reads it, from its beginning, in bounded pieces.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from postmortem import input as collect
from postmortem.errors import PostmortemError, UsageError
from postmortem.input import Incomplete, Limits, Readable

PIECE = 1 << 20
WIDE = 1 << 14  # bytes of a line that are kept
BESIDE = 64  # lines on each side that are read too: a private key is known by its first or its last line
SECONDS = 60.0
ADDRESS = re.compile(r"(?P<file>.+?)(?::(?P<first>\d{1,12})(?:-(?P<last>\d{1,12}))?|:(?P<end>end))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Lines of a file, counted from 1; the last `most` ones where `last` is 0."""

    file: str
    first: int
    last: int
    most: int


@dataclass(frozen=True, slots=True)
class Window:
    """What was found: lines from number `first` on, among them those that were asked for, with those beside
    them. `note` says why the file could not be read further."""

    first: int
    lines: tuple[bytes, ...]
    asked: tuple[int, int] = (1, 0)
    more: bool = False  # of those that were asked for, behind the last one
    note: str = ""


def wanted(address: str, around: int, most: int) -> Wanted:
    """`rank0.log:81`, `rank0.log:70-95`, `rank0.log:end`, or a name alone for its first lines."""
    around = max(1, around)
    m = ADDRESS.fullmatch(address)
    if not m:
        raise UsageError("that is no address", "write it as in the evidence: rank0.log:81")
    if m["end"]:
        return Wanted(m["file"], 1, 0, min(most, 4 * around))
    if m["first"] is None:
        return Wanted(m["file"], 1, 4 * around, most)
    first = max(1, int(m["first"]))
    if m["last"]:
        return Wanted(m["file"], first, max(first, int(m["last"])), most)
    return Wanted(m["file"], max(1, first - around), first + around, most)


def lines_around(
    paths: Sequence[str], what: Wanted, known: Callable[[str], str], stopped: Callable[[], bool]
) -> Window:
    """Find the file among the sources of `paths` and read it to the last line that is wanted. `known` gives
    the name by which a file is shown."""
    names = []
    for container in collect.collect(paths).containers:
        label = known(container.label)
        names.append(label)
        if what.file != label and not what.file.startswith(f"{label}!/"):
            continue
        for source, stream in collect.open_sources(container, Limits(seconds=SECONDS)):
            if stopped():
                return Window(0, ())
            if known(source.path) == what.file:
                return _read(stream, what, stopped)
    near = [name for name in names if name.endswith(what.file.rpartition("/")[2])] or names
    raise UsageError(
        f"there is no file {what.file} in these logs",
        f"name it as the evidence does, such as {', '.join(near[:3])}" if near else "name other paths",
    )


def _read(stream: Readable, what: Wanted, stopped: Callable[[], bool]) -> Window:
    first = what.first if what.last else 1
    last = min(what.last, first + what.most - 1)
    held: deque[tuple[int, bytes]] = deque(maxlen=what.most + 2 * BESIDE)
    note, number = "", 0
    try:
        for number, line in _lines(stream, stopped):
            if what.last and number > last + BESIDE:
                break
            if number >= first - BESIDE:
                held.append((number, line))
    except Incomplete as failure:
        note = str(failure)
    if not what.last:
        first, last = max(1, number - what.most + 1), number
    if number < first and not note:
        raise PostmortemError(f"{what.file} has {number:,} lines", f"ask for {what.file}:end")
    start, lines = held[0][0] if held else 1, tuple(line for _, line in held)
    return Window(start, lines, (first, min(last, number)), last < min(number, what.last), note)


def _lines(stream: Readable, stopped: Callable[[], bool]) -> Iterator[tuple[int, bytes]]:
    """Each line with its number, long ones cut; one without an end is the last."""
    number, line = 1, b""
    while piece := stream.read(PIECE):
        if stopped():
            return
        parts = piece.split(b"\n")
        for part in parts[:-1]:
            yield number, (line + part)[:WIDE].rstrip(b"\r")
            number, line = number + 1, b""
        line = (line + parts[-1])[: WIDE + 1]
    if line:
        yield number, line[:WIDE]
