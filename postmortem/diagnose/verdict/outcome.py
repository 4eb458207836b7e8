"""The outcome of one attempt: whether the logs show a failure, and whether its cause is among the claims.

A run is healthy that reported its end, or is at work to its last line with no failure there (see `liveness`). Without
evidence of either the outcome is undetermined: a kernel's log alone does not show that a job went well.
"""

from __future__ import annotations

from collections.abc import Sequence

from postmortem.diagnose import liveness
from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim, by
from postmortem.diagnose.verdict import reached
from postmortem.diagnose.wording import ranks_text
from postmortem.model import Event, Outcome, speaker_in
from postmortem.model.vocabulary import LOUD

SEVERAL = 3
OUTSIDE = {"kernel", "kubernetes", "scheduler"}  # kinds of source in which others report on a job
NEAR = 4  # lines of one warning
PROSE = {"console", "environment"}  # kinds of source that may hold any text


def of(case: Case, root: Claim | None, claims: Sequence[Claim]) -> Outcome:
    """The outcome of one attempt: incident, undetermined or healthy."""
    if root is not None:
        unharmed = root.guess and liveness.is_alive(case) and not any(c.role == "symptom" for c in claims)
        return "undetermined" if unharmed else "incident"
    if failed(case, claims) or _half_read(case) or _in_trouble(case, claims):
        return "undetermined"
    return "undetermined" if lacking(case) or reached.of(case) else "healthy"


def while_exiting(case: Case, c: Claim) -> bool:
    """Whether a complaint is a lost peer or an error without a pattern below the end of the work: processes exit one by
    one, and a tool that fails to clean up fails alone."""
    vague = c.of("gone") or c.event.kind in ("notice", "line")
    return vague and liveness.at_its_end(case, c.event) and all(map(case.unharmed, case.ends))


def only_lacks(case: Case, claims: Sequence[Claim]) -> bool:
    """Whether the only evidence against an attempt is that no rank is seen at work or done in it."""
    return not liveness.is_alive(case) and not (failed(case, claims) or _half_read(case) or _in_trouble(case, claims))


def lacking(case: Case) -> str:
    """What the log of a healthy job would show and this one does not; empty where it is about no job."""
    if ranks := liveness.left_behind(case):
        return f"{ranks_text(ranks)} ran and never reported the end, as the others did later"
    if half := _half_read(case):
        return half
    if liveness.is_alive(case):
        return _doubt(case)
    if case.registry.ranks or case.registry.world or any(s.kind == "agent" for s in case.sources.values()):
        return "no line shows a rank at work or finished"
    problems = [e for e in _unknown_notices(case) if e.raw_time or e.fields.get("reports_error")]
    if problems:
        return "a line reports a problem, and none shows that the work continued"
    return _without_a_job(case)


def _doubt(case: Case) -> str:
    """What speaks against a job that is at work to its last line."""
    if not case.of_kind("finished") and any(e.speaker == "tool" for e in case.of_kind("stack")):
        return "a tool took the stack of a process, and no line shows that the run ended"
    errors = {e.where for e in _unknown_notices(case) if e.fields.get("reports_error")}
    return "errors precede its results" if len(errors) >= SEVERAL and not liveness.shown_at_work(case) else ""


def _without_a_job(case: Case) -> str:
    """Why a text without any known line shows no healthy job; empty where it may."""
    kinds = {s.kind for s in case.sources.values()}
    if kinds <= OUTSIDE and not case.by_kind["pattern"]:
        return f"these logs show no job, and no {'kernel ' if kinds == {'kernel'} else ''}line matches a pattern"
    if kinds == {"stack"}:
        return "a stack shows where a process was, but not whether it continued"
    if _are_documents(kinds):
        return "these documents show a state, but not whether the job continued"
    if kinds <= PROSE and not all(_follows_benign(case, e) for e in case.of_kind("line") if e.fields.get("last")):
        known = any(e.raw_time or e.kind == "pattern" for e in case.events)
        return "these logs show no job" + (" at work, nor how one ended" if known else "")
    return ""


def _follows_benign(case: Case, e: Event) -> bool:
    """Whether a last line is one that a pattern knows as harmless, or its continuation: an excerpt of such lines."""
    above = (w.line for w in case.known_benign if w.source == e.where.source and w.line is not None)
    return any(0 <= e.line - line <= NEAR for line in above)


def _are_documents(kinds: set[str]) -> bool:
    """Whether nothing in these sources is the job's own output, and a document is among them."""
    documents = not kinds <= OUTSIDE or kinds == {"kubernetes"}
    return documents and all(kind in OUTSIDE or speaker_in(kind) in ("tool", "scheduler") for kind in kinds)


def _unknown_notices(case: Case) -> list[Event]:
    """Complaints of the job that no pattern knows as benign."""
    return [e for e in case.of_kind("notice") if e.where not in case.known_benign and not by(e, "outside")]


def failed(case: Case, claims: Sequence[Claim]) -> bool:
    """Whether a line complains, or a rank ended badly."""
    complained = any(complains(case, c) or _confirms(case, c) for c in claims)
    return (complained and not (case.all_finished and not case.ends)) or not all(map(case.unharmed, case.ends))


def complains(case: Case, c: Claim) -> bool:
    """Whether it reports a failure: an error, or a warning with nothing after it."""
    waits = c.pattern.if_last == "repeated" or bool(c.pattern.stands_for)
    last = not c.by("outside") and c.event.line > liveness.last_line(case, c.event.where.source)  # none at work
    last = last or (bool(c.pattern.if_last and c.because) and waits)
    return c.role == "symptom" and (c.pattern.severity in LOUD or last or _chosen(case, c))


def _confirms(case: Case, c: Claim) -> bool:
    """Whether it confirms a failure of a rank below the last sign of work, of which no other line is left."""
    loud = c.role == "confirms" and c.pattern.severity in LOUD and not c.by("outside")
    last = loud and c.event.line > liveness.last_line(case, c.event.where.source)
    return last and not liveness.all_done(case)


def _chosen(case: Case, c: Claim) -> bool:
    """Whether a person chose these lines, which are nothing but the kernel's."""
    return case.only_kernel and c.pattern.category is not None


def _half_read(case: Case) -> str:
    """Why recorders' dumps do not show a healthy job; empty where they do."""
    if case.finished:
        return ""
    if case.of_kind("unreadable"):
        return "a document beside the logs could not be read"
    pending = any(e.fields.get("pending") for e in case.of_kind("recorder"))
    return "a recorder's dump shows a rank in the middle of a collective" if pending else ""


def _in_trouble(case: Case, claims: Sequence[Claim]) -> bool:
    """Whether a job that is not at work has symptoms, stacks, or a failure that only the kernel confirms. What hangs
    in the kernel may be another job's, unless its lines were chosen."""
    if liveness.is_alive(case):
        return False
    symptoms = [c for c in claims if c.role == "symptom" and (not c.by("of_host") or _chosen(case, c))]
    confirmed = [c for c in claims if c.role == "confirms" and c.speaker == "kernel" and c.pattern.severity in LOUD]
    return bool(symptoms or confirmed or case.of_kind("stack"))
