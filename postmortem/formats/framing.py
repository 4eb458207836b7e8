r"""Readers of wrapped logs: each turns the numbered lines of a file into groups, one for each record.

    (7, '{"rank": 2, "exc_info": "Traceback ...\n  File ..."}')
        ->  [Logical(7, "Traceback ..."), Logical(7, "  File ...")]

None raises on content: a line that is not a record passes unchanged.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from postmortem.formats import records, times
from postmortem.formats.marks import NOTHING, Facts
from postmortem.model import Stamp

LINE = 4 << 20  # a longer one is passed on in pieces
HELD = 32 << 20  # of a log that is turned around
MULTILINE = 1 << 20  # of one field of a table

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


def returned(lines: Iterator[Numbered]) -> Iterator[Group]:
    """Lines that end in `\\r` only, as serial consoles and progress bars write them."""
    held, last = "", 0
    for number, text in lines:  # one line of the file, in pieces if it is long
        if held and (number != last or len(held) > LINE):
            yield [Logical(last, held)]
            held = ""
        *whole, held = (held + text).split("\r")
        yield [Logical(number, line) for line in whole]
        last = number
    if held:
        yield [Logical(last, held)]


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


# ── key=value, and tables ───────────────────────────────────────────────────────────────────────────────────

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


def table(lines: list[str]) -> Framer | None:
    """The reader of a table with a header that has columns for times and messages, or None."""
    for delimiter in (",", ";", "\t"):
        names = [name.strip().strip('"') for name in lines[0].split(delimiter)]
        wide = 2 <= len(names) <= 64 and len(lines[0]) < 2000
        if wide and records.body_of(dict.fromkeys(names, "")) and any(n in records.NAMES["times"] for n in names):
            return partial(_rows, delimiter=delimiter)
    return None


def _rows(lines: Iterator[Numbered], delimiter: str) -> Iterator[Group]:
    names: list[str] = []
    for number, row in _whole_rows(lines):
        try:
            cells = next(csv.reader(io.StringIO(row), delimiter=delimiter), [])
        except csv.Error:
            cells = []
        if not names:
            names = [cell.strip() for cell in cells]
        elif len(cells) != len(names):
            yield [Logical(number + i, text) for i, text in enumerate(row.split("\n"))]
        else:
            group = _of(dict(zip(names, cells, strict=True)), number)
            first = row.count("\n", 0, max(0, row.find(group[0].text[:60].replace('"', '""')))) if group else 0
            most = row.count("\n")
            yield [line._replace(number=number + min(first + i, most)) for i, line in enumerate(group)]


def _whole_rows(lines: Iterator[Numbered]) -> Iterator[Numbered]:
    """Rows of a table. A quoted field may contain line ends."""
    for first, text in lines:
        held, size, quotes = [text], len(text), text.count('"')
        while quotes % 2 and size <= MULTILINE and (more := next(lines, None)):
            held.append(more[1])
            size += len(more[1]) + 1
            quotes += more[1].count('"')
        yield first, "\n".join(held)


# ── lines that were cut ─────────────────────────────────────────────────────────────────────────────────────

_CRI = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) (std(?:out|err)) ([FP])(?: |$)")


def is_cut_by_cri(lines: list[str]) -> bool:
    """Whether containerd or CRI-O wrote the file and cut lines of it."""
    found = [m[2] for line in lines if (m := _CRI.match(line))]
    return "P" in found and len(found) * 10 > len(lines) * 9


def cri(lines: Iterator[Numbered]) -> Iterator[Group]:
    """The lines of containerd's log, the pieces of each joined."""
    begun: dict[str, Logical] = {}  # by stream
    for number, text in lines:
        m = _CRI.match(text)
        if m and (last := begun.pop(m[1], None)):
            line = Logical(last.number, last.text + text[m.end() :])
        else:
            line = Logical(number, text.replace(f" {m[1]} P ", f" {m[1]} F ", 1) if m else text)
        if m and m[2] == "P" and len(line.text) < LINE:
            begun[m[1]] = line
        else:
            yield [line]
    yield from ([line] for line in begun.values())


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
