"""Hangs and desynchronization: which rank did not arrive, went elsewhere, left or stopped, while the others wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.compare import comparisons, hints, library_reports, watchdogs
from postmortem.diagnose.compare.rank_rows import Table, table
from postmortem.model.vocabulary import OF_THE_GROUP

STEPS: tuple[Callable[[Table], Claim | None], ...] = (  # the best evidence first
    library_reports.fingerprints,
    library_reports.recorded,
    library_reports.desync_report,
    watchdogs.differ,
    watchdogs.behind,
    comparisons.stacks,
    comparisons.left,
    comparisons.asked_to_stop,
    comparisons.code,
    comparisons.equal_sizes,
    comparisons.silence,
    comparisons.came_after_timeout,
    comparisons.busy_rank0,
    comparisons.lowest_step,
    hints.odd_notice,
    comparisons.alike,
    watchdogs.together,
)


def derive(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """Claims about a hang, best evidence first. Empty where no rank waits."""
    rows = table(case, claims)
    if not _some_rank_waits(rows):
        return []
    steps = ((n, step(rows)) for n, step in enumerate(STEPS))
    found = [replace(_with_last_lines(rows, claim), preference=n) for n, claim in steps if claim is not None]
    apart = hints.find(rows)
    if apart is None:
        return found
    best = next((c for c in found if c.role == "cause"), None)
    if best is not None:
        return [hints.followed(rows, c, apart) if c is best else c for c in found]
    made = hints.alone(rows, apart)
    return [*found, replace(made, preference=len(STEPS))] if made else found


def _with_last_lines(table: Table, claim: Claim) -> Claim:
    """The claim with the last ordinary lines of its first suspects behind the first proof."""
    lines = [e for r in claim.ranks[:2] if r in table.rows for e in table.rows[r].last_lines]
    lines = [e for e in lines if e not in claim.events]
    return replace(claim, events=(*claim.events[:1], *lines, *claim.events[1:]))


def _some_rank_waits(table: Table) -> bool:
    """Whether a rank complains of its peers, or the stacks of ranks that have not finished were taken."""
    hang = any(c.accuses and c.pattern.category in OF_THE_GROUP for c in table.claims)
    waits = any(row.complaint or row.lost for row in table.rows.values())
    return hang or waits or table.stacked or bool(table.case.of_kind("recorder"))
