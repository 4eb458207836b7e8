"""The one place where a claim's part rises: what only confirms, follows or informs becomes more where
nothing nearer is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive import log_ends
from postmortem.diagnose.rules.reading import is_transport
from postmortem.diagnose.rules.stale import is_program
from postmortem.library import regexes
from postmortem.model import Event

LOUD = ("fatal", "error")


def promoted(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """All claims; those whose pattern names a condition that holds play a larger part."""
    caused = {r for c in claims if c.role == "cause" for r in c.ranks}
    trouble = [c.event for c in claims if _complains(c)]
    uttered = [] if caused or any(c.role == "cause" for c in claims) else _last_uttered(case, claims)
    out = []
    for c in claims:
        why = _why(case, c, claims, caused, trouble)
        if why:
            case.note(f"{c.pattern.id} at {c.event.where} counts as cause: {why}")
            c = replace(c, role="cause", because=why)
        elif c in uttered:
            c = replace(c, role="cause", because="no other line gives a reason")
        elif c.role == "context" and not c.because and _is_last(case, c):
            c = replace(c, role="symptom", because="no line follows it")
        out.append(c)
    return out


def _last_uttered(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """What each log's last exception without a traceback says, where somebody failed: a rank left with a
    code of its own, or others lost it."""
    failed = bool(case.ended("own")) or any(c.role == "symptom" and c.pattern.severity in LOUD for c in claims)
    if not failed:
        return []
    last: dict[tuple[str, int | None], Claim] = {}
    for c in claims:
        if (
            c.event.fields.get("uttered")
            and c.pattern.role == "cause"
            and not is_transport(c)
            and not _worked_on(case, c)
        ):
            last[(c.event.where.source, case.rank_of(c.event))] = c
    return list(last.values())


def _worked_on(case: Case, c: Claim) -> bool:
    """Whether the same rank made progress below it in the same log."""
    e, rank = c.event, case.rank_of(c.event)
    for x in case.by_source[e.where.source]:
        own = case.rank_of(x) in (rank, None)
        if own and x.kind in ("progress", "finished") and (x.where.line or 0) > (e.where.line or 0):
            return True
    return False


def _why(case: Case, c: Claim, claims: Sequence[Claim], caused: set[int], trouble: Sequence[Event]) -> str:
    """The condition that makes a cause of a claim; empty where none does."""
    if c.role not in ("confirms", "symptom"):
        return ""
    when = c.pattern.cause_if
    if "joined" in when and c.ranks and not set(c.ranks) & caused:
        return "the process is this rank, and these logs have no better evidence"
    if "only-kernel" in when and _only_kernel(case, c, claims):
        return "a Python process, and this kernel log is the only evidence"
    if "first-trouble" in when and _first_trouble(case, c, trouble):
        return "nothing failed before it"
    if "several-hosts" in when and len(_hosts(case)) > 1:
        return "the ranks run on several hosts"
    near = c.pattern.cause_if_near
    if near and any(regexes.search(near, line) for line in c.event.context):
        return "the lines around it say why"
    return ""


def _hosts(case: Case) -> set[str]:
    """The hosts on which ranks are known to live."""
    spoke = {e.host for e in case.events if e.host and e.speaker in ("rank", "launcher")}
    return {h.split(".")[0] for h in (*case.registry.host_of.values(), *spoke)}


def _only_kernel(case: Case, c: Claim, claims: Sequence[Claim]) -> bool:
    """Nothing but lines of the kernel was handed in, they accuse nothing else, and the process is a
    Python."""
    if case.registry.ranks or not is_program(c.event) or not case.only_kernel:
        return False
    return not any(other.role == "cause" for other in claims)


def _first_trouble(case: Case, c: Claim, trouble: Sequence[Event]) -> bool:
    """Whether the job ran well until somebody ended it. Ranks that are told to stop lose each other:
    complaints after it do not count."""
    if case.all_finished or (c.pattern.entity == "pid" and not c.ranks):
        return False  # whose process it is nobody knows: perhaps a stranger's
    return all(_follows(e, c.event) for e in trouble)


def _complains(c: Claim) -> bool:
    """Whether it says that the job did not run well, but for the scheduler's words."""
    if c.tells("end"):
        return c.role != "context" and c.event.fields.get("signal") not in ("Terminated", "Killed")
    return c.tells("aborts") or (c.accuses and c.pattern.category not in (None, "scheduler"))


def _follows(e: Event, first: Event) -> bool:
    """Whether `e` came after `first`, as far as their file or their clocks tell (Slurm's stamp has whole
    seconds)."""
    if e.where.source == first.where.source and e.where.line and first.where.line:
        return e.where.line > first.where.line
    return e.at is not None and first.at is not None and e.at > first.at - 1 - e.at_sigma


def _is_last(case: Case, c: Claim) -> bool:
    """Whether a wait that is ordinary is the last there is: then the job never started, or stands there."""
    e = c.event
    if c.pattern.if_last == "repeated":
        return log_ends.repeated_to_the_end(case, e)
    if c.pattern.if_last != "once":
        return False
    if c.pattern.restored_by:
        return not case.seen(c.pattern.restored_by)
    own = case.by_source[e.where.source]
    if any(x.where > e.where for x in own):
        return False
    return any(x.kind == "line" and x.fields.get("last") and x.where == e.where for x in own)
