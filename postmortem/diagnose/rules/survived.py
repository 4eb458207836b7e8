"""Trouble that a rank, a host or a job got over: it went on, it said goodbye, or the other side came back."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from postmortem.diagnose import endings, life
from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import OTHERS, Claim
from postmortem.diagnose.rules.aftermath import COMPLAINTS
from postmortem.diagnose.rules.view import Defeat, View
from postmortem.model import Event
from postmortem.model.digits import number
from postmortem.privacy import cut

_OVERCOME = re.compile(
    r"\bretr(?:y|ied|ying)\b|\bfalling back\b|\brecovered\b", re.IGNORECASE
)  # `read failed, retry 1/3`
_GAVE_UP = re.compile(r"\b(?:giv(?:e|ing) up|gave up|exhausted|abort(?:ed|ing)?|no more|last)\b", re.IGNORECASE)
_INSTEAD = re.compile(r"\b(?:falling back|fall ?back) (?:on|to)\b|\busing \S+ instead\b", re.IGNORECASE)
_AT_EXIT = re.compile(r"resource_tracker|^ *warnings\.warn\(")  # multiprocessing's helper outlives its process
BATCH = (
    "scheduler",
    "kubernetes",
    "host-memory",
    "signals",
)  # families of patterns that speak of a whole job's end
THREADS = ("_bootstrap_inner", "_bootstrap")  # outermost frames
RUNNERS = (*THREADS, "_run_module_as_main", "main")
FAR = 12  # lines
CHAIN = 5  # lines between the tracebacks of a chain
_LOW = re.compile(r"\b(?:INFO|DEBUG|WARNING|WARN)\b(?!.{0,200}\bERROR\b)")
OF_RANKS = ("self", "rank", "missing-ranks")


def went_on(view: View) -> Iterator[Defeat]:
    """What a rank survived was handled: the rank worked or said goodbye after it, and nobody reported its
    death."""
    for at, claim in view.numbered():
        if not _may_be_handled(view.case, claim):
            continue
        rank = _whose(view.case, claim)
        later = _life_after(view.case, claim, rank)
        if later is None:
            continue
        if rank is None and claim.pattern.survivable != "anyone" and _ended_one(view.case, claim.event):
            continue
        yield Defeat(at, "context", f"the rank continued: `{cut(later.text.strip(), 80)}` at {later.where}")


def finite_again(view: View) -> Iterator[Defeat]:
    """A NaN after which the same writer reports a finite loss, many lines below, did not spread to the weights."""
    for at, claim in view.numbered("cause", "symptom"):
        e = claim.event
        if claim.pattern.spreads and (later := _finite_loss(view.case, e)):
            yield Defeat(at, "context", f"the loss is finite later: `{cut(later.text.strip(), 80)}` at {later.where}")


def _finite_loss(case: Case, e: Event) -> Event | None:
    """The last progress line of the writer of a line, with a number as the loss."""
    own = [
        x for x in case.by_source[e.where.source] if x.kind == "progress" and x.rank == e.rank and "loss" in x.fields
    ]
    last = max(own, key=lambda x: x.where.line or 0, default=None)
    if last is None or not _far_below(last, e):
        return None
    try:
        return last if math.isfinite(float(str(last.fields["loss"]))) else None
    except ValueError:
        return None


def caught(view: View) -> Iterator[Defeat]:
    """An exception that did not end its process: a library's own code raised and caught it, and the log goes
    on below it; or a logger wrote it and called it no error."""
    for at, claim in view.numbered("cause"):
        e = claim.event
        if life.uncaught(e) or not e.fields.get("frames") or claim.ranks:
            continue
        if (
            claim.pattern.generic
            and not e.fields.get("code")
            and _wrote_on(view.case, e)
            and _first_frame(e) not in RUNNERS
        ):
            yield Defeat(at, "symptom", "a library raised and caught it, and continued")
        elif not e.fields.get("code") and _shrugged(view.case, e):
            yield Defeat(at, "symptom", "it was caught and not logged as an error")


def _wrote_on(case: Case, e: Event) -> bool:
    end = e.where.end_line or e.where.line or 0
    lines = (x for x in case.by_source[e.where.source] if x.kind == "line" and (x.where.line or 0) > end)
    return any(not (_AT_EXIT.search(x.text) or life.is_bar(x)) for x in lines)


def _first_frame(e: Event) -> str:
    """The function of the outermost frame of a traceback."""
    frames = e.fields.get("frames")
    return str(frames[0][2]) if isinstance(frames, tuple) and frames else ""


def _shrugged(case: Case, e: Event) -> bool:
    """Whether the line above the traceback, or above the first of a chain, is of a level below ERROR."""
    opened = number(e.fields.get("opened")) or 0
    above = [x for x in case.by_source[e.where.source] if x.kind == "exception" and x.fields.get("chained")]
    for x in sorted(above, key=lambda x: -(x.where.line or 0)):
        if 0 < opened - (x.where.end_line or x.where.line or 0) <= CHAIN:
            opened = number(x.fields.get("opened")) or 0
    said = [x for x in case.by_source[e.where.source] if x.kind == "notice" and x.where.line == opened - 1]
    return any(_LOW.search(x.text) for x in said)


def job_done(view: View) -> Iterator[Defeat]:
    """A run that said goodbye everywhere got over whatever stands above."""
    for at, claim, bye in _beside_goodbyes(view):
        above = not _after_goodbye(view.case, claim)
        if above and (life.has_last_word(bye) or not (_deadly(claim) or _of_an_end(claim))):
            yield Defeat(at, "context", f"the run finished after it ({bye.where})")


def while_leaving(view: View) -> Iterator[Defeat]:
    """Below the goodbye of a whole run peers and stores vanish while processes leave."""
    for at, claim, bye in _beside_goodbyes(view):
        leaving = _on_leaving(claim) and not _at_work(claim.event)
        if leaving and life.has_last_word(bye) and _after_goodbye(view.case, claim):
            yield Defeat(at, "context", f"the run had finished ({bye.where}), and the processes were exiting")


def _beside_goodbyes(view: View) -> Iterator[tuple[int, Claim, Event]]:
    """The job's own claims, each with the last goodbye of its log, where the whole run said goodbye."""
    if not life.all_done(view.case):
        return
    for at, claim in view.numbered("cause", "symptom", "confirms"):
        bye = life.last_goodbye(view.case, claim.event.where.source)
        if claim.speaker not in OTHERS and claim.pattern.category != "numerics" and bye is not None:
            yield at, claim, bye


