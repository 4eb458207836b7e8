"""What each rank shows of a hang, side by side: its complaint, its stack, its collective's number, its last step.

Also the two sentences that every comparison of ranks ends in: who is in the minority, and the finding about them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.endings import Ending
from postmortem.diagnose.wording import shape
from postmortem.digits import number
from postmortem.model import Event

_CUT = re.compile(  # a complaint of which the end of the log left the head
    r"^\[rank\d+\]:\[E[\d .:]*ProcessGroup\w*\.cpp(?:[:\d]*\]?(?: \[[^\]]{0,80}\]?)*)? {0,2}.{0,30}$"
)
_TROUBLE = re.compile(r"Error\b|Traceback|^\s|\]:   |^Extension modules")


@dataclass
class View:
    """What one rank shows of the hang."""

    rank: int
    complaint: Event | None = None
    lost: Event | None = None
    fatal: Event | None = None
    stack: Event | None = None
    seq: int | None = None
    op: str | None = None
    numel: str | None = None
    group: str | None = None
    enqueued: dict[str, int] = field(default_factory=dict)
    step: int | None = None
    finished: Event | None = None
    last: Event | None = None
    end: Ending | None = None
    lines: list[Event] = field(default_factory=list)

    @property
    def silent(self) -> bool:
        return self.complaint is None and self.lost is None and self.fatal is None

    @property
    def got_over(self) -> bool:
        """Whether it said goodbye, and after all that it complained of: a time-out that somebody catches is no hang."""
        bye = self.finished
        if bye is None or (self.end is not None and self.end.kind != "clean"):
            return False
        complaints = [e.where for e in (self.complaint, self.lost, self.fatal) if e is not None]
        return all(w.source == bye.where.source and (w.line or 0) < (bye.where.line or 0) for w in complaints)

    def last_words(self) -> list[Event]:
        """Its last ordinary line in each of its files, latest first."""
        ordinary = [e for e in self.lines if not e.fields.get("first") and not _TROUBLE.search(e.text)]
        return sorted(ordinary, key=lambda e: (e.at or 0.0, e.where.line or 0), reverse=True)[:3]

    @property
    def place(self) -> tuple[str, str] | None:
        """Where it waits: collective and line of the user's code."""
        for e in (self.stack, self.complaint, self.lost, self.fatal):
            collective = e and (
                e.fields.get("collective") or ("wait timeout after" in e.text and "store.get")
            )
            if e is not None and e.fields.get("code") and (collective or e is self.stack):
                return str(collective or "none"), str(e.fields["code"])
        return None


def views(case: Case, claims: list[Claim]) -> dict[int, View]:
    """One view for every rank of the job."""
    out = {r: View(r, end=case.end_of(r)) for r in case.registry.ranks[:65536]}
    for e in case.events:
        rank = case.rank_of(e)
        if rank is None:
            continue
        view = out.setdefault(rank, View(rank, end=case.end_of(rank)))
        _see(view, e)
    for o in claims:
        if o.role not in ("cause", "symptom"):
            continue
        rank = case.rank_of(o.event)
        if rank is None or rank not in out or o.speaker == "kernel":
            continue
        _see_observation(out[rank], o)
    return out


def _see(view: View, e: Event) -> None:
    if e.kind == "stack" and not e.fields.get("child"):
        view.stack = view.stack or e
    elif e.kind == "progress":
        step = number(e.fields.get("step"))
        if step is not None:
            view.step = step if view.step is None else max(view.step, step)
    elif e.kind == "finished":
        view.finished = e
    elif e.kind == "line" and _CUT.match(e.text):
        view.complaint = view.complaint or e
    if e.kind in ("line", "progress", "finished") and (
        view.last is None or (e.at or 0) >= (view.last.at or 0)
    ):
        view.last = e
    if e.kind in ("line", "progress"):
        view.lines.append(e)


def _see_observation(view: View, o: Claim) -> None:
    e = o.event
    if e.fields.get("interrupted"):
        view.stack = (
            view.stack or e
        )  # what fails in a signal's handler shows where the signal met the rank, like a stack dump
    elif o.tells("wait"):
        frames = view.complaint is None or (not view.complaint.fields.get("code") and e.fields.get("code"))
        if frames:
            view.complaint = e
        if view.seq is None and o.tells("count"):
            view.seq, view.op = (
                number(e.fields.get("seq")),
                str(e.fields["op"]) if e.fields.get("op") else None,
            )
            view.numel = str(e.fields["numel_in"]) if e.fields.get("numel_in") else None
    elif o.pattern.category == "peer-lost" or o.pattern.category == "network" and o.role == "symptom":
        if view.lost is None or (not view.lost.fields.get("code") and e.fields.get("code")):
            view.lost = e
    elif not (o.pattern.family == "launcher" or o.tells("end")):
        view.fatal = view.fatal or e


def status(view: View, e: Event) -> None:
    """The watchdog's account of itself: this rank waits too, in this group, and so far had the group come."""
    group, seq, enqueued = (
        str(e.fields.get("pg") or ""),
        number(e.fields.get("seq")),
        number(e.fields.get("enqueued")),
    )
    view.complaint = view.complaint or e
    view.seq = seq if view.seq is None else view.seq
    if view.group is None and view.seq == seq:
        view.group = group
    if enqueued is not None:
        view.enqueued[group] = enqueued


def make(
    case: Case, pattern: str, ranks: Iterable[int], events: Iterable[Event | None], because: str
) -> Claim | None:
    p = case.library.get(pattern)
    named = tuple(sorted(set(ranks)))
    proof = tuple(e for e in events if e is not None)
    if p is None or not proof:
        return None
    hosts = tuple(sorted({h for r in named if (h := case.registry.host_of.get(r))}))
    case.note(f"{pattern}: {because}")
    return Claim(p, p.role, proof, named, hosts, (), (), case.attempt, because, p.strength)


def ranks_text(ranks: Iterable[int]) -> str:
    named = sorted(ranks)
    if len(named) == 1:
        return f"rank {named[0]}"
    if len(named) > 6:
        return f"{len(named)} ranks"
    return "ranks " + ", ".join(map(str, named[:-1])) + f" and {named[-1]}"


def minority(groups: Mapping[Any, list[int]]) -> tuple[list[int], bool]:
    """The ranks outside the largest group, and whether that group is a true majority. A tie accuses everybody."""
    ordered = sorted(groups.values(), key=len, reverse=True)
    total = sum(map(len, ordered))
    if len(ordered) < 2:
        return [], False
    if len(ordered[0]) * 2 > total:
        return [r for g in ordered[1:] for r in g], True
    return [r for g in ordered for r in g], False


def at_odds(odd: list[int], majority: bool, told: str) -> str:
    """What is told of ranks in different collectives: where no group of them is the larger one, nobody was elsewhere "than the others"."""
    return told if majority or len(odd) > 6 else f"{ranks_text(odd)} were in different collectives: {told}"


def elsewhere(seen: dict[int, View], shouting: list[int], quiet: list[int]) -> list[int]:
    """Of several silent ranks those whose last words none who waited said: the others got as far as these, and wait like them.
    Not rank 0 alone, which is often the only one that talks."""
    words = {r: shape(said[0].text) for r in (*shouting, *quiet) if (said := seen[r].last_words())}
    usual = {words[r] for r in shouting if r in words}
    odd = [r for r in quiet if r in words and words[r] not in usual]
    return odd if len(odd) < len(quiet) and usual and odd != [0] and all(r in words for r in quiet) else []
