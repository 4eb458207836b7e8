"""An exception that lists one value for each rank, or names one: whoever has another than most is the odd one.

[rank3]: DistributedOperationException: Cannot apply desired operation due to shape mismatches.
[rank3]:   - Process 1: [8, 48]
[rank3]:   - Process 2: [8, 61]        rank 2, whoever prints it

[rank0]: Diverged: codebook usage of rank 1 is inf, stopping all ranks
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive.hangs.views import make, minority
from postmortem.diagnose.wording import ranks_text
from postmortem.model import Event
from postmortem.model.digits import whole
from postmortem.system import lazy as late

SIZES, OTHER = "ranks-list-other-shapes", "ranks-list-other-values"
_SIZE = late.regex(
    r"(?:torch\.Size\()?[\[(]?[\d, x*]+[\])]*(?: (?:elements?|batches|samples|items|tokens|rows|bytes))?$"
    r"|(?:torch\.)?(?:b?float|u?int|complex|bool)\d{0,3}$|(?:\w+ )?(?:shape|size|numel|dtype)\b",
    re.IGNORECASE,
)


MOST = 600  # characters of a message
_RANK = late.regex(r"\b[Rr]ank[ =#]?(\d{1,6})\b")
_TOLD = late.regex(
    r"\b[Rr]ank[ =#]?(?P<rank>\d{1,6}) (?P<value>(?:is|was|has|had|sent|got|gave|returned|reported|produced|diverged)"
    r" (?!not\b|no\b|out of|invalid|already|waiting|timed|been|the only|a member|expected)[^,;\n]{1,60})"
)


@dataclass(frozen=True)
class Odd:
    """Who has another value than most, and which."""

    ranks: tuple[int, ...]
    rows: tuple[tuple[int, str, int, int | None, str], ...]  # of these ranks, first
    usual: str
    sizes: bool


def odd(e: Event) -> Odd | None:
    """Who is the odd one in the table of an exception; None where it has none, or no majority."""
    table = e.fields.get("table")
    if e.fields.get("wrapper"):
        return None
    if not isinstance(table, tuple):
        return _named(e)
    groups: dict[str, list[int]] = {}
    for rank, value, *_ in table:
        groups.setdefault(value, []).append(rank)
    ranks, majority = minority(groups)
    if not ranks or not majority:
        return None
    usual = max(groups, key=lambda value: len(groups[value]))
    rows = tuple(row for row in table if row[0] in ranks)
    return Odd(tuple(sorted(ranks)), rows, usual, all(_SIZE.match(value) for value in groups))


def _named(e: Event) -> Odd | None:
    """The one rank of which the message of another one's exception tells something."""
    said = str(e.fields.get("message") or "")[:MOST]
    m = _TOLD.search(said)
    if m is None or len(set(_RANK.findall(said))) != 1:
        return None
    rank = whole(m["rank"])
    if rank == e.rank:
        return None
    row = (rank, m["value"].strip(" ,;."), e.where.line or 0, e.where.file_line, e.text)
    return Odd((rank,), (row,), "", sizes=False)


def derive(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """One claim for all exceptions that carry the same table."""
    found: dict[tuple[int, ...], Claim] = {}
    for e, told in _told(claims):
        if told.ranks in found:
            continue
        rank, value, line, file_line, text = told.rows[0]
        shown = e._replace(where=e.where._replace(line=line, end_line=None, file_line=file_line), text=text, rank=None)
        because = f"the exception says that rank {rank} {value}"
        if told.usual:
            because = f"{ranks_text((rank,))} has {value} in the exception's list, most ranks have {told.usual}"
        made = make(case, SIZES if told.sizes else OTHER, told.ranks, [shown, e], because)
        if made is not None:
            found[told.ranks] = made
    return list(found.values())


def _told(claims: Sequence[Claim]) -> Iterator[tuple[Event, Odd]]:
    for c in claims:
        if c.fell_by == "lists_who" and (told := odd(c.event)) is not None:
            yield c.event, told


__all__ = ["derive", "odd"]
