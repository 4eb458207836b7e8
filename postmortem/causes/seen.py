"""The parts of a verdict that facts are computed from, and requests for evidence are filled in with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from postmortem.align.place import moment
from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.compare.rank_rows import POINT_TO_POINT
from postmortem.diagnose.verdict.solution import Solution
from postmortem.diagnose.wording import DATED, listed, ranks_text
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
        return zone_of(self.case)

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


# ── the place and the time of a failure, for a command on that host ─────────────────────────────────────────

NEAR = 4  # hosts that are named
AROUND_S = 300  # seconds of a log before and after a moment


def zone_of(case: Case) -> str:
    """` UTC`; empty where no stamp names a zone or was compared with one: then times are as the logs have them."""
    shifted = (e.clock == "naive" and abs((e.at or 0.0) - (e.time or 0.0)) > AROUND_S for e in case.events if e.at)
    return " UTC" if any(e.clock == "absolute" for e in case.events) or any(shifted) else ""


def host_of_the_dead(case: Case, hosts: Sequence[str]) -> str:
    """By name, by the rank that died, or any host of the job if no rank is known to have died."""
    waited = case.ranks_of(case.telling("wait"))  # a watchdog that times out aborts its own process
    died = [r for r in case.ended("kill", "crash") if r not in waited]
    every = sorted(set(case.registry.host_of.values()))
    others = listed(every) if 0 < len(every) <= NEAR else "each host of the job"
    return hosts[0] if hosts else f"the host of {ranks_text(died)}" if died else others


def around(e: Event | None, zone_: str) -> str:
    """` around 13:18`; empty where the time is not known."""
    at = dated(e) if e is not None else None
    return f" around {datetime.fromtimestamp(at, UTC):%H:%M}{zone_}" if at is not None else ""


def dated(e: Event) -> float | None:
    at = moment(e)
    return at if at is not None and at > DATED else None


def journal_options(e: Event | None, zone_: str) -> str:
    """The options of journalctl. It reads a time without a zone as its host's own, like a log with no other."""
    at = dated(e) if e is not None else None
    if at is None:
        return ""
    since, until = (datetime.fromtimestamp(t, UTC) for t in (at - AROUND_S, at + AROUND_S))
    return f" --since '{since:%Y-%m-%d %H:%M:%S}{zone_}' --until '{until:%Y-%m-%d %H:%M:%S}{zone_}'"
