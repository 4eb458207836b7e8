"""The outcome for one job: what the document is written from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from postmortem.align.place import Line, Moment
from postmortem.diagnose import explain
from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.unread import Unread
from postmortem.model import Event, Outcome

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class Victims:
    """Ranks other than the culprits, by what happened to them. A rank stands in one list only."""

    timed_out: Ranks = ()
    lost: Ranks = ()
    stopped: Ranks = ()

    def told(self) -> Iterator[tuple[Ranks, str]]:
        """Each list that is not empty, with its verb."""
        if self.timed_out:
            yield self.timed_out, "timed out"
        if self.lost:
            yield self.lost, "lost the connection"
        if self.stopped:
            yield self.stopped, f"{'was' if len(self.stopped) == 1 else 'were'} stopped by the launcher"


@dataclass(frozen=True)
class Solution:
    """One job, solved. `root` is None where nothing failed or no cause was found; `leads` are lines to look
    at then."""

    case: Case
    outcome: Outcome
    root: Claim | None
    ranks: Ranks
    claims: tuple[Claim, ...]
    alternatives: tuple[Claim, ...]
    job: str | None = None
    each: tuple[Solution, ...] = ()  # all attempts, oldest first; empty where there was but one
    leads: tuple[Event, ...] = ()
    times: Mapping[Line, Moment] = field(default_factory=dict)  # what copies tell of the times of lines
    lost: Unread | None = None  # what was not read
    unread: Unread | None = None  # the same, where it is why the job is not healthy

    @property
    def attempts(self) -> int:
        return len(self.each) or 1

    @cached_property
    def account(self) -> explain.Account:
        """What the root explains, and what it does not."""
        return explain.account(self.root, self.claims) if self.root else explain.Account((), ())

    @cached_property
    def victims(self) -> Victims:
        return victims(self.case, self.ranks, self.claims)


def victims(case: Case, culprits: Ranks, claims: Sequence[Claim]) -> Victims:
    """What happened to the others, as the symptoms and the launcher tell."""
    timed_out: set[int] = set()
    lost: set[int] = set()
    for c in claims:
        who = set(c.ranks)
        if c.role != "symptom" or (not who and c.pattern.category not in ("peer-lost", "hang")):
            continue
        who = who or case.ranks_of(c.events)
        if c.tells("wait"):
            timed_out |= who
        elif c.pattern.category == "peer-lost" or not c.ranks:
            lost |= who
    timed_out -= set(culprits)
    lost -= timed_out | set(culprits)
    stopped = {r for r, end in case.ends.items() if end.signal == "SIGTERM"} - timed_out - lost - set(culprits)
    return Victims(tuple(sorted(timed_out)), tuple(sorted(lost)), tuple(sorted(stopped)))
