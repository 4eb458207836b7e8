"""The lines of each pattern: their number, the first few, the last few, since a rank may repeat one a million times."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from postmortem.model import Hit, Match

TRUST = 1000
Found = dict[str, tuple[int, Match | None]]  # id -> offset in the cleaned line, and its match; None for openers


@dataclass(slots=True, eq=False)
class Block:
    """Bytes of the source for hits to be made from: `data[0]` is byte `base`. `tallies` have rows in it."""

    data: bytes
    base: int
    tallies: set[Tally] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Row:
    """One line with gates on it. Its `hit` is made at the end of its block: of a flood, later lines replace most
    rows before."""

    block: Block | None
    line: int
    start: int  # of the line in the block's data
    end: int  # of the line with its line end
    numbers: Sequence[int]  # of the signatures whose gates it passed
    text: bytes | None = None  # cleaned
    found: Found | None = None
    hit: Hit | None = None

    def settle(self, hit: Hit | None) -> None:
        """Replace everything that the hit was made from by the hit; None: no regex agreed."""
        self.hit = hit
        self.block = self.text = self.found = None
        self.numbers = ()


class Tally:
    """The lines of one id. `count` is exact, with one exception: where the regex confirmed each of the first 1,000
    lines that passed the gate, later ones are counted by the gate alone, for the sake of speed."""

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
