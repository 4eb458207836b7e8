"""Logs -> their distinct lines: each once, by its form, with its first writer and place.

    run_lines(reads, owner).distinct["saved /ckpt_N.pt"]   ->   DistinctLine("saved /data/ckpt_120.pt", line=812, …)

The scan remembers lines that match something; a comparison of two runs has to know all of them. So a
`LineObserver` receives the bytes of the scan, in the same pass and process: no log is read twice. A line whose
digits alone differ from an earlier one costs a hash. The rank of a line and its form without the names of hosts
need all logs: `run_lines` adds them in the end, to each distinct line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from postmortem.blocks import signs
from postmortem.formats import envelope
from postmortem.formats.envelope import Envelope, Style
from postmortem.formats.excerpt import Line, decode, first_lines, visible
from postmortem.formats.lineform import alike
from postmortem.formats.marks import bare
from postmortem.model import Event, Source, Where
from postmortem.model.details import Details
from postmortem.privacy import cut
from postmortem.reading import Read

OBSERVED = frozenset({"console", "agent", "json-lines", "ray", "scheduler"})
DECLARED = frozenset({"environment", "run"})  # settings that a job was started with
CHUNK, LONGEST = 1 << 20, 1 << 14
MOST_FORMS = 40_000  # forms of a run, and distinct lines of a file
ROOM = 16 << 20  # bytes of a file's distinct lines
KEYS = 500_000  # lines of a file that are recognized by their hash
PACED = 256  # lines of a chunk that are searched for a step and its time
HEAD = 2000  # lines of a file that may print settings
LOOKBACK = 400  # lines before one that are searched for the last step
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_WITH_DIGIT = re.compile(rb"(?<![\w.+-])[\w.+-]*0[\w.+-]*")
_LABEL = re.compile(rb"(?:\[(?:default|rank)\d+\]:?)+|\d{1,5}: |\[\d+\]<std")

Owner = Callable[[Event], int | None]


@dataclass(slots=True)
class DistinctLine:
    """One form: its first line, and the ranks that wrote it."""

    text: str
    source: str
    line: int
    shown: int  # the line of the file, where a collector wrapped it
    troubled: bool
    ordinary: bool  # written by a program itself: no traceback, no library
    step: int | None  # the last step before it
    ranks: set[int] = field(default_factory=set)


class Once(NamedTuple):
    """A line of a file's head that came once, or that declares a setting of the job."""

    text: str
    rank: int | None
    kind: str  # of its source


class Pace(NamedTuple):
    """A step with its time."""

    writer: tuple[str, int | None]
    step: int
    time: float


@dataclass
class RunLines:
    """The lines of a run. `whole`: no part of a file is missing, and no limit was reached."""

    distinct: dict[str, DistinctLine] = field(default_factory=dict)
    once: list[Once] = field(default_factory=list)
    paces: list[Pace] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    whole: bool = True


# ── while a log is read ─────────────────────────────────────────────────────────────────────────────────────


class First(NamedTuple):
    """The first line of its kind in a source."""

    number: int
    raw: bytes
    step: int | None
    once: bool  # it is in the head, and came only once


class Stepped(NamedTuple):
    """A step with its time, and the envelope of its line, which identifies the writer."""

    number: int
    step: int
    time: float
    envelope: Envelope


@dataclass(frozen=True, slots=True)
class SourceLines:
    """The lines of one source. `whole`: nothing is missing, and no limit was reached."""

    source: Source
    style: Style
    lines: tuple[First, ...] = ()
    steps: tuple[Stepped, ...] = ()
    whole: bool = True


