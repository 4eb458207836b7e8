r"""The lines of a sample that may have a sign, found in one pass: the slow regexes of `signs` run on these only.

b"epoch 0 step 15 loss 2.28\nhello\nTraining finished.\n"  ->  STEP for the first line, 0, BYE
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice

from postmortem import scan
from postmortem.formats import forms
from postmortem.library import Signature
from postmortem.scan import NUMBER, SHIFT

STEP, BYE, NOTICE, MILESTONE, FACTS, COUNT, ANSWER = (1 << n for n in range(7))
ALL = STEP | BYE | NOTICE | MILESTONE | FACTS | COUNT | ANSWER
PICKED = ((FACTS, 3, 0), (NOTICE, 1, 1), (BYE, 0, 2), (MILESTONE, 0, 1))  # of each kind the first and last lines
_NAMES = {
    "step": STEP,
    "bye": BYE,
    "notice": NOTICE,
    "milestone": MILESTONE,
    "facts": FACTS,
    "count": COUNT,
    "answer": ANSWER,
    "all": ALL,  # JSON: the gates see the raw line
    "all-but-facts": ALL ^ FACTS,  # the dict of a Trainer
}
_GATES = [(_NAMES[row["gate"]], row["regex"]) for row in forms.rows("blocks/signs").values() if "gate" in row]


class Marks:
    """The marks of the lines of a sample, without the mark `left_out`."""

    def __init__(self, data: bytes, left_out: int = 0) -> None:
        self.data = data
        self.places = _places(data, left_out)

    def of(self, start: int, end: int) -> int:
        """The marks of the line data[start:end]."""
        found = 0
        for place in self.places[bisect_left(self.places, start << SHIFT) : bisect_left(self.places, end + 1 << SHIFT)]:
            found |= place & NUMBER
        return found

    def picked(self) -> set[int]:
        """The offsets of the first and the last lines of each kind."""
        found: set[int] = set()
        for mark, first, last in PICKED:
            found.update(islice(self._lines(self.places, mark), first))
            found.update(islice(self._lines(reversed(self.places), mark), last))
        return found

    def _lines(self, places: Iterable[int], mark: int) -> Iterator[int]:
        """The offsets of the lines with a mark, each once."""
        starts = (self.data.rfind(b"\n", 0, place >> SHIFT) + 1 for place in places if place & mark)
        return iter(dict.fromkeys(islice(starts, 64)))


def _places(data: bytes, left_out: int) -> list[int]:
    """`offset << SHIFT | mark` in order, with the offset of a byte of the line."""
    if b"\x1b" in data:  # colors may hide a sign
        return [at << SHIFT | ALL for at in _starts(data)]
    gates = [(mark, gate) for mark, gate in _GATES if mark != left_out]
    engine = scan.own_engine((__name__, left_out), lambda: [Signature(f":{n}", g) for n, (_, g) in enumerate(gates)])
    return [(key >> SHIFT) - 1 << SHIFT | gates[key & NUMBER][0] for key in engine.find(data)]


def _starts(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        yield at
        at = data.find(b"\n", at) + 1 or len(data)
