"""What each rank shows of a hang, side by side: its complaint, its stack, its last step, its last words,
how it ended.

And what all comparisons of ranks end in: who is in the minority, and the claim about them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from postmortem.diagnose import order
from postmortem.diagnose.case import Case, moment
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.endings import Ending
from postmortem.diagnose.wording import ranks_text
from postmortem.formats.lineform import shape
from postmortem.model import Event
from postmortem.model.digits import number

MOST = 65536  # ranks that are compared
WORDS = 3
PROOF = 64
DYING_S = 2.0  # seconds that a launcher needs to see an end
_CUT = re.compile(  # a complaint of which the end of the log left the head
    r"^\[rank\d+\]:\[E[\d .:]*ProcessGroup\w*\.cpp(?:[:\d]*\]?(?: \[[^\]]{0,80}\]?)*)? {0,2}.{0,30}$"
)
_TROUBLE = re.compile(r"Error\b|Traceback|^\s|\]:   |^Extension modules")


@dataclass
class View:
    """What one rank shows of the hang."""

    rank: int
    end: Ending | None = None
    complaint: Event | None = None  # it waited until a time-out
    lost: Event | None = None  # it lost a peer
    fatal: Event | None = None  # it failed in another way
    stack: Event | None = None
    step: int | None = None
    finished: Event | None = None
    last: Event | None = None
    lines: list[Event] = field(default_factory=list)

    @property
    def silent(self) -> bool:
        return self.complaint is None and self.lost is None and self.fatal is None

    @property
    def stopped(self) -> bool:
        """Whether it lived until the launcher ended it: then it may have waited like the others."""
        return self.end is not None and self.end.signal == "SIGTERM"

    @property
    def left(self) -> bool:
        """Whether it said goodbye and nobody tells of a bad end by itself."""
        return self.finished is not None and (self.end is None or self.stopped or self.end.kind in ("clean", "kill"))

    @property
    def got_over(self) -> bool:
        """Whether it said goodbye, and after all that it complained of: a time-out that somebody catches
        is no hang."""
        bye = self.finished
        if bye is None or (self.end is not None and self.end.kind != "clean"):
            return False
        complaints = [e for e in (self.complaint, self.lost, self.fatal) if e is not None]
        return all(order.came_before(e, bye) for e in complaints)

    @cached_property
    def last_words(self) -> list[Event]:
        """Its last ordinary line in each of its files, latest first."""
        ordinary = [e for e in self.lines if not e.fields.get("first") and not _TROUBLE.search(e.text)]
        return sorted(ordinary, key=lambda e: (e.at or 0.0, e.where.line or 0), reverse=True)[:WORDS]

    @property
    def words(self) -> tuple[int, ...]:
        """The shapes of its last ordinary lines, oldest first."""
        told = (e.fields.get("words") for e in self.lines)
        return max((words for words in told if isinstance(words, tuple)), key=len, default=())

    @property
    def place(self) -> tuple[str, str] | None:
        """Where it waits: collective (`none` outside of any) and line of the user's code."""
        for e in (self.stack, self.complaint, self.lost, self.fatal):
            if e is None or not e.fields.get("code"):
                continue
            collective = e.fields.get("collective") or ("store.get" if "wait timeout after" in e.text else None)
            if collective or e is self.stack:
                return str(collective or "none"), str(e.fields["code"])
        return None

    @property
    def proof(self) -> Event | None:
        return self.complaint or self.lost or self.fatal


@dataclass(frozen=True)
class Scene:
    """All ranks of a job that may hang."""

    case: Case
    claims: Sequence[Claim]
    views: dict[int, View]

    @cached_property
    def waiting(self) -> list[int]:
        return [r for r, v in self.views.items() if v.complaint is not None]

    @cached_property
    def shouting(self) -> list[int]:
        return [r for r, v in self.views.items() if not v.silent]

    @cached_property
    def quiet(self) -> list[int]:
        return [r for r, v in self.views.items() if v.silent]

    @cached_property
    def sampled(self) -> list[Event]:
        """Stacks that a tool took of processes whose ranks nobody says."""
        stacks = self.case.of_kind("stack")
        return [
            e
            for e in stacks
            if e.speaker == "tool" and e.pid and not e.fields.get("child") and self.case.rank_of(e) is None
        ]

    @property
    def stands_still(self) -> bool:
        """Whether somebody watched the job, and saw that no rank got on."""
        return any(c.tells("standstill") for c in self.claims)

    @property
    def world(self) -> int | None:
        """How many ranks the job has, as a launcher, NCCL or torch states it; the launchers list every
        rank that failed."""
        return self.case.registry.world or len(self.case.ends) or None

    @property
    def complete(self) -> bool:
        """Whether every rank of the job stands in these logs."""
        return self.world is not None and set(self.views) == set(range(self.world))

    def make(self, pattern: str, ranks: Iterable[int], events: Iterable[Event | None], because: str) -> Claim | None:
        return make(self.case, pattern, ranks, events, because)


