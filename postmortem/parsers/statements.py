"""What a writer says once, with the numbers in it: ranks that say the same sentence can be compared by them.

    [2026-11-22 15:19:10.805478] INFO: OCR/0: flat gradient of 40606 elements
    [2026-11-22 15:19:10.806734] INFO: OCR/2: flat gradient of 40800 elements        rank 2 has another model

In: a writer's first ordinary lines. Out: for each shape that came once its numbers, line and text. What comes
again and again counts steps.
"""

from __future__ import annotations

import re
import zlib

from postmortem.parsers import words
from postmortem.parsers.excerpt import Line
from postmortem.privacy import cut

LINES = 200  # of a writer
MOST = 24  # sentences of a writer
_NUMBER = re.compile(r"(?<![\w.:/])\d+(?:\.\d+)?(?![\w.:/])")
_DIGITS = re.compile(r"\d+(?:\.\d+)?")  # also the writer's own number, as in `OCR/2:`
_LETTERS = 6  # in a sentence

Statement = tuple[int, tuple[str, ...], int, str]  # shape, numbers, line, text


class Statements:
    """The sentences of one writer."""

    def __init__(self) -> None:
        self.read_lines = 0
        self.seen: dict[int, Statement | None] = {}

    def read(self, line: Line) -> None:
        """Keep a sentence with a number; forget one that comes again."""
        self.read_lines += 1
        body = line.envelope.body.strip()[:200]
        if self.read_lines > LINES or not words.is_ordinary(line):
            return
        numbers = tuple(_NUMBER.findall(body))
        if not numbers or sum(map(str.isalpha, body)) < _LETTERS:
            return
        shape = zlib.crc32(_DIGITS.sub("N", body).encode())
        if shape in self.seen:
            self.seen[shape] = None
        elif len(self.seen) < 4 * MOST:
            self.seen[shape] = (shape, numbers, line.number, cut(line.text, 200))

    def told(self) -> tuple[Statement, ...]:
        """What was said once, in the order of the log."""
        once = [said for said in self.seen.values() if said is not None]
        return tuple(once[:MOST])
