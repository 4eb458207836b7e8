"""Lines that set one rank apart: a value that differs from that of all others, or a line that it alone printed.

2026-11-23 22:06:15 [rank 1] microbatches 4                          the others: microbatches 8
2026-11-23 21:55:03 [rank 5] kv cache hit for prompt 17              no other rank
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from postmortem.diagnose.claim import Claim
from postmortem.diagnose.compare.rank_rows import Printed, Table
from postmortem.diagnose.wording import capital, ranks_text
from postmortem.formats.lineform import message, shape
from postmortem.model import Event
from postmortem.model.grouped import grouped
from postmortem.system import forms

FEW = 3  # ranks: of two either may be the odd one
_REGEXES = forms.regexes("diagnose/lines")


class Hint(NamedTuple):
    rank: int
    event: Event
    because: str


def find(table: Table) -> Hint | None:
    """The rank that one value, line or warning sets apart, the best evidence first; None where none or several do. The
    first rank often prints more than the others."""
    printing = {r for r, row in table.rows.items() if row.process.lines}
    lines = _by_form((r, *one) for r in printing for one in table.rows[r].once) if len(printing) >= FEW else []
    values = filter(None, (_odd_value(one) for one in lines if one.keys() == printing))
    return _only([*values]) or _only(_lone(lines, printing)) or _only(_lone(_by_form(_warnings(table)), printing))


def _warnings(table: Table) -> Iterator[tuple[int, Event, str]]:
    waits = {e.place for e in table.proofs.values()}
    for rank, events in table.case.by_rank.items():
        for e in events:
            own = e.place not in waits and not e.fields.get("frames") and not _REGEXES["about-peers"].search(e.text)
            if e.kind == "notice" and own:
                yield rank, e, message(e.text)


def _by_form(printed: Iterable[tuple[int, Event, str]]) -> list[dict[int, Printed]]:
    """The first line of each rank, for each form."""
    forms = grouped((shape(body), (r, (e, body))) for r, e, body in printed)
    return [dict(reversed(found)) for found in forms.values()]


def _only(found: Sequence[Hint]) -> Hint | None:
    return found[-1] if len({hint.rank for hint in found}) == 1 else None


def _lone(lines: Sequence[Mapping[int, Printed]], printing: Collection[int]) -> list[Hint]:
    lone = [found for one in lines if len(one) == 1 for found in one.items() if found[0] != min(printing, default=0)]
    return [Hint(rank, e, f"only {ranks_text([rank])} logged `{message(body)}`") for rank, (e, body) in lone]


def _odd_value(printed: Mapping[int, Printed]) -> Hint | None:
    """The rank with another whole number than all others have at the same place of a line; a flag is none."""
    rows = {r: _REGEXES["value"].findall(body) for r, (_, body) in printed.items()}
    for column in zip(*rows.values(), strict=False):
        values = Counter(column)
        (usual, n), *others = values.most_common()
        if n == len(rows) - 1 and others and not set(values) <= {"0", "1"} and not any("." in v for v in values):
            rank = next(r for r, value in zip(rows, column, strict=True) if value != usual)
            e, body = printed[rank]
            other = next(body for r, (_, body) in printed.items() if r != rank)
            because = f"{ranks_text([rank])} logged `{message(body)}`, the others `{message(other)}`"
            return Hint(rank, e, because)
    return None


def followed(table: Table, claim: Claim, hint: Hint) -> Claim:
    """The claim, about the rank that is set apart where the claim itself singles out none."""
    vague = not claim.ranks or len(claim.ranks) > 1 and 2 * len(claim.ranks) >= len(table.rows)
    if claim.role != "cause" or not vague:
        return claim
    host = table.case.registry.host_of.get(hint.rank)
    because = capital(f"{claim.because}; {hint.because}")
    events = (*claim.events[:1], hint.event, *claim.events[1:])
    return replace(claim, ranks=(hint.rank,), hosts=(host,) if host else (), events=events, because=because)


def alone(table: Table, hint: Hint) -> Claim | None:
    """A claim that rests on the hint alone, where ranks waited."""
    because = capital(f"{ranks_text(table.waiting)} timed out; {hint.because}")
    proof = [*(table.rows[r].complaint for r in table.waiting[:1]), hint.event]
    made = table.case.claim("rank-never-arrived", [hint.rank], proof, because)
    return replace(made, strength="silent") if made is not None and table.waiting else None


def odd_notice(table: Table) -> Claim | None:
    """A warning that one rank alone printed while it still worked: often the only trace of a swallowed exception."""
    case = table.case
    waits = {e.place for e in table.proofs.values()}
    notices = [e for e in case.of_kind("notice") if e.place not in waits and not _REGEXES["about-peers"].search(e.text)]
    forms_ = grouped((shape(e.text), e) for e in notices if case.rank_of(e) is not None).values()
    lone = [printed[0] for printed in forms_ if len(case.ranks_of(printed)) == 1]
    ranks = case.ranks_of(lone)
    if len(ranks) != 1 or sum(bool(row.process.lines) for row in table.rows.values()) < 2:
        return None
    events = sorted(lone, key=lambda e: (e.at or 0.0, e.line))[:3]
    because = f"only {ranks_text(ranks)} logged `{message(events[0].text)}`"
    return table.case.claim("odd-warning-on-one-rank", ranks, events, because)
