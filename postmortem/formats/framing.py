r"""Readers of wrapped logs: each turns the numbered lines of a file into groups, one for each record.

    (7, '{"rank": 2, "exc_info": "Traceback ...\n  File ..."}')
        ->  [Logical(7, "Traceback ..."), Logical(7, "  File ...")]

None raises on content: a line that is not a record passes unchanged.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple

from postmortem.formats import plain_json, records, times
from postmortem.formats.marks import NOTHING, Facts
from postmortem.model import Stamp

LINE = 4 << 20  # a longer one is passed on in pieces
HELD = 32 << 20  # of an export that is read whole, or of a log that is turned around
TRIES = 20_000  # objects without a record, after which a document is given up
MOST_OUTSIDE = 400  # characters outside of objects at the begin of a document
EFFORT = 6  # times the size of a document that may be read: an object that contains records is read twice

MULTILINE = 1 << 20  # of one row of a table

Numbered = tuple[int, str]


class Logical(NamedTuple):
    """A line as it was printed, and the number of the line in the file that contains it."""

    number: int
    text: str
    facts: Facts = NOTHING
    prefix: str = ""  # read with the line, and not shown


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


def _group(record: records.Record | None, number: int, text: str) -> Group:
    """The lines of a record, or the text that is none."""
    if record is None or records.body_of(record) is None:
        return [Logical(number, text)]
    facts = records.facts(record)
    return [Logical(number, line.text, facts, line.prefix) for line in records.texts(record)]


# ── lines that a container runtime cut into pieces, of 16 KiB by default ────────────────────────────────────────

Piece = tuple[str, bool, Group, int]  # the stream; whether its line goes on; the lines; the length of their prefix


def _joined(pieces: Iterator[Piece]) -> Iterator[Group]:
    """The groups, with the pieces of each cut line joined."""
    begun: dict[str, Group] = {}  # by stream
    for stream, goes_on, group, prefix in pieces:
        if head := begun.pop(stream, None):
            joined = head[-1]._replace(text=head[-1].text + group[0].text[prefix:])
            group = [*head[:-1], joined, *group[1:]]
        if goes_on and sum(len(line.text) for line in group) < LINE:
            begun[stream] = group
        else:
            yield group
    yield from begun.values()


def _of_docker(lines: Iterator[Numbered]) -> Iterator[Piece]:
    ends = False  # other collectors write no line ends
    for number, text in lines:
        record = records.load(text)
        body = record.get("log") if record is not None and "stream" in record else None
        ended = not isinstance(body, str) or body.endswith("\n")
        ends = ends or (ended and body is not None)
        yield str(record and record.get("stream")), ends and not ended, _group(record, number, text), 0


def json_lines(lines: Iterator[Numbered]) -> Iterator[Group]:
    """One record a line. Docker's daemon cuts a long line into records without a line end."""
    return _joined(_of_docker(lines))


_CRI = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) (std(?:out|err)) ([FP])(?: |$)")


def is_cut_by_cri(lines: list[str]) -> bool:
    """Whether containerd or CRI-O wrote the file and cut lines of it."""
    misses, cut = (len(lines) - 1) // 10, False
    for line in lines:
        if m := _CRI.match(line):
            cut = cut or m[2] == "P"
        elif (misses := misses - 1) < 0:
            return False
    return cut


def _of_cri(lines: Iterator[Numbered]) -> Iterator[Piece]:
    for number, text in lines:
        m = _CRI.match(text)
        shown = text.replace(f" {m[1]} P ", f" {m[1]} F ", 1) if m else text
        yield (m[1] if m else ""), bool(m and m[2] == "P"), [Logical(number, shown)], m.end() if m else 0


def cri(lines: Iterator[Numbered]) -> Iterator[Group]:
    """The lines of containerd's log; a piece with the flag P goes on in the next piece of its stream."""
    return _joined(_of_cri(lines))


# ── exports: records as one JSON document ───────────────────────────────────────────────────────────────────

# [\n  {\n    "timestamp": "...",\n    "textPayload": "[rank1]: ValueError: ..."\n  },   gcloud logging read
# {"events": [{"timestamp": 1795331121352, "message": "..."}, ...]}                      aws logs get-log-events
_OPENS = re.compile(r"\s*(?:\[\s*)?\{\s*\"[^\"\\\n]{1,80}\"\s*:")


