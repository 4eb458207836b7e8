"""Trouble that a rank, a host or a job got over: it went on, it said goodbye, or the other side came back."""

from __future__ import annotations

import re
from collections.abc import Iterator

from postmortem.diagnose import endings
from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.rules.view import Defeat, View
from postmortem.digits import number
from postmortem.model import Event

_OVERCOME = re.compile(
    r"\bretr(?:y|ied|ying)\b|\bfalling back\b|\brecovered\b", re.IGNORECASE
)  # `read failed, retry 1/3`
_GAVE_UP = re.compile(
    r"\b(?:giv(?:e|ing) up|gave up|exhausted|abort(?:ed|ing)?|no more|last)\b", re.IGNORECASE
)
OF_RANKS = ("self", "rank", "missing-ranks")


def went_on(view: View) -> Iterator[Defeat]:
    """What a rank survived was handled: the rank worked or said goodbye after it, and nobody reported its death."""
    for at, claim in view.numbered():
        if not _may_be_handled(view.case, claim):
            continue
        rank = _whose(view.case, claim)
        later = _work_after(view.case, claim, rank)
        if later is None:
            continue
        if rank is None and claim.pattern.survivable != "anyone" and _ended_one(view.case, claim.event):
            continue
        yield Defeat(at, "context", f"the rank went on: `{later.text.strip()[:80]}` at {later.where}")


def finished(view: View) -> Iterator[Defeat]:
    for at, claim in view.numbered():
        rank = _whose(view.case, claim)
        if rank in view.case.finished and view.case.unharmed(rank) and _may_be_handled(view.case, claim):
            yield Defeat(at, "context", f"rank {rank} finished normally")


def _may_be_handled(case: Case, claim: Claim) -> bool:
    """Whether who made this claim can have lived on: not what a process died of, what others report, or NaN."""
    if claim.pattern.survivable == "anyone":
        return claim.speaker not in ("kernel", "scheduler", "cluster")
    fields = claim.event.fields
    if claim.role != "cause" or claim.pattern.category == "numerics" or claim.pattern.entity not in OF_RANKS:
        return False
    if fields.get("excepthook") or fields.get("reported_by") or claim.speaker in ("scheduler", "cluster"):
        return False
    if claim.event.source_kind == "kernel":
        return False
    # glibc's word on a common console bears no rank: those who go on after it are the others
    crashed = claim.pattern.category == "native-crash" and bool(case.ended("crash"))
    return bool(claim.ranks) or not (crashed or claim.pattern.survivable == "never")


def _whose(case: Case, claim: Claim) -> int | None:
    """The rank that has to go on. Who complains of another's absence may catch it and go on itself."""
    if claim.pattern.survivable == "anyone":
        return None
    if claim.pattern.entity == "missing-ranks":
        return case.rank_of(claim.event)
    return claim.ranks[0] if claim.ranks else None


def _work_after(case: Case, claim: Claim, rank: int | None) -> Event | None:
    """A sign of work or a goodbye below the claim; any line, where the claim itself says that it is tried again."""
    e = claim.event
    again = not e.fields.get("opened") and _OVERCOME.search(e.text) and not _GAVE_UP.search(e.text)
    kinds = ("progress", "finished", "line") if again and case.unharmed(rank) else ("progress", "finished")
    for x in case.by_source[e.where.source]:
        if x.kind not in kinds or (x.where.line or 0) <= (e.where.line or 0):
            continue
        other = (
            rank is None and None not in (e.pid, x.pid) and e.pid != x.pid
        )  # Ray names pids, and its drivers no ranks
        if other and claim.pattern.survivable != "anyone":
            continue
        if rank is None or case.rank_of(x) in (rank, None):
            return x
    return None


def _ended_one(case: Case, e: Event) -> bool:
    """Whether an exception on a console without names may be the end of a rank that left with an error code: the others go on
    for a while. It is the last one there, and who is told of by a launcher has raised nothing under its own name."""
    raised = [
        x for x in case.of_kind("exception") if x.source_kind != "agent" and not x.fields.get("reported_by")
    ]
    named = case.ranks_of(raised)
    silent = _left_with_a_code(case) - named
    if named:
        silent.discard(None)
    if not silent or e.kind != "pattern":
        return False
    here = [x for x in raised if x.where.source == e.where.source and x.rank is None and not _launchers(x)]
    return (e.where.line or 0) >= max((x.where.line or 0 for x in here), default=0)


def _left_with_a_code(case: Case) -> set[int | None]:
    """Ranks that left with a code of their own, as launchers tell; None for one without a name."""
    left: set[int | None] = {r for r in case.ended("own") if case.ends[r].code < endings.SHELL}
    for x in case.telling("end"):
        if 0 < (number(x.fields.get("exitcode")) or 0) < endings.SHELL:
            left.add(number(x.fields.get("rank") or x.fields.get("ranks")))
    return left


def _launchers(e: Event) -> bool:
    """Raised by torchrun itself, to tell of a child."""
    return "ChildFailedError" in e.text or "CalledProcessError" in e.text


def restored(view: View) -> Iterator[Defeat]:
    """A file server that answers again was only slow, as was a volume, where nothing failed meanwhile. In a list of a
    cluster's events, what comes after it says that it passed, whatever failed later."""
    failed = [c for c in view.claims if c.accuses and not c.pattern.restored_by]
    for at, claim in view.numbered("cause", "symptom"):
        end = _end_of(view.case, claim)
        if end is not None and (claim.speaker == "cluster" or not failed):
            yield Defeat(at, "context", f"it passed: {end.where}")


def _end_of(case: Case, claim: Claim) -> Event | None:
    """The line that says that the trouble is over, below it in the same log."""
    e = claim.event
    for x in case.seen(claim.pattern.restored_by):
        if x.where.source == e.where.source and (x.where.line or 0) > (e.where.line or 0):
            return x
    return None
