"""The table of all ranks that an exception's text shows: one value for each.

accelerate.utils.operations.DistributedOperationException: Cannot apply desired operation due to shape
mismatches.
<blank>
Input shapes:
  - Process 0: [8, 48]                      accelerate/utils/operations.py verify_operation()
  - Process 2: [8, 61]

ValueError: batches per rank differ: [12, 12, 11, 12]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from postmortem.formats.excerpt import Line
from postmortem.model.digits import whole

ENOUGH = 3  # of two that differ neither is the odd one
LEAD = 8  # lines between an exception's and the first row
MOST = 4096
_WHO = r"(?:process|proc|rank|gpu|worker|device|node)[ _#]{0,2}[\[(]?(?P<rank>\d{1,6})[\])]?"
_SAYS = r"[ \t]{0,8}(?::|=>|=|->|\bhas\b|\bhad\b|\bgot\b|\bsaw\b|\bsent\b|\breports?\b)[ \t]{0,8}"
_ROW = re.compile(rf"\s{{0,12}}[-*|+]?\s?{_WHO}{_SAYS}(?P<value>\S.{{0,200}})", re.IGNORECASE)
_VALUE = r"(?P<value>torch\.Size\(\[[^\]\n]{0,80}\]\)|\[[^\]\n]{0,80}\]|\([^)\n]{0,80}\)|[\w.+-]{1,40})"
_INLINE = re.compile(rf"\b{_WHO}{_SAYS}{_VALUE}", re.IGNORECASE)
_LIST = re.compile(
    r"(?:\b(?:per|by|across|over|on|of|from|for) (?:(?:all|each|every|the) )?(?:ranks?|process(?:es)?)\b|\bper-rank\b)"
    r"[^\[{\n]{0,60}(?:\[(?P<list>[^\[\]\n]{3,400})\]|\{(?P<dict>\d{1,6} ?: ?[^{}\n]{3,400})\})",
    re.IGNORECASE,
)
_PAIR = re.compile(rf"(?P<rank>\d{{1,6}}) ?: ?{_VALUE}")


class Row(NamedTuple):
    """What one rank has, and where the table says so."""

    rank: int
    value: str
    line: int
    file_line: int | None
    text: str


def rows(exception: Line, below: Iterable[Line]) -> tuple[Row, ...]:
    """The table in an exception's line, or in the lines below it; empty where there is none."""
    found = {row.rank: row for row in reversed(list(_inside(exception)))}
    if len(found) < ENOUGH:
        found = {row.rank: row for row in reversed(list(_beneath(below)))}
    return tuple(sorted(found.values())) if len(found) >= ENOUGH else ()


def _beneath(below: Iterable[Line]) -> Iterator[Row]:
    begun = False
    for apart, line in enumerate(islice(below, MOST)):
        m = _ROW.match(line.envelope.body)
        if m is not None:
            begun = True
            yield _row(whole(m["rank"]), m["value"], line)
        elif begun or apart >= LEAD:
            return


def _inside(line: Line) -> Iterator[Row]:
    body = line.envelope.body[:4000]
    named = list(_INLINE.finditer(body))
    if len(named) < ENOUGH and (m := _LIST.search(body)):
        values = m["list"].split(",") if m["list"] else []
        yield from (_row(rank, value, line) for rank, value in enumerate(values))
        yield from (_row(whole(p["rank"]), p["value"], line) for p in _PAIR.finditer(m["dict"] or ""))
    else:
        yield from (_row(whole(p["rank"]), p["value"], line) for p in named)


def _row(rank: int, value: str, line: Line) -> Row:
    said = " ".join(value.split()).rstrip(".,;")
    return Row(rank, said, line.number, line.envelope.line, line.text[:1000])
