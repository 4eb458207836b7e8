"""What all ranks said once, and one of them with another number.

    OCR/0: charset with 94 glyphs   OCR/1: charset with 94 glyphs   OCR/2: charset with 96 glyphs

Sizes that do not fit together come from somewhere, and mostly somebody said from where: a shard with fewer
batches, a vocabulary with more entries. Numbers that all ranks have differently (pids, losses) say nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive.hangs.views import make, minority
from postmortem.diagnose.wording import ranks_text
from postmortem.formats.lineform import message
from postmortem.model import Event

ENOUGH = 3  # ranks: of two that differ neither is the odd one
PATTERNS = {"collective-mismatch": "number-of-one-rank", "rendezvous": "setting-of-one-rank"}
_OWN = re.compile(  # what differs from rank to rank, or from host to host, as it should: also every mere name
    r"[\w.-]*(?:rank|host|node|ip|addr|pid|gpu|cuda|device|local|time|mem|seed|slot)[\w.-]*[=:]"
    r"|(?![-+]?\d+(?:\.\d+)?$|[A-Za-z_][\w.-]*[=:]|/)",
    re.IGNORECASE,
)
_NONE = re.compile(r"(?!)")
Said = tuple[tuple[str, ...], Event]


class Odd(NamedTuple):
    """Who stated another value, the lines, and what they say in words."""

    rank: int
    events: tuple[Event, ...]
    because: str


def derive(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """At most one claim, where sizes or operations differed, or the ranks did not meet: who stated another
    value than all others."""
    failed = {c.pattern.category for c in claims if c.accuses}
    name = next((name for category, name in PATTERNS.items() if category in failed), "")
    told = odd(case) if name else None
    made = make(case, name, (told.rank,), told.events, told.because) if told is not None else None
    return [made] if made else []


def odd(case: Case) -> Odd | None:
    """The one rank that stated another value than all others, in whatever sentence."""
    found: dict[int, list[tuple[Event, str]]] = defaultdict(list)
    for said in _by_sentence(case).values():
        if (told := _differs(case, said)) is not None:
            found[told[0]].append((said[told[0]][1], told[1]))
    if len(found) != 1:
        return None
    ((rank, told_by),) = found.items()
    return Odd(rank, tuple(e for e, _ in told_by[:3]), told_by[0][1])


def _by_sentence(case: Case) -> Mapping[int, dict[int, Said]]:
    """Shape -> rank -> the numbers in it, of sentences that a rank said once."""
    found: dict[int, dict[int, Said]] = defaultdict(dict)
    for e in case.of_kind("line"):
        rank, told = case.rank_of(e), e.fields.get("stated")
        if rank is None or not isinstance(told, tuple):
            continue
        for shape, values, line, text, time in told:
            found[shape].setdefault(rank, (values, _line(case, e, line, text, time)))
    return found


def _line(case: Case, last: Event, line: int, text: str, time: float | None) -> Event:
    """A line of a writer of which only the last is an event; its clock is the log's."""
    where = last.where._replace(line=line, end_line=None, file_line=None)
    bare = last._replace(where=where, text=text, context=(), before=0, time=time, at=None, at_sigma=0.0)
    for x in case.by_source[where.source]:
        if time is not None and x.raw_time and x.at is not None and x.time is not None:
            return bare._replace(at=time + x.at - x.time, at_sigma=x.at_sigma)
    return bare


def _differs(case: Case, said: Mapping[int, Said]) -> tuple[int, str] | None:
    """The one rank of all that has another value where all others have the same, or the same in another
    order; and that in words."""
    ranks = case.registry.ranks
    if len(ranks) < ENOUGH or set(said) != set(ranks):
        return None
    columns = [column for column in zip(*(said[r][0] for r in ranks), strict=False) if len({*column}) < len(ranks)]
    rows = dict(zip(ranks, zip(*columns, strict=True), strict=True)) if columns else {}
    if len({tuple(sorted(row)) for row in rows.values()}) == 1:
        return _alone(said, {r: " ".join(row) for r, row in rows.items()}, _NONE)
    found = (_alone(said, dict(zip(ranks, column, strict=True)), _OWN) for column in columns)
    return next((told for told in found if told is not None), None)


def _alone(said: Mapping[int, Said], values: Mapping[int, str], own: re.Pattern[str]) -> tuple[int, str] | None:
    groups: dict[str, list[int]] = defaultdict(list)
    for rank, value in values.items():
        groups[value].append(rank)
    odd, majority = minority(groups)
    if not (majority and len(odd) == 1 and len(groups) == 2) or any(map(own.match, groups)):
        return None
    usual = max(groups, key=lambda value: len(groups[value]))
    told = message(said[odd[0]][1].text)
    return odd[0], f"{ranks_text(odd)} logged `{told}`; all others logged {usual}"


__all__ = ["Odd", "derive", "odd"]
