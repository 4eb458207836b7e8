"""Lines that all ranks print after the same collective: marks by which the clocks of hosts can be compared.

    2026-11-20 21:02:56,633 INFO [rank1] train: epoch 0 step 15 loss 2.2822
    2026/11/20 09:02:56 PM | INFO     | node-b | RANK 2 | epoch 0 step 15 loss 2.3101
    2026-11-20 21:02:50,001 INFO [rank1] train: process group ready: rank 1 of 3, pid 23160

A counter is a word and a whole number behind it, unless it is a rank, pid or port. The text before it (logger,
host, rank) differs between hosts and is ignored. `align` chooses the counters on which the ranks agree.

In: the sampled lines of one source. Out: events of kind `sync`, one for each writer, form and clock, with packed
marks, so that 16,000 ranks with 300 marks each fit into memory: `family` (the form), `columns` (whole numbers per
mark), `values`, `times`, `lines`. The first column counts how often the numbers restarted.
"""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Iterator

from postmortem.formats.excerpt import Line
from postmortem.model import Event, Source, Where, speaker_in
from postmortem.model.digits import whole
from postmortem.privacy import cut

MARKS = 300  # kept for each writer: more do not make a clock better
FAMILIES = 16
COLUMNS = 4
TOKENS = 8

_COUNTER = re.compile(  # but not the place in the code that some loggers print: `trainer:fit:88`, `train.py:31`
    r"(?:(?<![\w:./])(?P<name>[A-Za-z][A-Za-z_]{1,24})\"?\]?[ =:#\[(/]{1,12}"
    r"|(?<=[:./])(?P<behind>[A-Za-z][A-Za-z_]{1,24})\"?\]?[ =#\[(/][ =:#\[(/]{0,11})"
    r"(?P<value>\d{1,12})(?![\w.%:-])"
)
_NAME_OF_SOMEONE = re.compile(
    (
        r"(?:\w*_)?(?:rank|p?pid|tid|worker|node|host|gpu|device|cuda|port|world|size|nranks|line|code"
        r"|exitcode|status|signal|version|seed|of)s?"
    ),
    re.IGNORECASE,
)
_TOKEN = re.compile(r"\d+(?:[.,:]\d+)*(?:[eE][-+]?\d+)?[A-Za-z%]*|[A-Za-z_]+")
_UNKNOWN = frozenset({"nan", "inf"})  # a loss that was a number before
_TOGETHER = re.compile(
    r"\b(?:process group|rendezvous|barrier|all ranks|communicator|Init)\b.{0,40}"
    r"\b(?:ready|done|complete[d]?|COMPLETE|passed|reached|joined)\b"
    r"|\b(?:initiali[sz]ed|joined|synchroni[sz]ed)\b.{0,40}\b(?:process group|rendezvous|communicator"
    r"|all ranks|distributed)\b"
    r"|\b(?:process group|distributed|communicator)\b.{0,40}\b(?:initiali[sz]ed|joined)\b"
    r"|All distributed processes registered|\bcheckpoint\b.{0,40}\bsaved\b|\bsaved\b.{0,40}\bcheckpoint\b",
)
_MAY_COUNT = re.compile(r"[ =:#\[(/]\d")  # cheap looks before the long ones
_MAY_JOIN = re.compile(r"group|anks|arrier|endezvous|ommunicator|Init|joined|ynchroni|istributed|heckpoint")
_NOT_YET = re.compile(r"\bnot\b|\bwaiting\b|\bfail|\berror\b|\btimed? ?out\b", re.IGNORECASE)

Key = tuple[str, str]  # form, clock


class _Family:
    """The marks of one form of line by one writer."""

    __slots__ = ("first", "lines", "rows", "sigma", "tail_from", "times")

    def __init__(self, first: Line) -> None:
        self.first = first
        self.rows: list[tuple[int, ...]] = []
        self.times = array("d")
        self.lines = array("q")
        self.sigma = 0.0
        self.tail_from: int | None = None


