r"""One source's bytes -> its hits, samples, counts and line numbers, in one pass and bounded memory.

    b"step 1\n[rank3]: RuntimeError: NCCL error\nstep 2\n"
    ->  Hit(line=2, offset=7, …) between b"step 1\n" and b"step 2\n"

The result does not depend on how the bytes arrive: a block is scanned when the bytes after it are there, and a line
above 4 MiB is scanned in pieces that start at multiples of 1 MiB of that line.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from postmortem.input.streams import Readable
from postmortem.model import Around, Sample, Scanned, Skip, Source
from postmortem.scan.cleaning import WHOLE, WINDOW, clean, has_escapes
from postmortem.scan.engine import NUMBER, SHIFT, Engine
from postmortem.scan.hits import (
    Block,
    Confirm,
    Found,
    Row,
    Tallies,
    end_after,
    hit_of,
    make_hits,
    part_of,
    reach,
    start_before,
    text_of,
)
from postmortem.scan.reader import Reader

PIECE = 1 << 20
WAITING = 8 << 20  # of blocks whose hits are not made yet
MARGIN = 3 * WINDOW
FLOOD = 4096  # matches in a block


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of one source is returned, and how it is read. Only tests need others."""

    first: int = 32  # hits kept for each pattern from the start of the source
    last: int = 32  # and from its end
    content: int = 64 << 20  # of a document that is wanted whole
    head: int = 64 << 10
    tail: int = 64 << 10
    stride: int = 1 << 20  # one sampled line for each
    sample: int = 4 << 10  # of a sampled line
    line: int = 4 << 20  # longer lines are scanned in pieces
    chunk: int = 1 << 20  # bytes read at once, which stay in the processor's cache until they are counted


DEFAULT = Limits()


def scan(
    source: Source, stream: Readable, engine: Engine, *, limits: Limits = DEFAULT, want_content: bool = False
) -> Scanned:
    """Read `stream` to its end. `Scanned.counts` are lines by id; above 1,000 see `Tally`."""
    return Pass(source, stream, engine, limits, want_content).run()


