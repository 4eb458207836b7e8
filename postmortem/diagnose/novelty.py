"""What one says and another does not: where to look when no pattern knows the failure.

    INFO:train:rank 3 saved /data/run-7/ckpt_120.pt on gpu-017   ->   INFO:train:rank N saved /ckpt_N.pt on H

Lines are compared by their form: what differs from rank to rank and from run to run taken off. What all ranks
print is weather; what one rank prints is a lead, and so is what a healthy run never printed. `--baseline` and
`postmortem diff` use the same forms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Set

from postmortem.diagnose.case import Case
from postmortem.formats.lineform import alike
from postmortem.model import Event

MOST = 8


def leads(case: Case, known: Set[object], usual: Set[str]) -> list[Event]:
    """Troubled lines that one rank alone printed and a healthy run does not, latest first. `known` are
    addresses that a pattern accounts for, `usual` the forms of that run. A job with one voice has no other to
    compare with; then only a healthy run tells."""
    if len(case.by_rank) < 2 and not usual:
        return []
    speakers: dict[str, dict[int | None, Event]] = defaultdict(dict)
    for e in case.of_kind("notice", "exception"):
        form = alike(e.text)
        if form not in usual and (e.where.source, e.where.line) not in known:
            speakers[form].setdefault(case.rank_of(e), e)
    alone = len(case.by_rank) < 2
    lone = [next(iter(found.values())) for found in speakers.values() if len(found) == 1 or alone]
    return sorted(lone, key=lambda e: (e.at or 0.0, e.where.source, e.where.line or 0), reverse=True)[:MOST]


def shapes(events: Iterable[Event]) -> frozenset[str]:
    """Forms of the troubled lines of a run, to subtract from another's."""
    return frozenset(alike(e.text) for e in events if e.kind in ("notice", "exception"))
