r"""Readers of wrapped logs: each turns the numbered lines of a file into groups, one for each record.

    (7, '{"rank": 2, "exc_info": "Traceback ...\n  File ..."}')
        ->  [Logical(7, "Traceback ..."), Logical(7, "  File ...")]

None raises on content: a line that is not a record passes unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from postmortem.formats import records, times
from postmortem.formats.marks import NOTHING, Facts
from postmortem.model import Stamp

LINE = 4 << 20  # a longer one is passed on in pieces
HELD = 32 << 20  # of a log that is turned around

Numbered = tuple[int, str]


class Logical(NamedTuple):
    """A line as it was printed, and the number of the line in the file that contains it."""

    number: int
    text: str
    facts: Facts = NOTHING
    lead: str = ""  # read with the line, and not shown


Group = list[Logical]  # of one record
Framer = Callable[[Iterator[Numbered]], Iterator[Group]]


def newest_first(framer: Framer) -> Framer:
    """The records of `framer` from the last to the first, if the log is small enough to be held."""

    def turned(lines: Iterator[Numbered]) -> Iterator[Group]:
        held: list[Group] = []
        size = 0
        groups = framer(lines)
        for group in groups:
            held.append(group)
            size += sum(len(line.text) + 100 for line in group)
            if size > HELD:
                break
        yield from reversed(held) if size <= HELD else held
        yield from groups

    return turned


def plain(lines: Iterator[Numbered]) -> Iterator[Group]:
    """Each line is a record."""
    return ([Logical(*line)] for line in lines)


def singles(lines: Iterator[Numbered]) -> Iterator[Group]:
    """A line with a time begins a record."""
    group: Group = []
    for number, text in lines:
        if group and (len(group) > 400 or times.find(text[:48]) is not None):
            yield group
            group = []
        group.append(Logical(number, text))
    if group:
        yield group


def _of(record: records.Record, number: int) -> Group:
    facts = records.facts(record)
    return [Logical(number, line.text, facts, line.lead) for line in records.texts(record)]


def json_lines(lines: Iterator[Numbered]) -> Iterator[Group]:
    """One record a line. Docker's daemon cuts a long line into records without a line end."""
    begun: Group = []
    for number, text in lines:
        record = records.load(text)
        if record is None or records.body_of(record) is None:
            yield [*begun, Logical(number, text)]
            begun = []
            continue
        group = _of(record, number)
        if begun:
            group[0] = group[0]._replace(number=begun[0].number, text=begun[0].text + group[0].text)
            begun = []
        body = record.get("log")
        if isinstance(body, str) and "stream" in record and not body.endswith("\n") and len(group[0].text) < LINE:
            begun = group
        else:
            yield group
    if begun:
        yield begun


# ── key=value ───────────────────────────────────────────────────────────────────────────────────

_PAIR = re.compile(r'([A-Za-z_@][\w.@/-]{0,60})=("(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[^\s"\']*)(?: +|$)')


def _pairs(text: str) -> dict[str, object] | None:
    """The fields of a logfmt line, or None."""
    found: dict[str, object] = {}
    at = 0
    while m := _PAIR.match(text, at):
        value = m[2]
        if value[:1] in ('"', "'"):
            quote, value = value[0], value[1:-1]
            for escaped, letter in ((f"\\{quote}", quote), ("\\n", "\n"), ("\\t", "\t"), ("\\\\", "\\")):
                value = value.replace(escaped, letter)
        found[m[1]] = value
        at = m.end()
    return found if at == len(text) and not found.keys().isdisjoint(("msg", "message", "event")) else None


def logfmt(lines: Iterator[Numbered]) -> Iterator[Group]:
    for number, text in lines:
        record = _pairs(text.strip())
        yield [Logical(number, text)] if record is None else _of(record, number)


def is_logfmt(lines: list[str]) -> bool:
    """Whether a third of the first lines are logfmt."""
    some = lines[:40]
    pairs = sum(1 for line in some if _pairs(line.strip()) is not None)
    return pairs >= 3 and pairs * 3 >= len(some)


def is_descending(stamps: Iterable[Stamp | None], lines: int) -> bool:
    """Whether `lines` times go down, as in an export from the newest to the oldest. Most logs go up, which a
    dozen lines decide."""
    known = ups = downs = 0
    before: float | None = None
    for read, stamp in enumerate(stamps, 1):
        if stamp is not None:
            known += 1
            ups += before is not None and stamp.time > before
            downs += before is not None and stamp.time < before
            before = stamp.time
        if lines - 1 - ups < 20 * ups or (read - known) * 2 >= lines:
            return False
    return known * 2 > lines and downs >= 4 and downs >= 20 * ups
