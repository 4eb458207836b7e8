"""A large source in parts, each scanned by itself, and joined to the result of one pass.

    joined(source, [scan_part(source, stream, engine, part) for part in parts(source.size)])
    ==   scan(source, stream, engine)

A part has the lines that begin in it. It is read with the bytes before it, for the surroundings of its first hits,
and to the end of its last line. Only counts above 1,000 may differ, because each part trusts a pattern anew (see
`tally`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from postmortem.input.streams import Readable
from postmortem.model import Hit, Sample, Scanned, Source
from postmortem.scan.engine import Engine
from postmortem.scan.lines import DEFAULT, Limits, Pass, history

PART = 64 << 20
WHOLE = 2 * PART  # a source up to this size is one part


class Part(NamedTuple):
    """Bytes of a source, from `start` up to `stop`. Inner bounds are multiples of `Limits.stride`."""

    start: int
    stop: int


def parts(size: int, part: int = PART, whole: int = WHOLE) -> list[Part]:
    """Divide a source by its size alone."""
    if size <= whole:
        return [Part(0, size)]
    bounds = [*range(0, size - part // 2, part), size]
    return [Part(a, b) for a, b in zip(bounds, bounds[1:], strict=False)]


def reads_from(part: Part, engine: Engine, limits: Limits = DEFAULT) -> int:
    """Return the first byte of a stream for `scan_part`."""
    return max(0, part.start - history(engine, limits)) if part.start else 0


def scan_part(source: Source, stream: Readable, engine: Engine, part: Part, limits: Limits = DEFAULT) -> Scanned:
    """Scan the lines that begin in `part`, numbered from 1. `stream` begins at `reads_from(part)`."""
    one = Pass(source, stream, engine, limits, False)
    one.stop = part.stop
    if part.start:
        # skip to the first line that begins in the part, or after it
        reader = one.reader
        reader.base = reads_from(part, one.engine, limits)
        one.head = Sample(1, 0, b"")
        one.next_sample = part.start
        begin = part.start - 1 - reader.base
        reader.fill(0, begin + limits.chunk)
        while not (newline := reader.data.find(b"\n", begin) + 1) and not reader.eof:
            drop = max(0, len(reader.data) - one.keep)
            begin = len(reader.data) - drop
            reader.fill(drop, limits.chunk)
        one.at = newline or len(reader.data)
        one.start = reader.base + one.at
    return one.run()


def joined(source: Source, scanned: Sequence[Scanned], limits: Limits = DEFAULT) -> Scanned:
    """Join the parts of a source, in their order, with the lines and caps of the whole."""
    counts: Counter[str] = Counter()
    hits: list[Hit] = []
    samples: list[Sample] = []
    lines = 0
    for one in scanned:
        counts.update(one.counts)
        if one.bytes:
            hits += [hit._replace(line=hit.line + lines) for hit in one.hits]
            samples += [replace(sample, line=sample.line + lines) for sample in one.samples if sample.text]
        lines += one.lines
    if samples:
        samples = [*(s for s in samples[:-1] if s.offset < samples[-1].offset), samples[-1]]
    skips = tuple(dict.fromkeys(skip for one in scanned for skip in one.skips))
    return replace(
        scanned[0],
        source=source,
        bytes=sum(one.bytes for one in scanned),
        lines=lines,
        hits=tuple(_capped(hits, limits)),
        samples=tuple(samples),
        counts=dict(sorted(counts.items())),
        skips=skips,
    )


def _capped(hits: Sequence[Hit], limits: Limits) -> list[Hit]:
    """Return the first and the last hits of each pattern."""
    first: Counter[str] = Counter()
    last: dict[str, deque[int]] = {}
    chosen: set[int] = set()
    for index, hit in enumerate(hits):
        for name in (*(match.pattern for match in hit.matches), *hit.openers):
            if first[name] < limits.first:
                first[name] += 1
                chosen.add(index)
            else:
                last.setdefault(name, deque(maxlen=limits.last)).append(index)
    chosen.update(index for row in last.values() for index in row)
    return [hits[index] for index in sorted(chosen)]
