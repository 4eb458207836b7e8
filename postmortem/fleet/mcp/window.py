"""Lines around an address, of a plain or compressed file or of a member of an archive.

    lines_around(paths, "bundle.tar.gz!/node-b/dmesg.txt.gz", Wanted(81, 81, 5), …)
    -> Window(first=12, lines=(…), asked=(76, 86))

A file is read as `analyze` reads it: from its beginning, in bounded pieces.
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
WIDE = 1 << 14  # maximum bytes of a line
BESIDE = 64  # lines on each side that are read too: a private key is known by its first or its last line
SECONDS = 60.0
ADDRESS = re.compile(r"(?P<file>.+?)(?::(?P<first>\d{1,12})(?:-(?P<last>\d{1,12}))?|:(?P<end>end))?", re.DOTALL)
Stopped = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Lines of a file, counted from 1; the last `most` ones if `last` is 0."""

    file: str
    first: int
    last: int
    most: int


@dataclass(frozen=True, slots=True)
class Window:
    """Lines from number `first` on: the requested ones and those beside them."""

    first: int
    lines: tuple[bytes, ...]
    asked: tuple[int, int] = (1, 0)
    more: bool = False  # more lines were requested
    note: str = ""  # why the file could not be read further


def wanted(address: str, around: int, most: int) -> Wanted:
    """Parse `rank0.log:81`, `rank0.log:70-95`, `rank0.log:end`, or a name alone for its first lines."""
    around = max(1, around)
    m = ADDRESS.fullmatch(address)
    if not m:
        raise UsageError("this is not an address", "write it as in the evidence: rank0.log:81")
    if m["end"]:
        return Wanted(m["file"], 1, 0, min(most, 4 * around))
    if m["first"] is None:
        return Wanted(m["file"], 1, 4 * around, most)
    first = max(1, int(m["first"]))
    if m["last"]:
        return Wanted(m["file"], first, max(first, int(m["last"])), most)
    return Wanted(m["file"], max(1, first - around), first + around, most)


def lines_around(paths: Sequence[str], request: Wanted, shown: Callable[[str], str], stopped: Stopped) -> Window:
    """Find the file among the sources of `paths` and read it up to the last requested line. `shown` returns the name
    under which reports show a file."""
    names = []
    for container in collect.collect(paths).containers:
        label = shown(container.label)
        names.append(label)
        if request.file != label and not request.file.startswith(f"{label}!/"):
            continue
        for source, stream in collect.open_sources(container, Limits(seconds=SECONDS)):
            if stopped():
                return Window(0, ())
            if shown(source.path) == request.file:
                return _read(stream, request, stopped)
    near = [name for name in names if name.endswith(request.file.rpartition("/")[2])] or names
    raise UsageError(
        f"there is no file {request.file} in these logs",
        f"name it as the evidence does, such as {', '.join(near[:3])}" if near else "name other paths",
    )


def _read(stream: Readable, request: Wanted, stopped: Stopped) -> Window:
    first, last = request.first, min(request.last, request.first + request.most - 1)
    window: deque[tuple[int, bytes]] = deque(maxlen=request.most + 2 * BESIDE)
    note, number = "", 0
    try:
        for number, line in _lines(stream, stopped):
            if request.last and number > last + BESIDE:
                break
            if number >= first - BESIDE:
                window.append((number, line))
    except Incomplete as failure:
        note = str(failure)
    if not request.last:
        first, last = max(1, number - request.most + 1), number
    if number < first and not note:
        raise PostmortemError(f"{request.file} has {number:,} lines", f"ask for {request.file}:end")
    start, lines = window[0][0] if window else 1, tuple(line for _, line in window)
    return Window(start, lines, (first, min(last, number)), last < min(number, request.last), note)


def _lines(stream: Readable, stopped: Stopped) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its number, long ones cut."""
    number, line = 1, b""
    while piece := stream.read(PIECE):
        if stopped():
            return
        *whole, rest = piece.split(b"\n")
        for part in whole:
            yield number, (line + part)[:WIDE].rstrip(b"\r")
            number, line = number + 1, b""
        line = (line + rest)[: WIDE + 1]
    if line:
        yield number, line[:WIDE]