class Pass:
    """A scan of one source. `at` is the start of the first line not scanned yet, `line` its number."""

    def __init__(self, source: Source, stream: Readable, engine: Engine, limits: Limits, want_content: bool) -> None:
        self.source = source
        self.engine = engine
        self.counter = engine.counter
        self.confirm = Confirm(engine)
        self.limits = limits
        self.want_content = want_content
        self.reader = Reader(stream, copy_up_to=limits.content if want_content else -1)
        self.keep = history(engine, limits)
        self.at = 0
        self.start, self.stop = 0, sys.maxsize  # of the source; `scan.parts` sets others
        self.line = 1
        self.head: Sample | None = None
        self.samples: list[Sample] = []
        self.next_sample = limits.stride
        self.tallies = Tallies(limits.first, limits.last)
        self.waiting: deque[Block] = deque()

    def run(self) -> Scanned:
        reader = self.reader
        while True:
            if reader.base + self.at >= self.stop:
                return self._result()
            cut = self._whole_lines()
            if cut > self.at:
                block = Block(self.reader.data, self.reader.base)
                if has_escapes(block.data, self.at, cut):
                    self._escaped_block(block, cut)
                else:
                    self._plain_block(block, cut)
                self.at = cut
                if block.tallies:
                    self.waiting.append(block)
                    self._make_hits(WAITING)
            elif not reader.eof and not self._endless():
                self._fill(max(self.limits.chunk, len(reader.data) - self.at))
            elif self.at < len(reader.data):
                self._long_line()
            else:
                return self._result()

    # ── the next bytes to scan ──────────────────────────────────────────────────────────────────────────────

    def _fill(self, want: int) -> None:
        drop = max(0, self.at - self.keep)
        if drop and self.head is None:
            self.head = self._head()
        self.reader.fill(drop, want)
        self.at -= drop

    def _whole_lines(self) -> int:
        """Return the end of the lines that can be scanned now: the bytes after them are here, none is too long."""
        data, at = self.reader.data, self.at
        cut = len(data) if self.reader.eof else data.rfind(b"\n", at, max(at, len(data) - self.engine.after - 1)) + 1
        # the last line is the one that begins before the stop
        if cut > (stop := self.stop - self.reader.base):
            cut = data.find(b"\n", stop - 1, cut) + 1 or cut
        while cut - at > self.limits.line:
            end = data.rfind(b"\n", at, at + self.limits.line) + 1
            if not end:
                return at
            at = end
        return max(cut, at)

    def _endless(self) -> bool:
        data, limit = self.reader.data, self.limits.line
        return len(data) - self.at > limit and data.find(b"\n", self.at, self.at + limit) < 0

    # ── a block of whole lines ──────────────────────────────────────────────────────────────────────────────

    def _make_hits(self, spare: int) -> None:
        """Make the hits of the oldest blocks, until the rest are `spare` bytes."""
        size = sum(len(block.data) for block in self.waiting)
        while size > spare:
            block = self.waiting.popleft()
            size -= len(block.data)
            make_hits(block, self.confirm)

    def _plain_block(self, block: Block, cut: int) -> None:
        """Scan the bytes of the file."""
        data, at = self.reader.data, self.at
        found = self._thinned(data, at, cut, self.engine.find(memoryview(data)[at:cut]))
        samples = list(self._sample_starts(cut))
        if samples:
            found = sorted(found + [(start - at + 1) << SHIFT | NUMBER for start in samples])
        for line, start, end, numbers in self._lines(data, at, cut, found):
            if samples and NUMBER in numbers:
                self._sample(line, start, end)
                numbers = [n for n in numbers if n != NUMBER]
            if numbers:
                self._see(block, Row(block, line, start, end, numbers))

    def _escaped_block(self, block: Block, cut: int) -> None:
        """Scan the block without colors and NULs, and find its lines in the file again by their number."""
        data, at, first = self.reader.data, self.at, self.line
        text = clean(data[at:cut])
        found = self._thinned(text, 0, len(text), self.engine.find(text))
        starts = [at]
        while (newline := data.find(b"\n", starts[-1], cut)) >= 0:
            starts.append(newline + 1)
        if starts[-1] < cut:
            starts.append(cut)
        for start in self._sample_starts(cut):
            index = bisect_left(starts, start)
            self._sample(first + index, start, starts[index + 1])
        for line, low, high, numbers in self._lines(text, 0, len(text), found):
            index = line - first
            bare = text[low:high].rstrip(b"\r\n")
            self._see(block, Row(block, line, starts[index], starts[index + 1], numbers, bare))

    def _thinned(self, text: bytes, low: int, high: int, found: list[int]) -> list[int]:
        """Of a flood return the matches on lines that may be kept, and count the others: of a trusted pattern the last
        lines of a block replace those before."""
        if len(found) < FLOOD:
            return found
        np, names = self.counter.numpy(), defaultdict[str, list[int]](list)
        keys = np.array(found)
        newlines = np.flatnonzero(np.frombuffer(text, np.uint8, high - low, low) == 10)
        line = np.searchsorted(newlines, (keys >> SHIFT) - 1)
        for number in np.unique(keys & NUMBER).tolist():
            names[self.engine.signatures[number].id].append(number)
        lines = {name: np.unique(line[np.isin(keys & NUMBER, own)]) for name, own in names.items()}
        kept = np.zeros(line[-1] + 1, bool)
        for name, own in lines.items():
            kept[own[-self.limits.last :] if self.tallies[name].trusted else own] = True
        for name, own in lines.items():
            self.tallies[name].count += int(np.count_nonzero(~kept[own]))
        thinned: list[int] = keys[kept[line]].tolist()
        return thinned

    def _lines(self, text: bytes, low: int, high: int, found: list[int]) -> Iterator[tuple[int, int, int, list[int]]]:
        """Yield (line, start, end, numbers) of each line with hits in text[low:high], and count all lines."""
        line, start, end, newlines = self.line, low, low, self.counter.newlines
        numbers: list[int] = []
        for key in found:
            at = low + (key >> SHIFT) - 1
            if at >= end:
                if numbers:
                    yield line, start, end, numbers
                    numbers = []
                begin = max(text.rfind(b"\n", end, at) + 1, end)
                line += newlines(text, start, begin)
                start = begin
                end = text.find(b"\n", at, high) + 1 or high
            numbers.append(key & NUMBER)
        if numbers:
            yield line, start, end, numbers
        self.line = line + newlines(text, start, high)

    def _see(self, block: Block, row: Row) -> None:
        """Count a line for each of its patterns."""
        if row.end - row.start > WHOLE:
            self._see_long(block, row)
            return
        numbers, tallies, signatures = row.numbers, self.tallies, self.engine.signatures
        if len(numbers) > 1:
            numbers = row.numbers = sorted(set(numbers))
        for number in numbers:
            tally = tallies[signatures[number].id]
            if tally.seen == row.line:
                continue
            if tally.trusted or self.confirm.agrees(number, text_of(row, block)):
                tally.add(row)
                block.tallies.add(tally)
            else:
                tally.missed = True

    def _see_long(self, block: Block, row: Row) -> None:
        row.found = self.confirm.long(text_of(row, block))
        for name in row.found:
            self.tallies[name].add(row)
            block.tallies.add(self.tallies[name])
        for number in row.numbers:
            name = self.engine.signatures[number].id
            self.tallies[name].missed |= name not in row.found

    # ── a line that is too long for a block ─────────────────────────────────────────────────────────────────

    def _long_line(self) -> None:
        reader, line, offset = self.reader, self.line, self.reader.base + self.at
        history = reader.data[max(0, self.at - self.engine.before - 1) : self.at]
        if self.next_sample <= offset:
            self._sample(line, self.at, self.at + self.limits.sample)
        found, text, ended = self._pieces()
        while not reader.eof and len(reader.data) - self.at <= self.engine.after:
            self._fill(self.limits.chunk)
        self.line += ended
        if not found:
            return
        before, after = reach(self.engine, found)
        low, high = start_before(history, len(history), before), end_after(reader.data, self.at, after)
        row = Row(None, line, 0, 0, ())
        row.hit = hit_of(line, offset, text, found, Around.of(history[low:], reader.data[self.at : high]))
        for name in found:
            self.tallies[name].add(row)

    def _pieces(self) -> tuple[Found, bytes, bool]:
        r"""Scan the line at `self.at` to its end, 1 MiB at a time with 24 KiB of its neighbors. Return the matches,
        the text around the first one, and whether a `\n` ended the line."""
        reader, found, text, inside = self.reader, Found(), b"", False
        while True:
            stop = self.at + PIECE + MARGIN
            if len(reader.data) < stop and not reader.eof:
                self._fill(stop - len(reader.data) + self.limits.chunk)
                continue
            newline = reader.data.find(b"\n", self.at, stop)
            end = newline if newline >= 0 else min(stop, len(reader.data))
            last = newline >= 0 or (reader.eof and end == len(reader.data))
            raw = reader.data[self.at - (MARGIN + 1) * inside : end].removesuffix(b"\r" if last else b"")
            shown = self._piece(raw, inside=inside, last=last)
            if shown and not found:
                text = part_of(raw, shown)
            found = shown | found
            if last:
                self.at = end + (newline >= 0)
                return found, text, newline >= 0
            self.at += PIECE
            inside = True

    def _piece(self, raw: bytes, *, inside: bool, last: bool) -> Found:
        """Search one piece; matches in its last 48 KiB are left to the next one, which has more of them."""
        stop = None if last else len(raw) - 2 * MARGIN
        if not has_escapes(raw, 0, len(raw)):
            return self.confirm.long(raw, inside=inside, stop=stop)
        inside = inside and raw[0] not in b"\0\x1b"  # after a hole of NULs the line begins anew
        return self.confirm.long(clean(raw), inside=inside, stop=stop and len(clean(raw[:stop])))

    # ── samples of lines without a hit ──────────────────────────────────────────────────────────────────────

    def _sample_starts(self, cut: int) -> Iterator[int]:
        """Yield where the first line of each MiB starts in the data, once."""
        data, base = self.reader.data, self.reader.base
        while self.next_sample - base < cut:
            want = self.next_sample - base
            start = self.at if want <= self.at else data.find(b"\n", want - 1, cut) + 1
            if not start or start >= cut:
                return
            stride = self.limits.stride
            self.next_sample = ((self.reader.base + start) // stride + 1) * stride
            yield start

    def _sample(self, line: int, start: int, end: int) -> None:
        end = min(end, start + self.limits.sample)
        self.samples.append(Sample(line, self.reader.base + start, self.reader.data[start:end]))

    def _head(self) -> Sample:
        data = self.reader.data
        return Sample(1, 0, data[: data.rfind(b"\n", 0, self.limits.head) + 1])

    def _all_samples(self, lines: int) -> tuple[Sample, ...]:
        """Return the head, lines between, the tail; a short source is one sample."""
        data, base = self.reader.data, self.reader.base
        if self.reader.total <= self.limits.head + self.limits.tail:
            return (Sample(1, 0, data),) if data else ()
        head = self.head or self._head()
        if self.at < len(data):  # stopped before the end
            return (head, *self.samples)
        tail = max(len(data) - self.limits.tail, len(head.text) - base)
        tail = data.find(b"\n", tail - 1) + 1 if base + tail else 0
        last = Sample(lines - self.counter.lines(data, tail) + 1, base + tail, data[tail:] if tail else b"")
        middle = [s for s in self.samples if s.offset < last.offset] if last.text else self.samples
        return tuple(s for s in (head, *middle, last) if s.text)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────

    def _result(self) -> Scanned:
        self._make_hits(0)
        reader = self.reader
        size = reader.base + self.at - self.start
        lines = self.line - 1 + (size > 0 and reader.data[self.at - 1 : self.at] != b"\n")
        rows = {row.line: row.hit for tally in self.tallies.values() for row in tally.rows()}
        hits = [hit for _, hit in sorted(rows.items()) if hit]
        return Scanned(
            source=self.source,
            bytes=size,
            lines=lines,
            hits=tuple(hits),
            samples=self._all_samples(lines),
            counts={name: tally.count for name, tally in sorted(self.tallies.items()) if tally.count},
            content=None if reader.copy is None else b"".join(reader.copy),
            skips=tuple(self._skips()),
        )

    def _skips(self) -> Iterator[Skip]:
        reader, path = self.reader, self.source.path
        if isinstance(reader.skip, Skip):
            yield reader.skip
        elif reader.error:
            fault = "truncated" if reader.error.startswith("EOFError") else "read error"
            yield Skip(path, 0, f"{fault} at decompressed offset {reader.total}: {reader.error}")
        if self.want_content and reader.copy is None:
            size = self.limits.content >> 20
            yield Skip(path, 0, f"larger than {size} MiB: searched for patterns, not read as a document")
        for name in sorted(self.confirm.gave_up):
            reason = "took too long on a line of this file, and was left out from there on"
            yield Skip(path, 0, f"the regex of pattern {name} {reason}")


def history(engine: Engine, limits: Limits) -> int:
    """Return the bytes before a line that stay in memory: for its surroundings, and for samples of the end."""
    return max(engine.before, limits.head + limits.tail, MARGIN) + 1
