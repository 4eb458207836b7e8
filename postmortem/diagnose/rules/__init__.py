"""What looks like a cause and is none: each rule takes claims' parts away, and says which line or fact
decides.

`settled` is the order: what a line is; whether its rank got over it; whether it is of this job at all; then
the one promotion; then what follows from earlier trouble. Rules of one stratum see the same claims, so their
order does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.rules import aftermath, foreign, promote, reading, stale, survived
from postmortem.diagnose.rules.view import Rule, settle

BEFORE: tuple[tuple[Rule, ...], ...] = (
    (
        reading.quoted,
        reading.ignored,
    ),
    (reading.transport, reading.lists_who, reading.abort_of_a_collective, reading.opens_a_message),
    (
        survived.went_on,
        survived.job_done,
        survived.while_leaving,
        survived.caught,
        survived.fell_back,
        survived.finite_again,
    ),
    (stale.among_strangers, stale.unknown_process),
)
AFTER: tuple[tuple[Rule, ...], ...] = (
    (survived.restored,),
    (aftermath.peers_lost_before, aftermath.nan_that_spread, aftermath.only_tried_again),
    (foreign.harmless,),
)


def settled(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """All claims with the part that is left to each."""
    first = settle(case, stale.joined(case, claims), BEFORE)
    return list(settle(case, promote.promoted(case, first), AFTER))
