r"""Ways to read the lines of a wrapped log: each turns the file's numbered lines into groups, one for each
record.

    (7, '{"rank": 2, "exc_info": "Traceback ...\n  File ..."}')
        ->  [Logical(7, "Traceback ..."), Logical(7, "  File ...")]

None raises on content: what is no record passes as it stands.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice, pairwise
from typing import NamedTuple

from postmortem.formats import exports, plain_json, records, times
from postmortem.formats.marks import NOTHING, Facts

CHUNK = 1 << 20
LINE = 4 << 20  # a longer one is passed on in pieces
SOME = 200  # lines of a head that are looked into
HELD = 32 << 20  # of an export that has to be read whole: to its end, or from its end
MULTILINE = 1 << 20  # of one field of a table

Numbered = tuple[int, str]


class Logical(NamedTuple):
    """A line as it was printed, and the number of the line in the file that holds it."""

    number: int
    text: str
    facts: Facts = NOTHING
    lead: str = ""  # read with it, and not shown


Group = list[Logical]  # of one record
Framer = Callable[[Iterator[Numbered]], Iterator[Group]]


def newest_first(framer: Framer) -> Framer:
    """The same records from the last to the first, where the log is small enough to be held."""

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
    """Lines as they stand."""
    return ([Logical(number, text)] for number, text in lines)


def singles(lines: Iterator[Numbered]) -> Iterator[Group]:
    """Lines as they stand; those without a time belong to the one above."""
    group: Group = []
    for number, text in lines:
        if group and (len(group) > 400 or times.find(text[:48]) is not None):
            yield group
            group = []
        group.append(Logical(number, text))
    if group:
        yield group


def returned(lines: Iterator[Numbered]) -> Iterator[Group]:
    """Lines that end in `\\r` alone. The file's line is one, and may come in pieces."""
    held, last = "", 0
    for number, text in lines:
        if held and (number != last or len(held) > LINE):
            yield [Logical(last, held)]
            held = ""
        *whole, held = (held + text).split("\r")
        yield [Logical(number, line) for line in whole]
        last = number
    if held:
        yield [Logical(last, held)]


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────


def json_lines(lines: Iterator[Numbered]) -> Iterator[Group]:
    """One record a line. Docker's daemon cuts a long line into records without a line end."""
    begun: list[Logical] = []
    for number, text in lines:
        record = records.load(text)
        if record is None or records.body_of(record) is None:
            yield [*begun, Logical(number, text)]
            begun = []
            continue
        facts = records.facts(record)
        group = [Logical(number, line.text, facts, line.lead) for line in records.texts(record)]
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


def document(lines: Iterator[Numbered]) -> Iterator[Group]:
    """Records over several lines each: an array, objects one after another, or one object that holds them."""
    held: list[str] = []
    size = 0
    for _, text in lines:
        held.append(text)
        size += len(text) + 1
        if size > HELD:
            break
    if size <= HELD and (text := _bounded("\n".join(held))):
        yield from ([Logical(*line) for line in group] for group in exports.groups(text))
        return
    yield from ([Logical(n, text)] for n, text in enumerate(held, 1))
    yield from ([Logical(n, text)] for n, text in lines)


def _bounded(text: str) -> str:
    """The text; nothing where it holds more values than an export of a log has."""
    try:
        return plain_json.bounded(text)
    except plain_json.TooMuch:
        return ""


# ── key=value, and tables ───────────────────────────────────────────────────────────────────────────────────

_PAIR = re.compile(r'([A-Za-z_@][\w.@/-]{0,60})=("(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[^\s"\']*)(?: +|$)')
_SAID = frozenset(("msg", "message", "event"))


def _pairs(text: str) -> dict[str, object] | None:
    """A line that is nothing but key=value; None of any other."""
    found: dict[str, object] = {}
    at = 0
    while m := _PAIR.match(text, at):
        value = m[2]
        if value[:1] in ('"', "'"):  # structlog's KeyValueRenderer prints what repr() says
            value = (
                value[1:-1]
                .replace(f"\\{value[0]}", value[0])
                .replace("\\n", "\n")
                .replace("\\t", "\t")
                .replace("\\\\", "\\")
            )
        found[m[1]] = value
        at = m.end()
    return found if at == len(text) and not _SAID.isdisjoint(found) else None


def logfmt(lines: Iterator[Numbered]) -> Iterator[Group]:
    for number, text in lines:
        record = _pairs(text.strip())
        if record is None:
            yield [Logical(number, text)]
        else:
            facts = records.facts(record)
            yield [Logical(number, line.text, facts, line.lead) for line in records.texts(record)]


def table(lines: list[str]) -> Framer | None:
    """Whether a file is a table whose first row names its columns, one of which is what the program said."""
    for delimiter in (",", ";", "\t"):
        names = [name.strip().strip('"') for name in lines[0].split(delimiter)]
        wide = 2 <= len(names) <= 64 and len(lines[0]) < 2000
        if wide and records.body_of(dict.fromkeys(names, "")) and any(n in records.TIMES for n in names):
            return lambda numbered: _rows(numbered, delimiter)
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
            record = dict(zip(names, cells, strict=True))
            facts, above = records.facts(record), 0
            group = []
            for i, line in enumerate(records.texts(record)):
                above = _above(row, line.text) if not i else min(above + 1, row.count("\n"))
                group.append(Logical(number + above, line.text, facts, line.lead))
            yield group


