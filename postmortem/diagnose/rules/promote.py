"""The only place where the role of a claim rises: where no better evidence exists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from postmortem.diagnose import liveness, topics
from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim, by
from postmortem.diagnose.claims import log_ends
from postmortem.diagnose.order import WHOLE_S, relation
from postmortem.diagnose.rules.foreign import is_program
from postmortem.formats.lineform import gist
from postmortem.library import regexes
from postmortem.model import Event
from postmortem.model.grouped import grouped
from postmortem.model.vocabulary import LOUD
from postmortem.privacy import cut


@dataclass(frozen=True)
class All:
    """All claims of an attempt, with what each is compared to."""

    case: Case
    claims: Sequence[Claim]

    @cached_property
    def caused(self) -> bool:
        return any(c.role == "cause" for c in self.claims)

    @cached_property
    def only_documents(self) -> bool:
        """Whether documents are all there is, and none names another cause."""
        return not self.caused and all(e.speaker == "tool" for e in self.case.events)

    @cached_property
    def only_kernel(self) -> bool:
        """Whether kernel lines are all there is, and none names another cause."""
        return self.case.only_kernel and not self.case.registry.ranks and not self.caused

    @cached_property
    def with_a_cause(self) -> set[int]:
        """Ranks that a cause names."""
        return {r for c in self.claims if c.role == "cause" for r in c.ranks}

    @cached_property
    def trouble(self) -> list[Event]:
        """Of each log the first line and the earliest event that report trouble; all events without a time."""
        events = grouped((c.event.where.source, c.event) for c in self.claims if _is_trouble(c))
        first = [min(own, key=lambda e: e.line) for own in events.values()]
        earliest = [
            min(own, key=lambda e: float("-inf") if e.at is None else e.at + e.at_sigma) for own in events.values()
        ]
        return first + earliest

    @cached_property
    def ends(self) -> dict[str, tuple[int, int]]:
        """The lines of the last event of each log."""
        return {source: max((e.line, e.end) for e in own) for source, own in self.case.by_source.items()}

    @cached_property
    def hosts(self) -> set[str]:
        """The hosts on which ranks are known to run."""
        seen = {e.host for e in self.case.events if e.host and not by(e, "outside")}
        return {h.split(".")[0] for h in (*self.case.registry.host_of.values(), *seen)}


def promoted(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """All claims; those with a pattern whose condition holds get a higher role."""
    all_ = All(case, claims)
    messages = set() if all_.caused else set(map(id, _last_messages(case, claims)))
    out = []
    for c in claims:
        if because := _why(all_, c):
            case.note(f"{c.pattern.id} at {c.event.where} counts as cause: {because}")
            c = replace(c, role="cause", because=because)
        elif id(c) in messages:
            c = replace(c, role="cause", because="no other line gives a reason")
        elif c.role == "context" and not c.because and _is_last(all_, c):
            c = replace(c, role="symptom", because="no line follows it")
        out.append(c)
    return out


def _last_messages(case: Case, claims: Sequence[Claim]) -> Iterable[Claim]:
    """Each writer's last exception without a traceback, where a rank failed or was lost, and the writer made no
    progress below."""
    if not case.ended("own") and not any(c.role == "symptom" and c.pattern.severity in LOUD for c in claims):
        return ()
    last: dict[tuple[str, int | None], Claim] = {}
    for c in claims:
        e, rank = c.event, case.rank_of(c.event)
        if e.fields.get("mentioned") and c.pattern.role == "cause" and not topics.is_transport(c):
            below = (x for x in case.by_source[e.where.source] if x.below(e) and x.kind in ("progress", "finished"))
            if not any(case.rank_of(x) in (rank, None) for x in below):
                last[e.where.source, rank] = c
    return last.values()


def _why(all_: All, c: Claim) -> str:
    """The condition that makes a cause of a claim; empty where none does."""
    if c.role not in ("confirms", "symptom"):
        return ""
    for condition, (holds, reason) in _CONDITIONS.items():
        if condition in c.pattern.cause_if and holds(all_, c):
            stack = condition == "joined" and c.speaker == "tool" and c.event.fields.get("signal")
            return "the process is this rank, and no line gives a reason" if stack else reason
    near = c.pattern.cause_if_near
    reason = next((line for line in c.event.context if near and regexes.search(near, line)), "")
    return f"a line near it states the reason: `{cut(gist(reason), 160)}`" if reason else ""


def _first_trouble(all_: All, c: Claim) -> bool:
    """Whether the job ran well until it was ended: ranks that are asked to stop lose each other only then."""
    if all_.case.all_finished or (c.pattern.entity == "pid" and not c.ranks):
        return False  # a process of unknown rank may be another job's
    return all(_may_follow(c.event, e) for e in all_.trouble)


def _may_follow(first: Event, e: Event) -> bool:
    """Whether `e` did not surely come before; of lines below the last stamp only the earliest time is known."""
    found = relation(first, e, WHOLE_S + e.at_sigma, 0)
    timed = e.at is not None and first.at is not None and e.at > first.at - WHOLE_S - e.at_sigma
    return timed if found == "unknown" else found != "after"


_CONDITIONS: dict[str, tuple[Callable[[All, Claim], bool], str]] = {
    "joined": (
        lambda all_, c: bool(c.ranks) and all_.with_a_cause.isdisjoint(c.ranks),
        "the process is this rank, and these logs have no better evidence",
    ),
    "alone": (lambda all_, _: all_.only_documents, "these documents are the only evidence"),
    "only-kernel": (
        lambda all_, c: all_.only_kernel and is_program(c.event),
        "a Python process, and this kernel log is the only evidence",
    ),
    "first-trouble": (_first_trouble, "nothing failed before it"),
    "several-hosts": (lambda all_, _: len(all_.hosts) > 1, "the ranks run on several hosts"),
}


def _is_trouble(c: Claim) -> bool:
    if c.tells("end"):
        return c.role != "context" and c.event.fields.get("signal") not in ("Terminated", "Killed")
    return c.tells("aborts") or (c.accuses and c.pattern.category not in (None, "scheduler"))


def _is_last(all_: All, c: Claim) -> bool:
    """Whether an ordinary wait is the last line of its log: the job never started, or hangs there."""
    e = c.event
    if c.pattern.if_last == "repeated":
        return log_ends.repeated_to_the_end(all_.case, e)
    if c.pattern.if_last != "once":
        return False
    if c.pattern.survived_by:
        over = any(all_.case.by_pattern[word] for word in c.pattern.survived_by) or any(
            True for _ in liveness.after(all_.case, e, None)
        )
        return not (over or liveness.all_done(all_.case))
    own = all_.case.by_source[e.where.source]
    last = (e.line, e.end) == all_.ends[e.where.source]
    return last and any(x.kind == "line" and x.fields.get("last") and x.where == e.where for x in own)
