"""What a writer said last in the ordinary way, as numbers that can be compared between ranks.

    writing shard state_30_3.bin        the last of rank 3
    writing shard state_30_0.bin        of rank 0, which went on:
    wrote shard state_30_0.bin

What one rank says before it stands still, the others say before something else. In: a writer's last lines.
Out: one number for the shape of each that is no traceback, no complaint and no library's. It tells equal from
different within one analysis, and nothing else.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

from postmortem.blocks import signs
from postmortem.formats.excerpt import Line

MOST = 32  # lines of a writer
_NUMBERS = re.compile(r"\d+")
_OF_A_LIBRARY = re.compile(r"\.(?:cpp|cc|h):\d+|NCCL|ProcessGroup|[Gg]loo|torch/distributed/")
_OF_A_TRACEBACK = re.compile(r"[\s│╭╰❱]|Traceback|terminate called|.{0,80}(?:Error|Exception)\b|[*^~=-]{3}")


def shapes(lines: Iterable[Line]) -> tuple[int, ...]:
    """The shapes of the last ordinary lines, oldest first."""
    return tuple(_shape(line) for line in list(lines)[-MOST:] if is_ordinary(line))


def is_ordinary(line: Line) -> bool:
    """Whether a program itself says it, in the ordinary way."""
    body = line.envelope.body
    if _OF_A_TRACEBACK.match(body) or of_a_library(line.text):
        return False
    return not signs.troubled(body)


def of_a_library(text: str) -> bool:
    """Whether torch, NCCL or Gloo says it."""
    return _OF_A_LIBRARY.search(text) is not None


def _shape(line: Line) -> int:
    return zlib.crc32(_NUMBERS.sub("N", line.envelope.body.strip())[:120].encode())
