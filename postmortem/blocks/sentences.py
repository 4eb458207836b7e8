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
from postmortem.privacy import cut

LAST = 32  # last lines of a writer
LINES = 100  # first lines of a writer
MOST = 24  # statements of a writer
LETTERS = 6  # in a statement
NUMBERS = re.compile(r"\d+")
_OF_A_LIBRARY = re.compile(r"\.(?:cpp|cc|h):\d+|NCCL|ProcessGroup|[Gg]loo|torch/distributed/")
_OF_A_TRACEBACK = re.compile(r"[\s│╭╰❱]|Traceback|terminate called|.{0,80}(?:Error|Exception)\b|[*^~=-]{3}")
_BETWEEN = re.compile(r"[\s(]+|(?<=://)")
_VALUE = re.compile(r"\d|^/")  # a word with a digit, or a path, may differ from rank to rank
Statement = tuple[int, tuple[str, ...], int, str, float | None]  # shape, values, line, text, its own time


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


class Statements:
    """The sentences with values that a writer wrote once, among its first lines."""

    def __init__(self) -> None:
        self.read_lines = 0
        self.seen: dict[int, Statement | None] = {}

    def read(self, line: Line) -> None:
        """Keep a sentence with a value; drop one that comes again: it counts steps."""
        if self.read_lines == LINES:
            return
        self.read_lines += 1
        parts = [part.strip("\"'()[]{},;.") for part in _BETWEEN.split(line.envelope.body.strip()[:200])]
        values = tuple(part for part in parts if not part.isalpha() and _VALUE.search(part))
        if not values:
            return
        sentence = " ".join("N" if part in values else part for part in parts)
        shape = zlib.crc32(f"{len(values)} {sentence}".encode())
        if self.seen.get(shape, values) is None:
            return
        if sum(map(str.isalpha, sentence)) < LETTERS or not is_ordinary(line):
            return
        if shape in self.seen:
            self.seen[shape] = None
        elif len(self.seen) < 4 * MOST:
            stamp = line.envelope.stamp
            time = stamp.time if stamp is not None else None
            self.seen[shape] = (shape, values, line.number, cut(line.text, 200), time)

    def found(self) -> tuple[Statement, ...]:
        """The statements in the order of the log."""
        return tuple([one for one in self.seen.values() if one is not None][:MOST])