def _at_work(e: Event) -> bool:
    """Whether a rank died of it in a collective of the program: then the goodbye above was another rank's."""
    return bool(e.fields.get("excepthook")) and e.fields.get("collective") not in (None, "barrier")


def _after_goodbye(case: Case, claim: Claim) -> bool:
    bye = life.last_goodbye(case, claim.event.where.source)
    return bye is not None and (claim.event.where.line or 0) > (bye.where.line or 0)


def _deadly(claim: Claim) -> bool:
    """Whether who made this claim did not outlive it, so that a goodbye below it is another's: a shell's,
    mostly."""
    return life.uncaught(claim.event) or claim.pattern.survivable == "never" or claim.pattern.category == "native-crash"


def _of_an_end(claim: Claim) -> bool:
    """Whether a scheduler or a launcher tells that it ended something: its batch script goes on, and may say
    `Finished at:`."""
    return claim.pattern.family in BATCH or any(claim.tells(word) for word in ("end", "exit", "stop", "asks"))


def _on_leaving(claim: Claim) -> bool:
    """Whether it may follow from the end of the job: a peer or the store is gone, or an exit handler
    complains."""
    if claim.role != "cause":
        return not claim.tells("end") and not claim.tells("exit")
    return claim.pattern.category in COMPLAINTS or _first_frame(claim.event) in THREADS


def _may_be_handled(case: Case, claim: Claim) -> bool:
    """Whether who made this claim can have lived on: not what a process died of, what others report, or
    NaN."""
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


def _life_after(case: Case, claim: Claim, rank: int | None) -> Event | None:
    """A sign of work or a goodbye below the claim; any line, where the claim itself says that it is tried
    again. A goodbye below what ended the process is its shell's, unless only a good run prints it."""
    e = claim.event
    for x in life.after(case, e, rank):
        if rank is None and claim.pattern.survivable != "anyone" and _others(e, x):
            continue
        if not life.uncaught(e) or life.has_last_word(x) or (x.kind == "worked" and _far_below(x, e)):
            return x
    return _line_after(case, e, rank) if case.unharmed(rank) else None


def _line_after(case: Case, e: Event, rank: int | None) -> Event | None:
    """Any line of the same rank below one that says that it is tried again."""
    if e.fields.get("opened") or not _OVERCOME.search(e.text) or _GAVE_UP.search(e.text):
        return None
    for x in case.by_source[e.where.source]:
        if x.kind == "line" and life.below(x, e) and (rank is None or case.rank_of(x) in (rank, None)):
            return x
    return None


def _others(e: Event, x: Event) -> bool:
    """Whether two lines without ranks are of two processes: Ray names pids, and its drivers no ranks."""
    return None not in (e.pid, x.pid) and e.pid != x.pid


def _far_below(x: Event, e: Event) -> bool:
    """Whether an answer of a server, or work that is no other rank's last step: ranks that wait for a dead
    one print no more."""
    return x.fields.get("by") == "answer" or (x.where.line or 0) - (e.where.line or 0) >= FAR


def _ended_one(case: Case, e: Event) -> bool:
    """Whether an exception on a console without names may be the end of a rank that left with an error code:
    the others go on for a while. It is the last one there, and who is told of by a launcher has raised
    nothing under its own name."""
    raised = [x for x in case.of_kind("exception") if x.source_kind != "agent" and not x.fields.get("reported_by")]
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


def fell_back(view: View) -> Iterator[Defeat]:
    """An error in one line, right above one that says what is done instead."""
    for at, claim in view.numbered("cause", "symptom"):
        e = claim.event
        below = next((line for line in e.context[e.before + 1 : e.before + 3] if line.strip()), "")
        if claim.pattern.entity == "self" and not e.fields.get("frames") and _INSTEAD.search(below):
            yield Defeat(at, "context", f"the next line says what is done instead: `{cut(below.strip(), 80)}`")


def restored(view: View) -> Iterator[Defeat]:
    """A file server that answers again was only slow, as was a volume, where nothing failed meanwhile. In a
    list of a cluster's events, what comes after it says that it passed, whatever failed later."""
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
