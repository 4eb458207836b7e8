"""Logs -> what was said in them: each distinct line once, by its form, with who said it first and where.

    heard(listened, owner).said["saved /ckpt_N.pt"]   ->   Said("saved /data/ckpt_120.pt", line=812, …)

The scan keeps lines that match something; who compares two runs has to know all of them. So a `Listener`
hears what the scan reads, in the same pass and process: no log is read twice. A line whose digits alone
differ from an earlier one costs a hash. Whose line it is and what its form is without the names of hosts
needs all logs: `heard` tells that in the end, of each distinct line.
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
from postmortem.privacy import cut
from postmortem.reading import Read

SPOKEN = frozenset({"console", "agent", "json-lines", "ray", "scheduler"})
DECLARED = frozenset({"environment", "run"})  # what a job was started with
CHUNK, LONGEST = 1 << 20, 1 << 14
MOST = 40_000  # forms of a run, and distinct lines of a file
ROOM = 16 << 20  # bytes of a file's distinct lines
KEYS = 500_000  # lines of a file that are known at a glance
PACED = 256  # lines of a chunk that are looked at for a step and its time
HEAD = 2000  # lines of a file in which settings are told
LOOKBACK = 400  # lines in front of one, in which the step before it is looked for
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_WITH_DIGIT = re.compile(rb"[\w.+-]*0[\w.+-]*")
_LABEL = re.compile(rb"(?:\[(?:default|rank)\d+\]:?)+|\d{1,5}: |\[\d+\]<std")

Owner = Callable[[Event], int | None]


@dataclass(slots=True)
class Said:
    """One form: its first line, and who said it."""

    text: str
    source: str
    line: int
    shown: int  # the line of the file, where a collector wrapped it
    troubled: bool
    ordinary: bool  # said by a program itself: no traceback, no library
    step: int | None  # that was told last in front of it
    ranks: set[int] = field(default_factory=set)


class Once(NamedTuple):
    """A line of a file's head that came once, or that declares what a job was started with."""

    text: str
    rank: int | None
    kind: str  # of its source


class Pace(NamedTuple):
    """A step as a line tells it."""

    writer: tuple[str, int | None]
    step: int
    time: float


@dataclass
class Heard:
    """What was said in a run. `whole`: of no file a part is missing, and nothing was too much to keep."""

    said: dict[str, Said] = field(default_factory=dict)
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
    once: bool  # it stands in the head, and came only once


class Stepped(NamedTuple):
    """A step with its time, and of its line what tells whose it is."""

    number: int
    step: int
    time: float
    voice: Envelope


@dataclass(frozen=True, slots=True)
class Listened:
    """What a worker brings back of one source. `whole`: nothing is missing, nothing was too much to keep."""

    source: Source
    style: Style
    lines: tuple[First, ...] = ()
    steps: tuple[Stepped, ...] = ()
    whole: bool = True


