"""What the scan remembers of each pattern: how many lines, the first few, the last few.

A rank may print one warning a million times.
The first and the last lines tell the story, the number tells the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from postmortem.model import Hit, Match

TRUST = 1000
# id -> where it stands in the cleaned line, and what it says; None for openers
Found = dict[str, tuple[int, Match | None]]


class Block:
    """Bytes of the source that hits are still to be made from: `data[0]` is byte `base`.
    `tallies` have rows in it."""

    __slots__ = ("base", "data", "tallies")

    def __init__(self, data: bytes, base: int) -> None:
        self.data = data
        self.base = base
        self.tallies: set[Tally] = set()


class Row:
    """One line with gates on it. `hit` is filled in late:
    most lines of a flood are pushed out before by later ones."""

    __slots__ = ("block", "end", "found", "hit", "line", "numbers", "start", "text")

    def __init__(
        self,
        block: Block | None,
        line: int,
        start: int,
        end: int,
        numbers: Sequence[int],
        text: bytes | None = None,
    ) -> None:
        self.block = block
        self.line = line
        self.start = start  # of the line in the block's data
        self.end = end  # of the line with its line end
        self.numbers = numbers  # of the signatures whose gates it passed
        self.text = text  # cleaned
        self.found: Found | None = None
        self.hit: Hit | None = None

    def settle(self, hit: Hit | None) -> None:
        """Remember the hit in place of all that it was made from. None: no regex agreed."""
        self.hit = hit
        self.block = self.text = self.found = None
        self.numbers = ()


class Tally:
    """The lines of one id. `count` is exact, with one exception.

    Where each of the first 1,000 lines that passed the gate was confirmed by the regex, later ones are
    counted by the gate alone: that is what keeps a log in which every line matches at reading speed.
    """

    __slots__ = ("count", "first", "last", "missed", "room", "seen", "trusted")

    def __init__(self, first: int, last: int) -> None:
        self.count = 0
        self.seen = 0  # the last line counted: a line counts once, whatever the number of variants on it
        self.missed = False
        self.trusted = False
        self.room = first
        self.first: list[Row] = []
        self.last: deque[Row] = deque(maxlen=last)

    def add(self, row: Row) -> None:
        self.count += 1
        self.seen = row.line
        if self.room:
            self.room -= 1
            self.first.append(row)
        else:
            self.last.append(row)
            self.trusted = self.count >= TRUST and not self.missed

    def rows(self) -> Iterator[Row]:
        yield from self.first
        yield from self.last


class Tallies(dict[str, Tally]):
    """A tally for each id that was seen: 600 empty ones would cost more than reading a small file."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self._first, self._last = first, last

    def __missing__(self, name: str) -> Tally:
        tally = self[name] = Tally(self._first, self._last)
        return tally
