"""Rules against apparent causes: each reduces the role of claims and names the line or fact that decides."""

from __future__ import annotations

from collections.abc import Sequence

from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.rules import aftermath, foreign, promote, reading, survived
from postmortem.diagnose.rules.view import Rule, settle

BEFORE: tuple[tuple[Rule, ...], ...] = (
    (reading.quoted, reading.ignored),
    (
        reading.raised_again,
        reading.raised_by_the_caller,
        reading.of_another_launch,
        reading.of_a_tracker,
        reading.lists_who,
        reading.abort_of_a_collective,
        reading.opens_a_message,
    ),
    (reading.abort_of_a_gpu_error,),
    (
        survived.went_on,
        survived.job_done,
        survived.while_leaving,
        survived.at_exit_barrier,
        survived.caught,
        survived.fell_back,
        survived.started_otherwise,
    ),
    (foreign.in_another_cgroup, foreign.unknown_process, foreign.of_another_run),
)
AFTER: tuple[tuple[Rule, ...], ...] = (
    (survived.restored,),
    (aftermath.peers_lost_before, aftermath.nan_that_spread, aftermath.only_tried_again),
    (foreign.harmless,),
)


def settled(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """All claims with their final roles."""
    first = settle(case, foreign.joined(case, claims), BEFORE)
    return list(settle(case, promote.promoted(case, first), AFTER))