class LineObserver:
    """Collects the distinct lines of one source while it is read. It never raises: see `whole`."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.style = Style()
        self.whole = True
        self._ignores = source.kind not in OBSERVED | DECLARED
        self._pending: list[bytes] = []
        self._size, self._room = 0, ROOM
        self._rest, self._number = b"", 1
        self._seen: dict[int, int] = {}  # hash of a line but for its digits -> its kind
        self._lines: dict[int, First] = {}  # by kind
        self._once: set[int] = set()  # kinds
        self._stepping: set[int] = set()  # kinds of lines with a step
        self._last = (0, b"")  # the last line with a step
        self._steps: list[Stepped] = []
        self._envelopes: dict[object, Envelope] = {}

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the source."""
        if self._ignores:
            return
        self._pending.append(piece)
        self._size += len(piece)
        if self._size >= CHUNK:
            self._split(end=False)

    def fail(self) -> None:
        """Note that the rest of the source cannot be read."""
        self.whole = False

    def result(self) -> SourceLines:
        """Return the lines of the source, after its last bytes."""
        if not self._ignores:
            self._split(end=True)
        lines = (first._replace(once=kind in self._once) for kind, first in self._lines.items())
        return SourceLines(self.source, self.style, tuple(lines), tuple(self._steps), self.whole)

    def _split(self, end: bool) -> None:
        *lines, rest = b"".join((self._rest, *self._pending)).split(b"\n")
        if end and rest:
            lines.append(rest)
        self._pending, self._size, self._rest = [], 0, b"" if end else rest[: 4 * CHUNK]
        start, self._number = self._number, self._number + len(lines)
        try:
            self._chunk(start, [line[:LONGEST] if b"\r" not in line else line[-LONGEST:] for line in lines])
        except Exception:
            self._ignores, self.whole = True, False

    def _chunk(self, start: int, lines: list[bytes]) -> None:
        if start == 1 and self.source.kind != "run":  # its sentences begin with a rank
            self.style = envelope.learn(map(bare, first_lines(b"\n".join(lines[:200]), 200)))
        every = max(1, len(lines) // PACED)
        for n, raw in enumerate(lines, start):
            label = _LABEL.match(raw)
            own, digits = label[0] if label else b"", raw.translate(_DIGITS)
            key = hash(own + digits)
            kind = self._seen.get(key)
            known = kind is not None
            if kind is None:
                # the hash of a line without words that have a digit, which may be ids
                if len(self._seen) > KEYS:
                    self._seen.clear()
                plain = self.source.kind in DECLARED
                kind = self._seen[key] = key if plain else hash(own + _WITH_DIGIT.sub(b"0", digits))
                known = kind in self._lines
            if not known:
                self._new(n, raw, kind)
            elif self._once and kind in self._once:
                self._once.discard(kind)
            if kind in self._stepping:
                self._last = n, raw
                if known and n % every == 0:
                    self._pace(n, raw)

    def _new(self, number: int, raw: bytes, kind: int) -> None:
        self._room -= len(raw)
        if len(self._lines) >= MOST_FORMS or self._room < 0:
            self.whole = False
            return
        self._lines[kind] = First(number, raw, self._step_before(number), False)
        if number <= HEAD or self.source.kind in DECLARED:
            self._once.add(kind)
        if signs.step(self._peeled(raw).body) is not None:
            self._stepping.add(kind)

    def _step_before(self, number: int) -> int | None:
        at, raw = self._last
        return signs.step(self._peeled(raw).body) if 0 < number - at <= LOOKBACK and at else None

    def _pace(self, number: int, raw: bytes) -> None:
        env = self._peeled(raw)
        if env.stamp is not None and (step := signs.step(env.body)) is not None:
            key = env.rank, env.local_rank, env.writer, env.pid, env.host  # few for thousands of lines
            shared = self._envelopes.setdefault(key, env._replace(body="", stamp=None))
            self._steps.append(Stepped(number, step, env.stamp.time, shared))

    def _peeled(self, raw: bytes) -> Envelope:
        return envelope.peel(visible(decode(raw)), self.style)


# ── when all is read ────────────────────────────────────────────────────────────────────────────────────────


def run_lines(reads: Iterable[Read], owner: Owner, names: Set[str] = frozenset()) -> RunLines:
    """Return all lines of logs that were read with `Ways(observe=LineObserver)`. `owner` gives the rank of a line,
    `names` are hosts."""
    found = RunLines()
    for read in reads:
        found.whole = found.whole and not read.skips
        for one in read.observed:
            assert isinstance(one, SourceLines)
            found.kinds.add(one.source.kind)
            found.whole = found.whole and one.whole
            for first in one.lines:
                _add(found, one, first, owner, names)
            for number, step, time, env in one.steps:
                found.paces.append(Pace((one.source.path, _rank(one.source, number, "", env, owner)), step, time))
    return found


def forms(reads: Iterable[Read]) -> frozenset[str]:
    """Return the forms of all lines of a run."""
    return frozenset(run_lines(reads, lambda e: e.rank).distinct)


def _add(found: RunLines, one: SourceLines, first: First, owner: Owner, names: Set[str]) -> None:
    """Add the first line of a kind to the lines of its run."""
    source = one.source
    text = visible(decode(first.raw))
    env = envelope.peel(text, one.style)
    text = bare(text)
    if env.kernel or not text.strip():
        return
    rank = _rank(source, first.number, text, env, owner)
    if first.once:
        found.once.append(Once(cut(text, 4000), rank, source.kind))
    if source.kind in DECLARED:
        return
    if env.stamp is not None and (step := signs.step(env.body)) is not None:
        found.paces.append(Pace((source.path, rank), step, env.stamp.time))
    form = alike(text, names)
    known = found.distinct.get(form)
    if known is None:
        if len(found.distinct) >= MOST_FORMS:
            found.whole = False
            return
        known = found.distinct[form] = DistinctLine(
            cut(text, 1000),
            source.path,
            first.number,
            env.line or first.number,
            signs.troubled(env.body),
            signs.is_ordinary(Line(first.number, text, env)),
            first.step,
        )
    if rank is not None:
        known.ranks.add(rank)


def _rank(source: Source, number: int, text: str, env: Envelope, owner: Owner) -> int | None:
    if env.rank is not None:
        return env.rank
    local = env.local_rank if env.local_rank is not None else source.local_rank
    fields: Details = {} if local is None else {"local_rank": local}
    fields |= {"writer": env.writer} if env.writer else {}
    where, host = Where(source.path, number), source.host or env.host
    event = Event("line", where, text, rank=source.rank, host=host, pid=env.pid, run=source.run)
    return owner(event._replace(fields=fields, source_kind=source.kind))
