"""Logs -> what was said in them: each distinct line once, by its form, with who said it first and where.

    heard(containers, owner).said["saved /ckpt_N.pt"]   ->   Said("saved /data/ckpt_120.pt", line=812, …)

The scan keeps lines that match something; who compares two runs has to know all of them. A line whose digits
alone differ from an earlier one costs a hash, so logs of a gigabyte are read at the speed of their lines.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from postmortem import collect
from postmortem.collect import Container
from postmortem.diagnose.novelty import alike
from postmortem.model import Event, Source, Where
from postmortem.parsers import envelope, signs, unwrap, words
from postmortem.parsers.envelope import Envelope, Style
from postmortem.parsers.excerpt import Line, decode, first_lines, visible
from postmortem.parsers.marks import bare
from postmortem.pool import seconds_for
from postmortem.privacy import cut

SPOKEN = frozenset({"console", "agent", "json-lines", "ray", "scheduler"})
DECLARED = frozenset({"environment", "run"})  # what a job was started with
CHUNK, LONGEST = 1 << 20, 1 << 14
MOST = 40_000  # forms of a run, and distinct lines of a file
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


def heard(containers: Iterable[Container], owner: Owner, names: Set[str] = frozenset()) -> Heard:
    """Listen to all that speaks. `owner` knows whose line it is, `names` are hosts."""
    found = Heard()
    for source, stream in _sources(containers):
        found.kinds.add(source.kind)
        if source.kind in SPOKEN | DECLARED:
            _Listener(found, source, owner, names).listen(stream)
    return found


def forms(containers: Iterable[Container]) -> frozenset[str]:
    """The forms of all lines of a run, to subtract from another's."""
    return frozenset(heard(containers, lambda e: e.rank).said)


def _sources(containers: Iterable[Container]) -> Iterator[tuple[Source, collect.Readable]]:
    for container in containers:
        limits = collect.Limits(seconds=seconds_for(container.weight))
        try:
            yield from collect.open_sources(container, limits)
        except Exception:  # the analysis has told of it
            continue


class _Listener:
    """Reads one source."""

    def __init__(self, found: Heard, source: Source, owner: Owner, names: Set[str]) -> None:
        self.found, self.source, self.owner, self.names = found, source, owner, names
        self.style = Style()
        self.seen: dict[int, int] = {}  # the kinds of lines, by the lines but for their digits
        self.kinds: set[int] = set()
        self.once: dict[int, Once] = {}

    def listen(self, stream: collect.Readable) -> None:
        try:
            for start, lines in _chunks(unwrap.of(self.source, stream)):
                if start == 1 and self.source.kind != "run":  # its sentences begin with a rank
                    self.style = envelope.learn(map(bare, first_lines(b"\n".join(lines[:200]), 200)))
                self._chunk(start, lines)
        except Exception:
            self.found.whole = False
        self.found.once += self.once.values()

    def _chunk(self, start: int, lines: list[bytes]) -> None:
        every = max(1, len(lines) // PACED)
        for n, raw in enumerate(lines):
            label = _LABEL.match(raw)
            own, digits = label[0] if label else b"", raw.translate(_DIGITS)
            key = hash(own + digits)
            kind = self.seen.get(key)
            known = kind is not None
            if kind is None:
                kind = self._kind(key, own, digits)
                known = kind in self.kinds
            if known:
                self.once.pop(kind, None)
                if n % every == 0:
                    self._pace(start + n, raw)
            elif len(self.kinds) < MOST:
                self.kinds.add(kind)
                self._new(start + n, raw, kind)
            else:
                self.found.whole = False

    def _kind(self, key: int, own: bytes, digits: bytes) -> int:
        """What lines share that differ in words with a digit alone, which may be ids."""
        if len(self.seen) > KEYS:
            self.seen.clear()
        plain = self.source.kind in DECLARED
        kind = self.seen[key] = key if plain else hash(own + _WITH_DIGIT.sub(b"0", digits))
        return kind

    def _pace(self, number: int, raw: bytes) -> None:
        text = visible(decode(raw))
        env = envelope.peel(text, self.style)
        if env.stamp is not None and (step := signs.step(env.body)) is not None:
            rank = self._rank(number, text, env)
            self.found.paces.append(Pace((self.source.path, rank), step, env.stamp.time))

    def _new(self, number: int, raw: bytes, kind: int) -> None:
        text = visible(decode(raw))
        env = envelope.peel(text, self.style)
        said = bare(text)
        if env.kernel or not said.strip():
            return
        rank = self._rank(number, said, env)
        if number <= HEAD or self.source.kind in DECLARED:
            self.once[kind] = Once(cut(said, 4000), rank, self.source.kind)
        if self.source.kind in DECLARED:
            return
        if env.stamp is not None and (step := signs.step(env.body)) is not None:
            self.found.paces.append(Pace((self.source.path, rank), step, env.stamp.time))
        form = alike(said, self.names)
        known = self.found.said.get(form)
        if known is None:
            if len(self.found.said) >= MOST:
                self.found.whole = False
                return
            shown = env.line or number
            known = Said(
                cut(said, 1000),
                self.source.path,
                number,
                shown,
                signs.troubled(env.body),
                words.is_ordinary(Line(number, said, env)),
            )
            self.found.said[form] = known
        if rank is not None:
            known.ranks.add(rank)

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


def _chunks(stream: collect.Readable) -> Iterator[tuple[int, list[bytes]]]:
    """Whole lines with the number of the first of them; of an endless one its beginning."""
    rest, number = b"", 1
    while piece := stream.read(CHUNK):
        *lines, rest = (rest + piece).split(b"\n")
        rest = rest[: 4 * CHUNK]
        yield number, [line[:LONGEST] if b"\r" not in line else line[-LONGEST:] for line in lines]
        number += len(lines)
    if rest:
        yield number, [rest[:LONGEST] if b"\r" not in rest else rest[-LONGEST:]]


def steps_before(
    containers: Iterable[Container], wanted: Mapping[str, Set[int]]
) -> dict[tuple[str, int], int]:
    """The step that was told last in front of some lines, by path and number: `(rank3.log, 812) -> 120`."""
    found: dict[tuple[str, int], int] = {}
    for source, stream in _sources(containers):
        left = set(wanted.get(source.path, ()))
        before: deque[bytes] = deque(maxlen=LOOKBACK)
        try:
            for start, lines in _chunks(unwrap.of(source, stream)) if left else ():
                for number, raw in enumerate(lines, start):
                    if number in left and (step := _last_step(before)) is not None:
                        found[source.path, number] = step
                    before.append(raw)
                left = {number for number in left if number >= start + len(lines)}
                if not left:
                    break
        except Exception:  # what was found is found
            continue
    return found


def _last_step(lines: deque[bytes]) -> int | None:
    told = (signs.step(envelope.peel(visible(decode(raw))).body) for raw in reversed(lines))
    return next((step for step in told if step is not None), None)
