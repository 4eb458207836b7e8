"""Lines that passed a gate -> hits with the lines around them, made before the text of their block is dropped.

    rows of lines 10, 11 and 90 of a block  ->  the hits of 10 and 11 on one page, the hit of 90 on another

A log that floods all patterns has 64 hits of each side by side: with copies of their surroundings they would take
twenty times the memory of the text.

Of the lines of each pattern the first few and the last few are hits, and all are counted (`Tally`): a rank may repeat
one a million times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import regex

from postmortem.model import Around, Hit, Match
from postmortem.privacy import window
from postmortem.scan.cleaning import WHOLE, WINDOW, begins, ends, raw_index, units
from postmortem.scan.engine import LONG, NUMBER, TIRED, Engine

Found = dict[str, tuple[int, Match | None]]  # id -> offset in the cleaned line, and its match; None for openers


class Confirm:
    """The exact half of the scan. `gave_up` are the patterns whose regex did not end on some line."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.gave_up: set[str] = set()

    def search(self, number: int, text: bytes, start: int = 0) -> regex.Match[bytes] | None:
        """Search one part of a line. A regex that took too long is not tried on long lines of this source again."""
        engine = self.engine
        if (self.gave_up or engine.tired) and self._left_out(number, text):
            return None
        try:
            found: regex.Match[bytes] | None = engine.search(number, text, start)  # or one of re, which is used alike
            return found
        except TimeoutError:
            name = engine.signatures[number].id
            self.gave_up.add(name)
            engine.tired[name] += 1
            return None

    def _left_out(self, number: int, text: bytes) -> bool:
        """Return whether a regex is not tried any more: one of ours on long lines, a user's on all."""
        name, foreign = self.engine.signatures[number].id, self.engine.foreign[number]
        if foreign and self.engine.tired[name] >= TIRED:
            self.gave_up.add(name)
        return name in self.gave_up and (foreign or len(text) >= LONG)

    def on_line(self, number: int, line: bytes) -> regex.Match[bytes] | None:
        r"""Search each part of a line that tqdm has overwritten with `\r`."""
        if b"\r" not in line:
            return self.search(number, line)
        return next((m for part in line.split(b"\r") if part and (m := self.search(number, part))), None)

    def agrees(self, number: int, line: bytes) -> bool:
        """Return whether a line that passed a gate is a hit; with an exact gate it is."""
        return (self.engine.exact[number] and b"\r" not in line) or self.on_line(number, line) is not None

    def short(self, numbers: Sequence[int], line: bytes) -> Found:
        """Return one match for each id on a line, by the first of its variants that agrees."""
        found: Found = {}
        for number in numbers:
            name = self.engine.signatures[number].id
            if name not in found:
                match = self.on_line(number, line)
                if match:
                    found[name] = 0, self._match(number, match)
        return found

    def long(self, line: bytes, *, inside: bool = False, stop: int | None = None) -> Found:
        """The same for a line, or a piece of one, that is too long for one search; without units from `stop` on."""
        wanted = {self.engine.signatures[key & NUMBER].id for key in self.engine.find(line)}
        found: Found = {}
        for low, high in units(line, inside=inside):
            if len(found) == len(wanted) or (stop is not None and low >= stop):
                break
            self._unit(line, low, high, found)
        return found

    def _unit(self, line: bytes, low: int, high: int, found: Found) -> None:
        # one byte more, so that neither `^` nor `\b` takes the cut for a start
        lead = 0 if begins(line, low) else 1
        part = line[low - lead : high]
        for number in sorted({key & NUMBER for key in self.engine.find(part)}):
            name = self.engine.signatures[number].id
            match = None if name in found else self.search(number, part, lead)
            # a match that the window's end may have cut is left to the next window
            if match and (match.end() < len(part) or match.start() < WINDOW or ends(line, high)):
                found[name] = low - lead + match.start(), self._match(number, match)

    def _match(self, number: int, match: regex.Match[bytes]) -> Match | None:
        signature = self.engine.signatures[number]
        if signature.regex is None:
            return None
        captures = {k: v.decode("utf-8", "backslashreplace") for k, v in match.groupdict().items() if v is not None}
        return Match(signature.id, captures)


