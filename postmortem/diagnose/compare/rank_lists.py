"""An exception that lists one value per rank, or names one rank: the rank with another value than most is the odd one.

[rank3]: DistributedOperationException: Cannot apply desired operation due to shape mismatches.
[rank3]:   - Process 1: [8, 48]
[rank3]:   - Process 2: [8, 61]        rank 2, whoever prints it

[rank0]: Diverged: codebook usage of rank 1 is inf, stopping all ranks
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.compare.rank_rows import odd_one_out
from postmortem.diagnose.wording import ranks_text
from postmortem.model import Event
from postmortem.model.digits import whole
from postmortem.model.grouped import grouped
from postmortem.system import forms

MOST_CHARACTERS = 600  # characters of a message
_REGEXES = forms.regexes("diagnose/lines")


@dataclass(frozen=True)
class Odd:
    """Ranks with another value than most; `row` is the line of the first."""

    ranks: tuple[int, ...]
    row: tuple[int, str, int, int | None, str]  # rank, value, line, line of the file, text
    usual: str = ""
    title: str = ""  # of a list in the message
    sizes: bool = False


def odd(e: Event) -> Odd | None:
    """The odd ranks by an exception's list; None where it has none, or no majority."""
    if e.fields.get("wrapper"):
        return None
    # a table, or the same rows in the message: `configs differ: rank 0=eb6b, rank 1=4285, rank 2=eb6b`
    found = _REGEXES["rank-value"].finditer(e.fields.get("message", "")[:MOST_CHARACTERS])
    in_a_line = [(whole(m["rank"]), m["value"], e.line, e.where.file_line, e.text) for m in found]
    rows = e.fields.get("table") or in_a_line
    if len(rows) <= 2:
        return _named(e)
    groups = grouped((value, rank) for rank, value, *_ in rows)
    ranks, majority = odd_one_out(groups)
    if not majority:
        return None
    usual = max(groups, key=lambda value: len(groups[value]))
    first = next(row for row in rows if row[0] in ranks)
    title = (
        "" if e.fields.get("table") else _REGEXES["rank-value"].split(e.fields["message"], maxsplit=1)[0].strip(" :(-")
    )
    return Odd(tuple(sorted(ranks)), first, usual, title, all(_REGEXES["size"].match(value) for value in groups))


def _named(e: Event) -> Odd | None:
    """The only rank that the message of another rank's exception is about."""
    text = e.fields.get("message", "")[:MOST_CHARACTERS]
    m = _REGEXES["rank-statement"].search(text)
    if m is None or len(set(_REGEXES["rank-number"].findall(text))) != 1 or whole(m["rank"]) == e.rank:
        return None
    row = (whole(m["rank"]), m["value"].strip(" ,;."), e.line, e.where.file_line, e.text)
    return Odd((whole(m["rank"]),), row)


def derive(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """One claim for all exceptions with the same list."""
    found: dict[tuple[int, ...], Claim] = {}
    for c in claims:
        listed = odd(c.event) if c.fell_by == "lists_who" else None
        if listed is None or listed.ranks in found:
            continue
        e, (rank, value, line, file_line, text) = c.event, listed.row
        shown = e._replace(where=e.where._replace(line=line, end_line=None, file_line=file_line), text=text, rank=None)
        because = f"the exception states that rank {rank} {value}"
        if listed.usual:
            where = f"in `{listed.title}`" if listed.title else "in the exception's list"
            because = f"{ranks_text((rank,))} has {value} {where}, most ranks have {listed.usual}"
        pattern = "ranks-list-other-shapes" if listed.sizes else "ranks-list-other-values"
        made = case.claim(pattern, listed.ranks, [shown, e], because)
        if made is not None:
            found[listed.ranks] = made
    return list(found.values())