class Counters:
    """All families of one source, by writer."""

    def __init__(self) -> None:
        self.writers: dict[tuple[int | None, str | None, int | None], dict[Key, _Family]] = {}

    def read(self, line: Line, rank: int | None, gap: bool) -> None:
        """Add a line. `gap`: lines before it were not read."""
        env = line.envelope
        if env.stamp is None or env.stamp.clock == "boot":
            return
        form = form_of(env.body)
        if form is None:
            return
        families = self.writers.setdefault((rank, env.host, env.local_rank), {})
        key = (form[0], env.stamp.clock)
        family = families.get(key)
        if family is None:
            if len(families) >= 4 * FAMILIES:
                return
            family = families[key] = _Family(line)
        if gap and family.tail_from is None:
            family.tail_from = len(family.rows)
        family.rows.append(form[1])
        family.times.append(env.stamp.time)
        family.lines.append(line.number)
        family.sigma = max(family.sigma, env.stamp.sigma)

    def events(self, source: Source) -> Iterator[Event]:
        """One packed event for each family, the largest first, at most MARKS marks for each writer."""
        for (rank, host, local), families in self.writers.items():
            left = MARKS
            ordered = sorted(families.items(), key=lambda item: (-len(item[1].rows), item[0]))
            for (name, _), family in ordered[:FAMILIES]:
                kept = _chosen(family, left)
                left -= len(kept)
                if kept:
                    yield _event(source, rank, host, local, name, family, kept)


def form_of(body: str) -> tuple[str, tuple[int, ...]] | None:
    """The form of a line and its whole numbers: `epoch # step # loss ~` and (0, 15).
    None for lines that show no progress."""
    head = body[:400]
    for m in _COUNTER.finditer(head) if _MAY_COUNT.search(head) else ():
        if not _NAME_OF_SOMEONE.fullmatch(m["name"] or m["behind"]):
            return _form(body, m.start())
    if _MAY_JOIN.search(head) and _TOGETHER.search(head) and not _NOT_YET.search(head):
        words = [t.lower() for t in _TOKEN.findall(head) if not t[0].isdecimal()]
        return "once " + " ".join(words[-6:]), ()
    return None


def _form(body: str, start: int) -> tuple[str, tuple[int, ...]]:
    shape: list[str] = []
    numbers: list[int] = []
    for token in _TOKEN.findall(body[start : start + 160])[:TOKENS]:
        if token.isdecimal() and len(token) <= 15:
            shape.append("#")
            if len(numbers) < COLUMNS:
                numbers.append(whole(token))
        elif token[0].isdecimal() or token.lower() in _UNKNOWN:
            shape.append("~")
        else:
            shape.append(token.lower())
    return " ".join(shape), tuple(numbers)


def _lives(family: _Family) -> list[int]:
    """How often the numbers had started anew before each mark;
    behind a gap how often they will, less than zero."""
    rows = family.rows
    lives, life = [], 0
    for i, row in enumerate(rows):
        if i and row < rows[i - 1]:
            life += 1
        lives.append(life)
    if life * 5 > len(rows):
        return [0] * len(rows)  # these numbers do not count
    if family.tail_from is not None:
        lives[family.tail_from :] = [n - life - 1 for n in lives[family.tail_from :]]
    return lives


def _chosen(family: _Family, most: int) -> list[tuple[int, tuple[int, ...]]]:
    """Marks to keep, as index and row. Of many the same ones on every rank,
    whatever it printed besides; the last ones always."""
    rows = [(life, *row) for life, row in zip(_lives(family), family.rows, strict=True)]
    first: dict[tuple[int, ...], int] = {}
    for i, row in enumerate(rows):
        first.setdefault(row, i)
    if not family.rows[0]:
        first = dict(list(first.items())[:1])
    indices = sorted(first.values())
    if len(indices) > most:
        recent = indices[-min(10, most) :] if most else []
        by_lot = sorted(
            indices[: len(indices) - len(recent)], key=lambda i: (zlib.crc32(repr(rows[i][:3]).encode()), i)
        )
        indices = sorted([*by_lot[: most - len(recent)], *recent])
    return [(i, rows[i]) for i in indices]


def _event(
    source: Source,
    rank: int | None,
    host: str | None,
    local: int | None,
    name: str,
    family: _Family,
    kept: list[tuple[int, tuple[int, ...]]],
) -> Event:
    env = family.first.envelope
    assert env.stamp is not None
    fields: dict[str, object] = {
        "family": name,
        "columns": len(kept[0][1]),
        "values": array("q", [n for _, row in kept for n in row]),
        "times": array("d", [family.times[i] for i, _ in kept]),
        "lines": array("q", [family.lines[i] for i, _ in kept]),
    }
    if (where := local if local is not None else source.local_rank) is not None:
        fields["local_rank"] = where
    return Event(
        kind="sync",
        where=Where(source.path, family.first.number, None, env.line),
        text=cut(family.first.text, 200),
        time=env.stamp.time,
        clock=env.stamp.clock,
        sigma=family.sigma,
        raw_time=env.stamp.raw,
        rank=rank,
        host=source.host or host,
        attempt=source.attempt,
        run=source.run,
        fields=fields,
        source_kind=source.kind,
        speaker=speaker_in(source.kind, rank=rank),
    )
