"""What a writer says once, with the values in it: ranks that say the same sentence can be compared by them.

    [2026-11-22 15:19:10.805478] INFO: OCR/0: flat gradient of 40606 elements
    [2026-11-22 15:19:10.806734] INFO: OCR/2: flat gradient of 40800 elements        rank 2 has another model
    2026-11-22_11:40:13.75931 I app starting rank=2 world=5 master=127.0.0.1:29822   the others: world=4

In: a writer's first ordinary lines. Out: for each shape that came once its values, line and text. A value is
a word with a digit, or a path; what comes again and again counts steps.
"""

from __future__ import annotations

import re
import zlib

from postmortem.blocks import words
from postmortem.formats.excerpt import Line
from postmortem.privacy import cut

LINES = 100  # of a writer
MOST = 24  # sentences of a writer
LETTERS = 6  # in a sentence
_BETWEEN = re.compile(r"[\s(]+|(?<=://)")  # words: what stands behind `file://` is a path
_VARIES = re.compile(r"\d|^/")  # words that may differ from rank to rank
Statement = tuple[int, tuple[str, ...], int, str, float | None]  # shape, values, line, text, its own time


class Statements:
    """The sentences of one writer."""

    def __init__(self) -> None:
        self.read_lines = 0
        self.seen: dict[int, Statement | None] = {}

    def read(self, line: Line) -> None:
        """Keep a sentence with a value; forget one that comes again."""
        if self.read_lines == LINES:
            return
        self.read_lines += 1
        parts = [part.strip("\"'()[]{},;.") for part in _BETWEEN.split(line.envelope.body.strip()[:200])]
        values = tuple(part for part in parts if not part.isalpha() and _VARIES.search(part))
        if not values:
            return
        said = " ".join("N" if part in values else part for part in parts)
        shape = zlib.crc32(f"{len(values)} {said}".encode())
        if self.seen.get(shape, values) is None:
            return
        if sum(map(str.isalpha, said)) < LETTERS or not words.is_ordinary(line):
            return
        if shape in self.seen:
            self.seen[shape] = None
        elif len(self.seen) < 4 * MOST:
            stamp = line.envelope.stamp
            at = stamp.time if stamp is not None else None
            self.seen[shape] = (shape, values, line.number, cut(line.text, 200), at)

    def told(self) -> tuple[Statement, ...]:
        """What was said once, in the order of the log."""
        once = [said for said in self.seen.values() if said is not None]
        return tuple(once[:MOST])
