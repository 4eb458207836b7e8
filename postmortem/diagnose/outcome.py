"""Whether the logs show a failure at all, and whether its cause is among what was found.

Healthy is a run that said goodbye, or is seen at work to its last line with nothing at its end against it
(see `life`). Without a sign of either nobody knows, and the verdict says what is missing: a kernel's log
alone does not tell that a job went well.
"""

from __future__ import annotations

from collections.abc import Sequence

from postmortem.diagnose import life
from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import OTHERS, Claim
from postmortem.diagnose.wording import ranks_text
from postmortem.model import Event, Outcome

LOUD = ("fatal", "error")
SEVERAL = 3
PROSE = ("console", "environment")  # kinds of source that any text may be


def of(case: Case, root: Claim | None, claims: Sequence[Claim]) -> Outcome:
    """Name the outcome of one attempt: incident, undetermined or healthy."""
    if root is not None:
        unharmed = root.guess and not _lifeless(case) and not any(c.role == "symptom" for c in claims)
        return "undetermined" if unharmed else "incident"
    if failed(case, claims) or _half_read(case):
        return "undetermined"
    if _lifeless(case) and (case.of_kind("stack") or _troubled(case, claims)):
        return "undetermined"
    return "undetermined" if lacking(case) else "healthy"


def only_lacks(case: Case, claims: Sequence[Claim]) -> bool:
    """Whether nothing speaks against a life but that nobody is seen at work or done in it."""
    return _lifeless(case) and not (
        failed(case, claims) or _half_read(case) or case.of_kind("stack") or _troubled(case, claims)
    )


def lacking(case: Case) -> str:
    """What a log does not show that a healthy one would; empty where it tells of no job, and nothing says
    that it should."""
    if ranks := life.left_behind(case):
        return f"{ranks_text(ranks)} ran and never reported the end, as the others did later"
    if life.is_alive(case):
        return "" if life.shown_at_work(case) or not _errors(case) else "errors precede its results"
    if case.registry.ranks or case.registry.world or any(s.kind == "agent" for s in case.sources.values()):
        return "no line shows a rank at work or finished"
    if _complaints(case):
        return "a line reports a problem, and none shows that the work continued"
    return _unknown(case)


def _unknown(case: Case) -> str:
    """What is said of a text in which nothing is known: the kernel's lines or prose."""
    kinds = {s.kind for s in case.sources.values()}
    if kinds == {"kernel"} and not case.by_kind["pattern"]:
        return "these logs show no job, and no kernel line matches a pattern"
    if kinds == {"stack"}:
        return "a stack shows where a process was, and no line whether it continued"
    if kinds <= set(PROSE) and not any(map(_reads_as_log, case.events)):
        return "these logs show no job"
    return ""


def _errors(case: Case) -> bool:
    """Whether several lines tell of errors of which no pattern knows that they are benign."""
    cries = {e.where for e in case.of_kind("notice") if e.fields.get("cries") and e.speaker not in OTHERS}
    return len(cries - case.known_benign) >= SEVERAL


def _complaints(case: Case) -> bool:
    """Whether a line complains of which no pattern knows that it is benign."""
    told = [e for e in case.of_kind("notice") if e.where not in case.known_benign and e.speaker not in OTHERS]
    return any(e.raw_time or e.fields.get("cries") for e in told)  # `I cannot stop crying` is a prompt


def _reads_as_log(e: Event) -> bool:
    """Whether a line has a time or a level, as lines of logs have."""
    return bool(e.raw_time) or e.kind == "pattern"


def failed(case: Case, claims: Sequence[Claim]) -> bool:
    """Whether somebody complains aloud, or a rank ended badly."""
    if any(complains(case, c) for c in claims) and not (case.all_finished and not case.ends):
        return True
    return any(not case.unharmed(r) for r in case.ends)


def complains(case: Case, c: Claim) -> bool:
    """Whether it tells of a failure: aloud, or with nothing after it."""
    waits = c.pattern.if_last == "repeated" or bool(c.pattern.stands_for)
    last = (bool(c.pattern.if_last and c.because) and waits) or _at_the_end(case, c)
    chosen = case.only_kernel and c.pattern.category is not None  # somebody picked these lines
    return c.role == "symptom" and (c.pattern.severity in LOUD or last or chosen)


def _at_the_end(case: Case, c: Claim) -> bool:
    """Whether a mere warning of trouble has nothing after it that shows its writer at work."""
    return c.speaker not in OTHERS and (c.event.where.line or 0) > life.last_line(case, c.event.where.source)


def _half_read(case: Case) -> bool:
    """Whether a recorder's dump cannot be read, or shows a rank in the middle of a collective."""
    if case.finished:
        return False
    return bool(case.of_kind("unreadable")) or any(e.fields.get("pending") for e in case.of_kind("recorder"))


def _lifeless(case: Case) -> bool:
    return not life.is_alive(case)


def _troubled(case: Case, claims: Sequence[Claim]) -> bool:
    """Somebody complains, stops workers or still waits; or the kernel confirms a failure that nobody else
    tells of.

    What hangs in the kernel may be another job's, unless its lines are all that was handed in: then somebody
    chose them.
    """
    for c in claims:
        kernel = c.speaker == "kernel"
        if c.role == "symptom" and (not kernel or (case.only_kernel and c.pattern.category is not None)):
            return True
        if c.role == "confirms" and kernel and c.pattern.severity in LOUD:
            return True
    return False
