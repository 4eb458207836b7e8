"""The outcome for one job: the document is written from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from postmortem.align.place import Line, Moment
from postmortem.diagnose import liveness, order, topics
from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim, has
from postmortem.diagnose.claims import links
from postmortem.diagnose.processes import Process
from postmortem.diagnose.verdict import reached
from postmortem.diagnose.verdict.reached import Reached
from postmortem.diagnose.verdict.unread import Unread
from postmortem.formats import endings
from postmortem.model import Event, Outcome, RunEnd
from postmortem.runs.jobs import Name

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class Victims:
    """Ranks other than the culprits, by the way they failed. A rank is in one list only."""

    timed_out: Ranks = ()
    lost: Ranks = ()
    stopped: Ranks = ()

    def by_fate(self) -> Iterator[tuple[Ranks, str]]:
        """Each list that is not empty, with its verb."""
        was = "was" if len(self.stopped) == 1 else "were"
        verbs = ("timed out", "lost the connection", f"{was} stopped by the launcher")
        yield from ((r, verb) for r, verb in zip((self.timed_out, self.lost, self.stopped), verbs, strict=True) if r)


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
    job: str | None = None  # its id, else the folder or the run that separates it from other jobs
    folder: str | None = None  # that folder or run
    named: Name = Name()
    attempts: tuple[Solution, ...] = ()  # all attempts, oldest first; empty where there was but one
    leads: tuple[Event, ...] = ()
    times: Mapping[Line, Moment] = field(default_factory=dict)  # of lines, by their copies
    lost: Unread | None = None  # the input that was not read
    unread: Unread | None = None  # the same, where it is why the job is not healthy

    @cached_property
    def processes(self) -> list[Process]:
        """The rows of all processes, the culprits first: the order of the document."""
        return sorted(self.case.processes, key=lambda p: p.rank not in self.ranks)

    @property
    def process_of_line(self) -> Mapping[Line, int]:
        """Lines of the ranks -> the number of the process in `processes`."""
        number = {p.rank: i for i, p in enumerate(self.processes) if p.role == "rank"}
        of_rank = self.case.by_rank.items()
        return {e.place: number[rank] for rank, own in of_rank for e in own if rank in number}

    def is_named(self, job: str | None) -> bool:
        """Whether the job has this id, folder or run, or one of its other ids."""
        return bool(job) and (job in (self.job, self.folder) or job in self.named.every)

    @property
    def attempt_count(self) -> int:
        return len(self.attempts) or 1

    @property
    def end(self) -> RunEnd:
        """Whether the logs show the end of the run, of a recovered one that of its last attempt."""
        case = self.attempts[-1].case if self.attempts and self.outcome == "recovered" else self.case
        if liveness.all_done(case) or (self.outcome in ("healthy", "recovered") and case.of_kind("finished")):
            return "finished"
        if self.root is not None or self.reached is not None or case.ends or liveness.is_alive(case):
            return "unfinished"
        return "unknown"

    @cached_property
    def reached(self) -> Reached | None:
        """How far the job came, where it stopped without an error that accounts for it."""
        silent = self.root is None and self.outcome == "undetermined" and self.unread is None
        complaints = any(c.role == "symptom" and not c.tells("joins") for c in self.claims)
        return reached.of(self.case) if silent and not complaints else None

    @cached_property
    def account(self) -> links.Account:
        """The symptoms that the root explains, and those that it does not."""
        return links.account(self.root, self.claims) if self.root else links.Account((), ())

    @cached_property
    def apart(self) -> tuple[Claim, ...]:
        """Failures of other ranks for reasons of their own: each ended its ranks, and none surely came after the root."""
        root = self.root
        if root is None or not self.ranks or root.strength not in ("stated", "ended"):
            return ()
        known = {*self.ranks, *self.victims.lost, *self.victims.timed_out}
        others = [c for c in self.alternatives if c.ranks and known.isdisjoint(c.ranks) and _is_own(self.case, c)]
        others = [c for c in others if c.pattern.id != root.pattern.id or c.pattern.generic]
        return tuple(c for c in others if not links.declared(root, c) and not order.surely_before(root, c))

    @cached_property
    def victims(self) -> Victims:
        return victims(self.case, self.ranks, self.claims)


def _is_own(case: Case, c: Claim) -> bool:
    """Whether it is a rank's own failure, of which its process ended."""
    known = topics.of(c.event.fields.get("line") or c.event.text) if c.pattern.generic else ""
    of_others = has(known or c.pattern.category or "", "others")
    own = c.strength == "stated" and c.pattern.severity == "fatal" and not of_others
    ended = all((end := case.end_of(r)) is not None and end.failed for r in c.ranks) or endings.uncaught(c.event)
    return own and c.pattern.entity == "self" and ended


def victims(case: Case, culprits: Ranks, claims: Sequence[Claim]) -> Victims:
    """The fate of the other ranks, by the symptoms and the launcher's list."""
    timed_out: set[int] = set()
    lost: set[int] = set()
    for c in claims:
        if c.role == "symptom" and (c.ranks or c.pattern.category in ("peer-lost", "hang")):
            ranks = {*c.ranks} or case.ranks_of(c.events)
            if c.tells("wait"):
                timed_out |= ranks
            elif c.pattern.category == "peer-lost" or not c.ranks:
                lost |= ranks
    timed_out -= {*culprits}
    lost -= timed_out.union(culprits)
    stopped = {r for r, end in case.ends.items() if end.signal == "SIGTERM"} - timed_out.union(lost, culprits)
    return Victims(tuple(sorted(timed_out)), tuple(sorted(lost)), tuple(sorted(stopped)))
