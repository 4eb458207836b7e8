"""Claims about a job, and links between them.

    Claim    a pattern seen on one entity: who reports it, about whom, when, on what proof, and its role
    Link     one claim follows from another, by a join of their entities

Both are frozen. The role of a claim starts as its pattern's and only falls (`rules`); it rises once, in `rules.promote`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from postmortem.model import Event, Pattern, Role, Speaker
from postmortem.system import forms

T = TypeVar("T", int, str)
CATEGORIES = forms.rows("diagnose/categories")
SPEAKERS = forms.rows("diagnose/speakers")
HEIGHT = {"cause": 3, "symptom": 2, "confirms": 1, "context": 0}  # roles fall from left to right


@dataclass(frozen=True)
class Claim:
    """One pattern seen on one entity. `events` are its proof, best address first; `guess`: nothing links it to this
    job."""

    pattern: Pattern
    role: Role
    events: tuple[Event, ...]
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    attempt: int | None = None
    because: str = ""
    strength: str = "stated"
    guess: bool = False
    witnessed: bool = False  # the stack or the complaint of every rank is known
    preference: int = 0  # of several comparisons of the ranks: 0 has the best evidence
    fell_by: str = ""  # the rule that reduced its role

    @property
    def event(self) -> Event:
        return self.events[0]

    @property
    def speaker(self) -> Speaker:
        return self.event.speaker

    @cached_property
    def first(self) -> Event | None:
        """The earliest of its events with a time."""
        return min((e for e in self.events if e.at is not None), key=lambda e: e.at or 0.0, default=None)

    @property
    def at(self) -> float | None:
        """Its earliest time on the job's clock, in seconds since the epoch."""
        return self.first and self.first.at

    @property
    def kind(self) -> str:
        """Its category, or that of the failure which its complaint follows from."""
        return self.pattern.category or self.pattern.stands_for

    @property
    def accuses(self) -> bool:
        return self.role in ("cause", "symptom")

    def of(self, trait: str) -> bool:
        """Whether its category has a trait, `is` in categories.yaml."""
        return has(self.kind, trait)

    def by(self, trait: str) -> bool:
        """Whether its writer has a trait, `is` in speakers.yaml."""
        return by(self.event, trait)

    def tells(self, word: str) -> bool:
        """Whether its pattern has this word under `tells` (see vocabulary.py)."""
        return word in self.pattern.tells


@dataclass(frozen=True, slots=True)
class Link:
    """`effect` follows from `cause`; `because` is their join in words."""

    cause: Claim
    effect: Claim
    because: str


def has(category: str, trait: str) -> bool:
    """Whether a category has a trait."""
    return trait in CATEGORIES.get(category, {}).get("is", ())


def by(e: Event, trait: str) -> bool:
    """Whether the writer of a line has a trait."""
    return trait in SPEAKERS[e.speaker]["is"]


def merged(claims: Sequence[Claim]) -> Claim:
    """Claims of one pattern on one entity as one, the earliest event first."""
    if len(claims) == 1:
        return claims[0]
    return replace(
        min(claims, key=lambda c: in_time(c.event)),
        events=tuple(sorted((e for c in claims for e in c.events), key=in_time)),
        ranks=_union(c.ranks for c in claims),
        hosts=_union(c.hosts for c in claims),
        gpus=_union(c.gpus for c in claims),
        pids=_union(c.pids for c in claims),
    )


def in_time(e: Event) -> tuple[bool, float, int, str, str]:
    """A key to sort by: time, line, text; the file's name only between equal lines."""
    return e.at is None, e.at or 0.0, e.line, e.text, e.where.source


def _union(parts: Iterable[Iterable[T]]) -> tuple[T, ...]:
    return tuple(sorted({x for part in parts for x in part}))