# ── hits with the lines around them ─────────────────────────────────────────────────────────────────────────

PAGE = 16 << 10  # at most, because one hit holds its whole page in memory


class Span(NamedTuple):
    """A confirmed row with its surroundings: `low` to `high` in the block's data."""

    low: int
    high: int
    row: Row
    found: Found


def make_hits(block: Block, confirm: Confirm) -> None:
    """Make the hits of a block that are still wanted, and drop their rows' text."""
    data = block.data
    rows = (row for tally in block.tallies for row in tally.rows() if row.block is block)
    spans = []
    for row in {row.line: row for row in rows}.values():
        found = confirm.short(row.numbers, text_of(row, block)) if row.found is None else row.found
        before, after = reach(confirm.engine, found)
        low, high = start_before(data, row.start, before), end_after(data, row.end, after)
        if not found:
            row.settle(None)
        elif row.end - row.start > WHOLE:  # only a part of it is shown
            row.settle(_hit(row, block, found, Around.of(data[low : row.start], data[row.end : high])))
        else:
            spans.append(Span(low, high, row, found))
    for page in _pages(spans):
        low = page[0].low
        text = data[low : max(span.high for span in page)]
        for span in page:
            row = span.row
            around = Around(text, span.low - low, row.start - low, row.end - low, span.high - low)
            row.settle(_hit(row, block, span.found, around))


def _pages(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Yield groups that overlap, up to the size of a page."""
    page: list[Span] = []
    high = 0
    for span in sorted(spans, key=lambda span: span.low):
        if page and span.high > high and (span.low > high or span.high - page[0].low > PAGE):
            yield page
            page, high = [], 0
        page.append(span)
        high = max(high, span.high)
    if page:
        yield page


def _hit(row: Row, block: Block, found: Found, around: Around) -> Hit:
    raw = block.data[row.start : row.end].removesuffix(b"\n").removesuffix(b"\r")
    return hit_of(row.line, block.base + row.start, part_of(raw, found), found, around)


def hit_of(line: int, offset: int, text: bytes, found: Found, around: Around) -> Hit:
    matches = [match for _, match in found.values() if match]
    openers = [name for name, (_, match) in found.items() if match is None] if len(matches) < len(found) else ()
    return Hit(line, offset, text, around, tuple(matches), tuple(openers))


def reach(engine: Engine, found: Found) -> tuple[int, int]:
    """Return the bytes before and after a line for its patterns."""
    if len(found) == 1:
        return engine.reach[next(iter(found))]
    wanted = [engine.reach[name] for name in found]
    return max((before for before, _ in wanted), default=0), max((after for _, after in wanted), default=0)


def text_of(row: Row, block: Block) -> bytes:
    """Return the cleaned line."""
    return block.data[row.start : row.end].rstrip(b"\r\n") if row.text is None else row.text


def part_of(raw: bytes, found: Found) -> bytes:
    """Return the line, or of a long one 16 KiB around the first of its matches."""
    if len(raw) <= WHOLE:
        return raw
    middle = raw_index(raw, min((at for at, _ in found.values()), default=0))
    start = max(0, min(middle - WINDOW, len(raw) - WHOLE))
    # one character for each byte, and no secret in two at the ends
    start, end = window(raw.decode("latin-1"), start, start + WHOLE)
    return raw[start:end]


def start_before(data: bytes, start: int, most: int) -> int:
    """Return the start of the whole lines before the line at `start`, up to `most` bytes."""
    low = start - most - 1
    return data.find(b"\n", low, start) + 1 if low >= 0 else 0


def end_after(data: bytes, end: int, most: int) -> int:
    """Return the end of the whole lines from `end` on, up to `most` bytes; the last line may lack its line end."""
    high = end + most
    return max(end, data.rfind(b"\n", end, high) + 1) if high < len(data) else len(data)


# ── the lines of each pattern ───────────────────────────────────────────────────────────────────────────────

TRUST = 1000


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
