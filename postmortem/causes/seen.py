"""The parts of a verdict that facts are computed from, and requests for evidence are filled in with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from postmortem.causes import moments
from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.compare.rank_rows import POINT_TO_POINT
from postmortem.diagnose.verdict.solution import Solution
from postmortem.formats import endings
from postmortem.formats.endings import Ending
from postmortem.model import Event
from postmortem.model.contract.verdict import Collective
from postmortem.model.digits import number


@dataclass(frozen=True)
class Seen:
    """`category` and `confidence` are the verdict's, or that of the complaints without a cause; `hosts` those at fault,
    `stuck` the verdict's `collective`."""

    solution: Solution
    category: str | None
    stuck: Collective | None = None
    confidence: str = "hypothesis"
    hosts: Sequence[str] = ()

    @property
    def case(self) -> Case:
        return self.solution.case

    @property
    def root(self) -> Claim | None:
        return self.solution.root

    @property
    def ranks(self) -> Sequence[int]:
        """The culprits."""
        return self.solution.ranks

    @property
    def end(self) -> Ending | None:
        """How the process at fault ended, by the decisive line or the launcher."""
        stated = endings.reported(self.root.event) if self.root is not None else None
        return stated or next(filter(None, map(self.case.end_of, self.ranks)), None)

    @cached_property
    def own(self) -> list[Event]:
        """The events of the ranks at fault; of the verdict alone where no rank is."""
        of_ranks = [e for r in self.ranks[:8] for e in self.case.by_rank.get(r, ())]
        return [*(self.root.events if self.root else ()), *of_ranks]

    @cached_property
    def zone(self) -> str:
        return moments.zone(self.case)

    @cached_property
    def stacked(self) -> set[int]:
        """Ranks with a stack in these logs."""
        return self.case.ranks_of(e for e in self.case.of_kind("stack") if not e.fields.get("child"))

    @property
    def placed(self) -> bool:
        """Whether the place of each culprit is known, by its stack or its other collective; or whether all waited
        for each other in calls that two ranks share."""
        if self.root is not None and len(_places(self.root)) > 1:
            return True
        elsewhere = {number(rank) for rank in (self.stuck["elsewhere"] if self.stuck else ())}
        if self.ranks:
            return {*self.stacked, *elsewhere} >= set(self.ranks)
        calls = {str(e.fields.get("collective")) for e in self.root.events} if self.root else set()
        return bool(calls) and calls <= set(POINT_TO_POINT)


def _places(root: Claim) -> set[tuple[object, object]]:
    """The calls, with their lines of code, that the proof of a comparison shows side by side."""
    if root.strength != "compared":
        return set()
    return {(e.fields.get("collective"), e.fields["code"]) for e in root.events if e.fields.get("code")}