def is_export(text: str) -> bool:
    """Whether a file begins like such a document: with a record, and with little text outside of objects."""
    return _OPENS.match(text) is not None and next(exported(text), None) is not None and _is_whole(text)


def _is_whole(text: str) -> bool:
    """Whether objects follow each other. A log with some JSON has lines between the objects."""
    decoder = json.JSONDecoder(strict=False)
    at = outside = 0
    while (begins := text.find("{", at)) >= 0 and outside < MOST_OUTSIDE:
        outside += len(text[at:begins].strip(" \t\r\n,[]"))
        try:
            at = decoder.raw_decode(text, begins)[1]
        except (ValueError, RecursionError):
            return True  # the text ends inside the object that contains the others
    return outside + len(text[at:].strip(" \t\r\n,[]")) < MOST_OUTSIDE


def export(lines: Iterator[Numbered]) -> Iterator[Group]:
    """Records over several lines each: an array, objects one after another, or one object that contains them."""
    held: list[Numbered] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line[1]) + 1
        if size > HELD:
            break
    try:
        whole = plain_json.bounded("\n".join(text for _, text in held)) if size <= HELD else ""
    except plain_json.TooMuch:
        whole = ""
    yield from exported(whole) if whole else ([Logical(*line)] for line in chain(held, lines))


def exported(text: str) -> Iterator[Group]:
    """The lines of each record, with the number of the file's line."""
    decoder = json.JSONDecoder(strict=False)
    at = seen = tries = effort = 0
    number = 1
    while (at := text.find("{", at)) >= 0 and tries < TRIES and effort < EFFORT * len(text) + 1000:
        number, seen = number + text.count("\n", seen, at), at
        try:
            record, end = decoder.raw_decode(text, at)
            record = plain_json.without_surrogates(record, text[at:end])
        except (ValueError, RecursionError):
            tries, effort, at = tries + 1, effort + min(len(text) - at, 1 << 16), at + 1
            continue
        effort += end - at
        if records.body_of(record) is not None:
            yield list(_lines_of(record, text, at, end, number))
        elif any(isinstance(value, dict | list) for value in record.values()):
            tries, end = tries + 1, at + 1
        at = end


def _lines_of(record: records.Record, text: str, at: int, end: int, number: int) -> Iterator[Logical]:
    facts = records.facts(record)
    known: dict[str, int] = {}
    for line in records.texts(record):
        if line.field not in known:
            place = text.find(f'"{line.field}"', at, end)
            known[line.field] = number + text.count("\n", at, place) if place >= 0 else number
        yield Logical(known[line.field], line.text, facts, line.prefix)


# ── key=value, and tables ───────────────────────────────────────────────────────────────────────────────────

_PAIR = re.compile(r'([A-Za-z_@][\w.@/-]{0,60})=("(?:[^"\\]|\\.)*+"|\'(?:[^\'\\]|\\.)*+\'|[^\s"\']*)(?: +|$)')
_BODIES = ("msg", "message", "event")


def _pairs(text: str) -> dict[str, object] | None:
    """The fields of a logfmt line, or None."""
    found: dict[str, object] = {}
    text, at = text.strip(), 0
    while m := _PAIR.match(text, at):
        value = m[2]
        if value[:1] in ('"', "'"):
            quote, value = value[0], value[1:-1]
            for escaped, letter in ((f"\\{quote}", quote), ("\\n", "\n"), ("\\t", "\t"), ("\\\\", "\\")):
                value = value.replace(escaped, letter)
        found[m[1]] = value
        at = m.end()
    return found if at == len(text) and not found.keys().isdisjoint(_BODIES) else None


def logfmt(lines: Iterator[Numbered]) -> Iterator[Group]:
    """Each line as its fields `key=value`."""
    return (_group(_pairs(text), number, text) for number, text in lines)


def is_logfmt(lines: list[str]) -> bool:
    """Whether a third of the first lines are logfmt."""
    some = lines[:40]
    text = "\n".join(some)
    pairs = sum(1 for line in some if _pairs(line) is not None) if any(f"{name}=" in text for name in _BODIES) else 0
    return pairs >= 3 and pairs * 3 >= len(some)


def table(lines: list[str]) -> Framer | None:
    """The reader of a table (CSV) with columns for times and messages in its header; None for others."""
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
            group = _group(dict(zip(names, cells, strict=True)), number, row)
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