class Listener:
    """Hears one source while it is read. It never raises: what it misses, it says."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.style = Style()
        self.whole = True
        self._deaf = source.kind not in SPOKEN | DECLARED
        self._held: list[bytes] = []
        self._size, self._room = 0, ROOM
        self._rest, self._number = b"", 1
        self._seen: dict[int, int] = {}  # the kinds of lines, by the lines but for their digits
        self._kinds: set[int] = set()
        self._lines: dict[int, First] = {}
        self._once: set[int] = set()
        self._stepping: set[int] = set()  # kinds that tell a step
        self._last = (0, b"")  # the last line of them
        self._steps: list[Stepped] = []
        self._voices: dict[object, Envelope] = {}

    def hear(self, piece: bytes) -> None:
        """The next bytes of the source."""
        if self._deaf:
            return
        self._held.append(piece)
        self._size += len(piece)
        if self._size >= CHUNK:
            self._listen(end=False)

    def missed(self) -> None:
        """The rest of the source cannot be read."""
        self.whole = False

    def told(self) -> Listened:
        """What it has heard."""
        if not self._deaf:
            self._listen(end=True)
        lines = (first._replace(once=kind in self._once) for kind, first in self._lines.items())
        return Listened(self.source, self.style, tuple(lines), tuple(self._steps), self.whole)

    def _listen(self, end: bool) -> None:
        *lines, rest = b"".join((self._rest, *self._held)).split(b"\n")
        if end and rest:
            lines.append(rest)
        self._held, self._size, self._rest = [], 0, b"" if end else rest[: 4 * CHUNK]
        start, self._number = self._number, self._number + len(lines)
        try:
            self._chunk(start, [line[:LONGEST] if b"\r" not in line else line[-LONGEST:] for line in lines])
        except Exception:
            self._deaf, self.whole = True, False

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
                kind = self._kind(key, own, digits)
                known = kind in self._kinds
            if not known:
                self._new(n, raw, kind)
            elif self._once and kind in self._once:
                self._once.discard(kind)
            if kind in self._stepping:
                self._last = n, raw
                if known and n % every == 0:
                    self._pace(n, raw)

    def _kind(self, key: int, own: bytes, digits: bytes) -> int:
        """What lines share that differ in words with a digit alone, which may be ids."""
        if len(self._seen) > KEYS:
            self._seen.clear()
        plain = self.source.kind in DECLARED
        kind = self._seen[key] = key if plain else hash(own + _WITH_DIGIT.sub(b"0", digits))
        return kind

    def _new(self, number: int, raw: bytes, kind: int) -> None:
        self._room -= len(raw)
        if len(self._kinds) >= MOST or self._room < 0:
            self.whole = False
            return
        self._kinds.add(kind)
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
            self._steps.append(Stepped(number, step, env.stamp.time, self._voice(env)))

    def _peeled(self, raw: bytes) -> Envelope:
        return envelope.peel(visible(decode(raw)), self.style)

    def _voice(self, env: Envelope) -> Envelope:
        """Few for thousands of lines."""
        key = env.rank, env.local_rank, env.writer, env.pid, env.host
        return self._voices.setdefault(key, env._replace(body="", stamp=None))


# ── when all is read ────────────────────────────────────────────────────────────────────────────────────────


def heard(reads: Iterable[Read], owner: Owner, names: Set[str] = frozenset()) -> Heard:
    """All that was said, of logs that were read with `Ways(ear=Listener)`. `owner` knows whose line it is,
    `names` are hosts."""
    found = Heard()
    for read in reads:
        found.whole = found.whole and not read.skips
        for one in read.heard:
            assert isinstance(one, Listened)
            found.kinds.add(one.source.kind)
            found.whole = found.whole and one.whole
            _Told(found, one, owner, names).all()
    return found


def forms(reads: Iterable[Read]) -> frozenset[str]:
    """The forms of all lines of a run, to subtract from another's."""
    return frozenset(heard(reads, lambda e: e.rank).said)


class _Told:
    """One source, among the others."""

    def __init__(self, found: Heard, one: Listened, owner: Owner, names: Set[str]) -> None:
        self.found, self.one, self.source = found, one, one.source
        self.owner, self.names = owner, names

    def all(self) -> None:
        for first in self.one.lines:
            self._line(first)
        for number, step, time, env in self.one.steps:
            self._paced(step, time, self._rank(number, "", env))

    def _line(self, first: First) -> None:
        text = visible(decode(first.raw))
        env = envelope.peel(text, self.one.style)
        said = bare(text)
        if env.kernel or not said.strip():
            return
        rank = self._rank(first.number, said, env)
        if first.once:
            self.found.once.append(Once(cut(said, 4000), rank, self.source.kind))
        if self.source.kind in DECLARED:
            return
        if env.stamp is not None and (step := signs.step(env.body)) is not None:
            self._paced(step, env.stamp.time, rank)
        form = alike(said, self.names)
        known = self.found.said.get(form)
        if known is None:
            if len(self.found.said) >= MOST:
                self.found.whole = False
                return
            known = self.found.said[form] = Said(
                cut(said, 1000),
                self.source.path,
                first.number,
                env.line or first.number,  # of the file, where a collector wrapped it
                signs.troubled(env.body),
                signs.is_ordinary(Line(first.number, said, env)),
                first.step,
            )
        if rank is not None:
            known.ranks.add(rank)

    def _paced(self, step: int, time: float, rank: int | None) -> None:
        self.found.paces.append(Pace((self.source.path, rank), step, time))

    def _rank(self, number: int, said: str, env: Envelope) -> int | None:
        if env.rank is not None:
            return env.rank
        local = env.local_rank if env.local_rank is not None else self.source.local_rank
        fields: dict[str, object] = {} if local is None else {"local_rank": local}
        fields |= {"writer": env.writer} if env.writer else {}
        where, host = Where(self.source.path, number), self.source.host or env.host
        return self.owner(
            Event("line", where, said, rank=self.source.rank, host=host, pid=env.pid, run=self.source.run,
                  fields=fields, source_kind=self.source.kind)
        )  # fmt: skip