def scene(case: Case, claims: Sequence[Claim]) -> Scene:
    """One view for every rank of the job."""
    views = {r: View(r, case.end_of(r)) for r in case.registry.ranks[:MOST]}
    dying = _first_death(case)
    gave_up = case.ranks_of(c.event for c in claims if c.tells("wait"))
    for e in case.events:
        rank = case.rank_of(e)
        if rank is not None and not (e.kind == "stack" and _while_dying(e, dying, gave_up)):
            _see(views.setdefault(rank, View(rank, case.end_of(rank))), e)
    for c in claims:
        rank = case.rank_of(c.event)
        if c.accuses and c.speaker != "kernel" and rank in views:
            _hear(views[rank], c)
    return Scene(case, claims, views)


def overtaken_ranks(scene: Scene) -> list[int]:
    """Ranks of which each other rank said the last line, and something else after it."""
    words = {r: v.words for r, v in scene.views.items() if v.words}

    def beyond(rank: int, own: tuple[int, ...]) -> bool:
        others = [said for r, said in words.items() if r != rank]
        return bool(others) and all(own[-1] in said[:-1] and said[-1] != own[-1] for said in others)

    return [rank for rank, own in words.items() if beyond(rank, own)]


def _first_death(case: Case) -> Event | None:
    """The first end that a launcher saw of a rank that was not merely stopped."""
    told = [case.ends[r].told_by for r in case.ended("kill", "crash", "own")]
    return min((e for e in told if e is not None), key=lambda e: (e.at is None, e.at or 0.0), default=None)


def _while_dying(e: Event, death: Event | None, gave_up: Collection[int]) -> bool:
    """Whether a rank printed its stack when it was told to stop, after another one's end
    (`faulthandler.register(SIGTERM)`): that shows where a victim waited, and no hang, unless the other had
    waited until a time-out. What py-spy or gdb saw stands in a file of its own."""
    if e.fields.get("state") == "T":  # nobody runs again by waiting
        return not gave_up
    if "asked" in e.fields:
        return "still" not in e.fields and e.fields.get("after") not in gave_up
    if death is None or e.speaker == "tool":
        return False
    at = moment(e)
    if at is not None and death.at is not None:
        return at >= death.at - DYING_S
    return any("SIGTERM" in line or "Signal 15" in line for line in e.context)


def _see(view: View, e: Event) -> None:
    if e.kind == "stack" and not e.fields.get("child"):
        view.stack = view.stack or e
    elif e.kind == "progress":
        steps = (view.step, number(e.fields.get("step")))
        view.step = max((s for s in steps if s is not None), default=None)
    elif e.kind == "finished":
        view.finished = e
    elif e.kind == "line" and _CUT.match(e.text):
        view.complaint = view.complaint or e
    _speak(view, e)


def _speak(view: View, e: Event) -> None:
    if e.kind in ("line", "progress", "finished") and (view.last is None or (e.at or 0) >= (view.last.at or 0)):
        view.last = e
    if e.kind in ("line", "progress"):
        view.lines.append(e)


def _hear(view: View, c: Claim) -> None:
    e = c.event
    if e.fields.get("interrupted"):
        # what fails in a signal's handler shows where the signal met the rank, like a stack dump
        view.stack = view.stack or e
    elif c.tells("wait"):
        view.complaint = _better(view.complaint, e)
    elif c.pattern.category == "peer-lost" or (c.pattern.category == "network" and c.role == "symptom"):
        view.lost = _better(view.lost, e)
    elif c.pattern.family != "launcher" and not c.tells("end") and not c.tells("count"):
        view.fatal = view.fatal or e
    elif c.tells("count"):
        view.complaint = view.complaint or e  # the watchdog's account of itself: this rank waits too


def _better(old: Event | None, new: Event) -> Event:
    """Of two complaints the first, or the one with the user's line of code."""
    return new if old is None or (not old.fields.get("code") and new.fields.get("code")) else old


def make(case: Case, pattern: str, ranks: Iterable[int], events: Iterable[Event | None], because: str) -> Claim | None:
    """A claim that no single line makes. None where nothing proves it."""
    p = case.library.get(pattern)
    named = tuple(sorted(set(ranks)))
    proof = tuple(e for e in events if e is not None)[:PROOF]
    if p is None or not proof:
        return None
    hosts = tuple(sorted({h for r in named if (h := case.registry.host_of.get(r))}))
    case.note(f"{pattern}: {because}")
    return Claim(p, p.role, proof, named, hosts, (), (), case.attempt, because, p.strength)


def minority(groups: Mapping[Any, list[int]]) -> tuple[list[int], bool]:
    """The ranks outside the largest group, and whether that group is a true majority. A tie accuses
    everybody."""
    ordered = sorted(groups.values(), key=lambda ranks: (-len(ranks), sorted(ranks)))
    total = sum(map(len, ordered))
    if len(ordered) < 2:
        return [], False
    majority = len(ordered[0]) * 2 > total
    accused = ordered[1:] if majority else ordered
    return [r for ranks in accused for r in ranks], majority


def at_odds(odd: list[int], majority: bool, told: str) -> str:
    """What is told of ranks in different collectives: where no group is the larger one, nobody was
    elsewhere "than the others"."""
    return told if majority or len(odd) > 6 else f"{ranks_text(odd)} were in different collectives: {told}"


def words_of(view: View) -> str | None:
    """The shape of a rank's last ordinary line."""
    return shape(view.last_words[0].text) if view.last_words else None