def _whole_rows(lines: Iterator[Numbered]) -> Iterator[Numbered]:
    """Rows of a table, of which one may go over several lines: inside of quotes."""
    held: list[str] = []
    first = size = quotes = 0
    for number, text in lines:
        first = first if held else number
        held.append(text)
        size += len(text)
        quotes += text.count('"')
        if quotes % 2 == 0 or size > MULTILINE:
            yield first, "\n".join(held)
            held, size, quotes = [], 0, 0
    if held:
        yield first, "\n".join(held)


def _above(row: str, first: str) -> int:
    """How many lines of the file stand above the first one of a field in its row."""
    return row.count("\n", 0, max(0, row.find(first[:60].replace('"', '""'))))


# ── lines that were cut ─────────────────────────────────────────────────────────────────────────────────────

_CRI = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) std(?:out|err) ([FP])(?: |$)")


def partial(lines: list[str]) -> bool:
    """Whether containerd or cri-o wrote the file, and had lines to cut."""
    parts, others = set(), 0
    for line in lines:
        if m := _CRI.match(line):
            parts.add(m[1])
        elif (others := others + 1) * 10 >= len(lines):
            return False
    return "P" in parts


def cri(lines: Iterator[Numbered]) -> Iterator[Group]:
    begun: dict[str, Logical] = {}  # by stream
    for number, text in lines:
        m = _CRI.match(text)
        stream = m[0].split(" ")[1] if m else ""
        if m and (last := begun.pop(stream, None)):
            line = Logical(last.number, last.text + text[m.end() :])
        else:
            line = Logical(number, text.replace(f" {stream} P ", f" {stream} F ", 1) if stream else text)
        if m and m[1] == "P" and len(line.text) < LINE:
            begun[stream] = line
        else:
            yield [line]
    yield from ([line] for line in begun.values())


_JAVA = re.compile(  # java.util.logging, SimpleFormatter: a line for when and where, and one for what
    r"([A-Z][a-z]{2}) (\d{1,2}), (\d{4}),? (\d{1,2})(:\d\d:\d\d [AP]M) [\w.$]{1,200} [\w.$<>]{1,80}$"
)

_CALM = re.compile(r"\A(?:INFO|CONFIG|FINE(?:R|ST)?): ")


def of_java(lines: list[str]) -> bool:
    """Whether every line that says something stands below one that says when."""
    heads = sum(1 for line in lines if _JAVA.match(line))
    return heads >= 3 and heads * 3 >= len(lines)


def java(lines: Iterator[Numbered]) -> Iterator[Group]:
    stamp = None
    for number, text in lines:
        if m := _JAVA.match(text):
            date = f"{m[3]}-{times.MONTHS.get(m[1], 0):02}-{m[2].zfill(2)}"
            stamp = times.find(f"{date} {m[4].zfill(2)}{m[5]}")
        else:  # whole seconds: a line's own stamp, if it has one, tells more
            said = _CALM.sub("", text, count=1)
            own = stamp is None or times.find(said[:48]) is not None
            yield [Logical(number, said, NOTHING if own else Facts(stamp=stamp))]


NARROW, WIDE = 60, 512


def folded(lines: list[str]) -> bool:
    """Whether a terminal of fixed width broke the lines: none is longer, and what follows a full one does not
    begin as lines do."""
    width = max(map(len, lines))
    if not NARROW <= width <= WIDE:
        return False
    wide = [i for i, line in enumerate(lines[:-1]) if len(line) == width]
    if len(wide) < 4:
        return False
    odd = {_shape(lines[i + 1]) for i in wide} - {_shape(lines[0])}  # how no line begins but behind a full one
    for line, following in pairwise(lines):
        if not odd:
            return False
        if _ends(line, width):
            odd.discard(_shape(following))
    if not odd:
        return False
    full = [i for i in wide if _said(lines[i])]
    broken = [i for i in full if _shape(lines[i + 1]) in odd]
    words = sum(1 for i in broken if lines[i][-1].isalnum() and lines[i + 1][0].isalnum())
    padded = any(len(line) == width and _ends(line, width) for line in lines)
    return len(full) >= 4 and words >= (1 if padded else 3) and len(broken) * 2 >= len(full)


def _ends(line: str, width: int) -> bool:
    """Whether a line is whole: it is short, or the copy of a screen filled it up with blanks."""
    return len(line) != width or line.endswith("  ")


def _said(line: str) -> bool:
    """Whether a line is text to its end, and no rule and no row of a table."""
    return line[-1].isascii() and line[-1] not in "|-=" and not line.endswith("  ") and len(set(line)) > 12


def _shape(line: str) -> str:
    """How a line begins, whatever its digits: of a word, only that it is one."""
    return _masked(line[:8])


@lru_cache(maxsize=4096)
def _masked(head: str) -> str:
    return re.sub(r"\d+", "0", head)


def unfolded(lines: Iterator[Numbered]) -> Iterator[Group]:
    ahead = list(islice(lines, 2000))
    width = max((len(text) for _, text in ahead), default=0)
    begun: Logical | None = None
    for number, text in (*ahead, *()):
        begun = Logical(number, text) if begun is None else begun._replace(text=begun.text + text)
        if _ends(text, width) or len(begun.text) > CHUNK:
            yield [begun]
            begun = None
    for number, text in lines:
        begun = Logical(number, text) if begun is None else begun._replace(text=begun.text + text)
        if _ends(text, width) or len(begun.text) > CHUNK:
            yield [begun]
            begun = None
    if begun is not None:
        yield [begun]


def mostly_pairs(lines: list[str]) -> bool:
    """Whether a file is logfmt; what torch and a launcher print between its lines stays as it is."""
    some = lines[:40]
    pairs = sum(1 for line in some if _pairs(line.strip()) is not None)
    return pairs >= 3 and pairs * 3 >= len(some)
