"""Ordinary sentences of a writer, comparable between ranks: the last ones, and those that came once.

writing shard state_30_3.bin        the last line of rank 3
wrote shard state_30_0.bin          of rank 0, which went on

INFO: OCR/0: flat gradient of 40606 elements
INFO: OCR/2: flat gradient of 40800 elements        rank 2 has another model
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

from postmortem.blocks import signs
from postmortem.formats.excerpt import Line

LAST = 32  # last lines of a writer
LINES = 100  # first lines of a writer
MOST = 24  # statements of a writer
LETTERS = 6  # in a statement
NUMBERS = re.compile(r"\d+")
_OF_A_LIBRARY = re.compile(r"\.(?:cpp|cc|h):\d+|NCCL|ProcessGroup|[Gg]loo|torch/distributed/")
_OF_A_TRACEBACK = re.compile(r"[\s│╭╰❱]|Traceback|terminate called|.{0,80}(?:Error|Exception)\b|[*^~=-]{3}")
_VALUE = re.compile(r"\d|^/")  # a word with a digit, or a path, may differ from rank to rank


def is_of_library(text: str) -> bool:
    """Whether torch, NCCL or Gloo wrote the line."""
    return _OF_A_LIBRARY.search(text) is not None


def is_ordinary(line: Line) -> bool:
    """Whether the program itself wrote the line, and it is not an error."""
    body = line.envelope.body
    if _OF_A_TRACEBACK.match(body) or is_of_library(line.text):
        return False
    return not signs.troubled(body)


def shapes(lines: Iterable[Line]) -> tuple[int, ...]:
    """The shapes of the last ordinary lines, as numbers that can be compared within one analysis."""
    ordinary = (line.envelope.body for line in list(lines)[-LAST:] if is_ordinary(line))
    return tuple(zlib.crc32(NUMBERS.sub("N", body.strip())[:120].encode()) for body in ordinary)
