"""What all ranks said once, and one of them with another number.

    OCR/0: charset with 94 glyphs   OCR/1: charset with 94 glyphs   OCR/2: charset with 96 glyphs

Sizes that do not fit together come from somewhere, and mostly somebody said from where: a shard with fewer
batches, a vocabulary with more entries. Numbers that all ranks have differently (pids, losses) say nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive.hangs.views import make, minority
from postmortem.diagnose.wording import ranks_text
from postmortem.model import Event

ENOUGH = 3  # ranks: of two that differ neither is the odd one
PATTERNS = {"collective-mismatch": "number-of-one-rank", "rendezvous": "setting-of-one-rank"}
_OWN = re.compile(  # what differs from rank to rank, or from host to host, as it should
    r"(?:[\w.-]*(?:rank|host|node|ip|addr|pid|gpu|cuda|device|local|time|mem|seed|slot)[\w.-]*)[=:]",
    re.IGNORECASE,
)
Said = tuple[tuple[str, ...], Event]


def derive(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """At most one claim, where sizes or operations differed, or the ranks did not meet: who stated another
    value than all others."""
    failed = {c.pattern.category for c in claims if c.accuses}
    name = next((name for category, name in PATTERNS.items() if category in failed), "")
    if not name:
        return []
    odd: dict[int, list[tuple[Event, str]]] = defaultdict(list)
    for said in _by_sentence(case).values():
        if (found := _odd(case, said)) is not None:
            rank, because = found
            odd[rank].append((said[rank][1], because))
    if len(odd) != 1:
        return []
    ((rank, told),) = odd.items()
    made = make(case, name, (rank,), [e for e, _ in told[:3]], told[0][1])
    return [made] if made else []


def _by_sentence(case: Case) -> Mapping[int, dict[int, Said]]:
    """Shape -> rank -> the numbers in it, of sentences that a rank said once."""
    found: dict[int, dict[int, Said]] = defaultdict(dict)
    for e in case.of_kind("line"):
        rank, told = case.rank_of(e), e.fields.get("stated")
        if rank is None or not isinstance(told, tuple):
            continue
        for shape, numbers, line, text in told:
            where = e.where._replace(line=line, end_line=None, file_line=None)
            found[shape].setdefault(rank, (numbers, e._replace(where=where, text=text, context=(), before=0)))
    return found


def _odd(case: Case, said: Mapping[int, Said]) -> tuple[int, str] | None:
    """The one rank of all that has another number where all others have the same."""
    ranks = case.registry.ranks
    if len(ranks) < ENOUGH or set(said) != set(ranks):
        return None
    for column in zip(*(said[r][0] for r in ranks), strict=False):
        values: dict[str, list[int]] = defaultdict(list)
        for rank, value in zip(ranks, column, strict=True):
            values[value].append(rank)
        odd, majority = minority(values)
        if majority and len(odd) == 1 and len(values) == 2 and not any(map(_OWN.match, values)):
            usual = max(values, key=lambda value: len(values[value]))
            own = said[odd[0]][1].text.strip()
            return odd[0], f"{ranks_text(odd)} said `{own[-80:]}`, all others {usual}"
    return None
