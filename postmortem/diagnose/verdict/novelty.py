"""Lines of one rank that the others and a healthy run lack: leads for a failure without a pattern.

    INFO:train:rank 3 saved /data/run-7/ckpt_120.pt on gpu-017   ->   INFO:train:rank N saved /ckpt_N.pt on H

Lines are compared by their form, without the parts that differ from rank to rank and from run to run. `--baseline` and
`postmortem diff` use the same forms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Set

from postmortem.diagnose.case import Case
from postmortem.formats.lineform import alike
from postmortem.model import Event

MOST_LINES = 8


def leads(case: Case, known: Set[object], usual: Set[str]) -> list[Event]:
    """Complaints that only one rank printed, latest first, but for addresses that a pattern accounts for (`known`) and
    forms of a healthy run (`usual`). The only rank of a job is compared with such a run alone."""
    alone = len(case.by_rank) < 2
    if alone and not usual:
        return []
    printed: dict[str, dict[int | None, Event]] = defaultdict(dict)
    for e in case.of_kind("notice", "exception"):
        form = alike(e.text)
        if form not in usual and e.place not in known:
            printed[form].setdefault(case.rank_of(e), e)
    lone = [next(iter(found.values())) for found in printed.values() if len(found) == 1 or alone]
    return sorted(lone, key=lambda e: (e.at or 0.0, e.where.source, e.line), reverse=True)[:MOST_LINES]


def shapes(events: Iterable[Event]) -> frozenset[str]:
    """Forms of the complaints of a run."""
    return frozenset(alike(e.text) for e in events if e.kind in ("notice", "exception"))
