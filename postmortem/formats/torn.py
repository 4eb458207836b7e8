"""A log that is nothing but the middle of a traceback, or of a C++ backtrace: head and exception were
cut off."""

from __future__ import annotations

import re
from collections.abc import Iterator

from postmortem.formats.envelope import Style
from postmortem.formats.excerpt import MAX_BLOCK, Excerpt
from postmortem.model import Around, Event, Hit, Source

NEAR_HEAD = 8  # lines: a log that begins in the middle of a traceback shows a frame in them
_INNER = re.compile(rb'(?P<lead>[^"\n]{0,200}) {2}File "[^"\n]{1,400}", line \d+, in ')
# c10/util/Backtrace.cpp
_BACKTRACE = re.compile(rb"frame #[1-9]\d*: .{1,400} \+ 0x[0-9a-f]+ \(0x[0-9a-f]+ in ")
_BOX = re.compile(r"\s*│ ❱ *\d+ │".encode())  # rich
_HEAD = re.compile(rb"Traceback \(most(?: recent(?: call(?: last)?)?)?$")


def parse_torn(source: Source, data: bytes, style: Style) -> Iterator[Event]:
    """Read a log that is nothing but the middle of a traceback: its head and the exception were cut off,
    and still something was raised."""
    lines = data.splitlines(keepends=True)[:MAX_BLOCK]
    at, frame = next(((i, m) for i, line in enumerate(lines[:NEAR_HEAD]) if (m := _INNER.match(line))), (-1, None))
    if frame is None and lines:
        at = _other_middle(lines)
    elif frame is not None and not all(_within(line.rstrip(), frame["lead"].rstrip()) for line in lines):
        return
    if at < 0:
        return
    excerpt = Excerpt(
        source, Hit(at + 1, 0, lines[at].rstrip(), Around.of(b"", b"".join(lines[at + 1 :])), (), ()), style
    )
    yield excerpt.event("cut", next(excerpt.following()), fields={"opened": excerpt.number})


def _other_middle(lines: list[bytes]) -> int:
    """Where the frames stand that fill a piece of a C++ backtrace or of rich's box,
    or a head that is cut itself; -1 if there is none."""
    frames = [i for i, line in enumerate(lines) if _BACKTRACE.search(line)]
    # what was raised stood there
    above = not any(b"frame #0" in line for line in lines) or b"Exception raised from " in lines[0]
    if len(frames) > 2 and frames[0] < NEAR_HEAD and frames[-1] >= len(lines) - NEAR_HEAD and above:
        return frames[0]
    if _HEAD.search(lines[-1].rstrip()):
        return len(lines) - 1
    boxed = all(line.strip().startswith(("│".encode(), "╰".encode())) for line in lines)
    return next((i for i, line in enumerate(lines) if boxed and _BOX.match(line)), -1)


def _within(line: bytes, lead: bytes) -> bool:
    """Whether a line can stand in the block of one writer's frames: a frame, its code, or nothing."""
    return line in (b"", lead) or line.startswith(lead + b"  ")
