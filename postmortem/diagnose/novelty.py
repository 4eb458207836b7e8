"""What one rank says and no other does: where to look when no pattern knows the failure.

Lines that look like trouble are compared by shape (numbers and prefixes taken off) with those of the other
ranks, and with those of a healthy run where one was given. What all ranks print is weather; what one rank
prints is a lead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Set

from postmortem.diagnose.case import Case
from postmortem.diagnose.wording import shape
from postmortem.model import Event

MOST = 8


def shapes(events: Iterable[Event]) -> frozenset[str]:
    """Shapes of the troubled lines of a run, to subtract from another's."""
    return frozenset(shape(e.text) for e in events if e.kind in ("notice", "exception"))


def leads(case: Case, known: Set[object], usual: Set[str]) -> list[Event]:
    """Troubled lines that one rank alone printed and a healthy run does not, latest first. `known` are
    addresses that a pattern accounts for. A job with one voice has no other to compare with; then only a
    healthy run tells."""
    speakers: dict[str, dict[int | None, Event]] = defaultdict(dict)
    for e in case.of_kind("notice", "exception"):
        if shape(e.text) not in usual and (e.where.source, e.where.line) not in known:
            speakers[shape(e.text)].setdefault(case.rank_of(e), e)
    if len(case.by_rank) < 2 and not usual:
        return []
    lone = [
        next(iter(found.values())) for found in speakers.values() if len(found) == 1 or len(case.by_rank) < 2
    ]
    return sorted(lone, key=lambda e: (e.at or 0.0, e.where.source, e.where.line or 0), reverse=True)[:MOST]
