"""Failures that a rank, a host or a job got over. `survived_by` of a pattern lists the signs:

    work          any work below it in its log, whoever does it and whatever the role of the line
    finish        only the finish that its log reports below it, in a run without a bad end
    finite-loss   a finite loss that its writer prints far below it
    nothing       no line: nobody goes on after it
    ID            a line of that pattern below it, where nothing else failed

Where the list is empty: work of the rank that the line is about, if that can have handled it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping

from postmortem.diagnose import liveness
from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.order import relation
from postmortem.diagnose.rules.view import Defeat, View
from postmortem.diagnose.who.evidence import Strength
from postmortem.formats import endings
from postmortem.model import Event
from postmortem.model.digits import number
from postmortem.model.grouped import grouped
from postmortem.model.vocabulary import OF_PEERS, SURVIVED_BY
from postmortem.privacy import cut
from postmortem.system import forms

_REGEXES = forms.regexes("diagnose/lines")
NEAR = 60  # lines: c10d's warning with its C++ frames is above the agent's traceback
FAR = 12  # lines: ranks that wait for a dead one print no more
CHAIN = 5  # lines between the tracebacks of a chain
BATCH = ("scheduler", "kubernetes", "host-memory", "signals")  # families of patterns about the end of a whole job
# an exception from here on ended a thread or a program; torch raises that of a DataLoader worker anew
RUNNERS = ("_bootstrap_inner", "_bootstrap", "main", "_worker_loop")
ENDINGS = ("wait", "exit", "end", "stop", "asks", "forces")
OF_RANKS = ("self", "rank", "missing-ranks")


def went_on(view: View) -> Iterator[Defeat]:
    """What shows by its pattern that a failure was got over, or that its rank handled it and worked or finished below."""
    guilty = any(c.role == "cause" for c in view.claims) or not all(map(view.case.unharmed, view.case.ends))
    for at, claim in view.numbered():
        signs = {*SURVIVED_BY}.intersection(claim.pattern.survived_by)
        if claim.by("outside") or not (signs or _may_be_handled(view.case, claim, guilty)):
            continue
        for shows, words in (SIGNS[sign] for sign in signs or ("",) if sign in SIGNS):
            if later := shows(view.case, claim):
                yield Defeat(at, "context", f"{words}: `{cut(later.text.strip(), 80)}` at {later.where}")


def _may_be_handled(case: Case, claim: Claim, guilty: bool) -> bool:
    """Whether the writer can have lived on: not after its own death, a report on another process, or NaN. A symptom
    counts only where nothing is known to have failed, and if it reports neither an end nor a wait until a timeout."""
    e, entity = claim.event, claim.pattern.entity
    if e.fields.get("excepthook") or e.fields.get("reported_by") or claim.pattern.category == "numerics":
        return False
    # glibc's message on a common console has no rank: the lines below it are the other ranks'
    if not claim.ranks and claim.pattern.category == "native-crash" and case.ended("crash"):
        return False
    if claim.role == "symptom" and e.fields.get("wrapper"):
        return True
    symptom = claim.role == "symptom" and not guilty and not any(map(claim.tells, ENDINGS))
    # about the writer, its ranks, its child or its host, or about the whole job, but for a stop: a trap may still write
    own = entity in OF_RANKS or (entity in ("job", "host") and not claim.of("stop"))
    return own and (claim.role == "cause" or symptom)


def _own_work(case: Case, claim: Claim) -> Event | None:
    """Work of the rank that handled it; below a symptom only further down, for the others may print a last step."""
    rank = claim.ranks[0] if claim.ranks else None
    if claim.pattern.entity == "missing-ranks":  # who complains of another's absence may catch that
        rank = case.rank_of(claim.event)
    # of a rank that is known by elimination the nameless lines below are no more than of any other
    elif case.registry.identify(claim.event) == (rank, Strength.LISTED):
        rank = None
    later = _work(case, claim, rank)
    if later is None or (rank is None and _ended_a_rank(case, claim.event)):
        return None
    near_counts = claim.role != "symptom" or _is_tried_again(claim.event)
    return later if near_counts or _far_below(later, claim.event) else None


def _work(case: Case, claim: Claim, rank: int | None = None) -> Event | None:
    """Progress or a final message below a failure, or any line where the failure itself announces another try. A
    final message below an exception that ended the process is its shell's, unless only a good run prints it."""
    e = claim.event
    # what a writer without a rank prints below a wait that timed out is no sign that the exception was handled: torch
    # aborts the collective, and each rank gets one step further
    waits = case.telling("wait") if e.fields.get("frames") else ()
    gave_up = min((x.line for x in waits if x.below(e)), default=math.inf)
    for x in liveness.after(case, e, rank):
        if x.line > gave_up and case.rank_of(x) is None:
            continue
        if not endings.uncaught(e) or endings.surely_finished(x):
            return x
        if x.kind == "worked" and (_far_below(x, e) or _prints_such(case, e)):
            return x
    return _line_below(case, e, rank) if _is_tried_again(e) and case.unharmed(rank) else None


def _line_below(case: Case, e: Event, rank: int | None) -> Event | None:
    below = (x for x in case.by_source[e.where.source] if x.kind == "line" and x.below(e))
    return next((x for x in below if rank is None or case.rank_of(x) in (rank, None)), None)


def _is_tried_again(e: Event) -> bool:
    given_up = _REGEXES["gave-up"].search(e.text) or e.fields.get("opened")
    return not given_up and _REGEXES["overcome"].search(e.text) is not None


def _far_below(x: Event, e: Event) -> bool:
    """Whether it is a server's answer, or progress that cannot be another rank's last step: a count grew repeatedly."""
    return x.fields.get("by") == "answer" or x.line - e.line >= FAR or x.fields.get("since", 0) > e.end


def _prints_such(case: Case, e: Event) -> bool:
    """Whether a step is right below this exception and another one: a process cannot end twice."""
    stepped = [x.line for x in case.by_source[e.where.source] if x.kind == "exception" and x.fields.get("stepped")]
    return e.line in stepped and len(stepped) > 1


def _ended_a_rank(case: Case, e: Event) -> bool:
    """Whether an exception without a rank may have ended one that exited with an error code: it is the last on its
    console, and a rank that a launcher reports raised nothing under its own name."""
    raised = [x for x in case.of_kind("exception") if x.source_kind != "agent" and not x.fields.get("reported_by")]
    named = case.ranks_of(raised)
    silent = _failed_with_a_code(case, e) - named - ({None} if named else set())
    nameless = [x for x in raised if x.rank is None and not re.search("ChildFailed|CalledProcess", x.text)]
    return bool(silent) and e.kind == "pattern" and not any(x.below(e) for x in nameless)


def _failed_with_a_code(case: Case, e: Event) -> set[int | None]:
    """Ranks that a launcher reports, not above this exception, with an exit code of their own; None for one without a
    name. An exception about a child's exit code (`CalledProcessError`) may be any helper's."""
    own = ((r, case.ends[r]) for r in case.ended("own"))
    failed: set[int | None] = {
        r for r, end in own if end.code < endings.SHELL and not (end.reported_by and e.below(end.reported_by))
    }
    for x in case.telling("end"):
        if 0 < (x.fields.get("exitcode") or 0) < endings.SHELL and not x.fields.get("frames") and not e.below(x):
            failed.add(x.fields.get("rank", number(x.fields.get("ranks"))))
    return failed


def _finish(case: Case, claim: Claim) -> Event | None:
    """The finish that its log reports, where no bad end is known: the failure shows in the exit code only."""
    bye = liveness.last_finish(case, claim.event.where.source)
    well = bye is not None and endings.surely_finished(bye) and all(map(case.unharmed, case.ends))
    return bye if well else None


def _finite_loss(case: Case, claim: Claim) -> Event | None:
    """The last progress line of the same writer, if it is far below and its loss is finite: then the NaN did not reach
    the weights."""
    e = claim.event
    own = [x for x in case.by_source[e.where.source] if x.kind == "progress" and x.rank == e.rank]
    last = max((x for x in own if "loss" in x.fields), key=lambda x: x.line, default=None)
    try:
        finite = last is not None and math.isfinite(float(last.fields["loss"])) and _far_below(last, e)
    except ValueError:
        return None
    return last if finite else None


SIGNS: Mapping[str, tuple[Callable[[Case, Claim], Event | None], str]] = {
    "": (_own_work, "the rank continued"),
    "work": (_work, "the rank continued"),
    "finish": (_finish, "the rank continued"),
    "finite-loss": (_finite_loss, "the loss is finite later"),
}


def caught(view: View) -> Iterator[Defeat]:
    """An exception that did not end its process: a library raised and caught it, or it was logged below ERROR."""
    for at, claim in view.numbered("cause"):
        e = claim.event
        if endings.uncaught(e) or not e.fields.get("frames") or claim.ranks or e.fields.get("code"):
            continue
        lines = (x for x in view.case.by_source[e.where.source] if x.kind == "line" and x.line > e.end)
        wrote_on = any(not liveness.is_bar(x) for x in lines)
        if claim.pattern.generic and e.fields["frames"][0][2] not in RUNNERS and wrote_on:
            yield Defeat(at, "symptom", "a library raised and caught it, and continued")
        elif _logged_below_error(view.case, e):
            yield Defeat(at, "symptom", "it was caught and not logged as an error")


def _logged_below_error(case: Case, e: Event) -> bool:
    """Whether the line above the traceback, or above the first of a chain, has a level below ERROR."""
    opened = e.fields.get("opened") or 0
    above = [x for x in case.by_source[e.where.source] if x.kind == "exception" and x.fields.get("chained")]
    for x in sorted(above, key=lambda x: -x.line):
        if 0 < opened - x.end <= CHAIN:
            opened = x.fields.get("opened") or 0
    heads = [x for x in case.by_source[e.where.source] if x.kind == "notice" and x.where.line == opened - 1]
    return any(_REGEXES["below-error"].search(x.text) for x in heads)


def job_done(view: View) -> Iterator[Defeat]:
    """A run of which every log reports the end got over the failures above."""
    for at, claim, bye in _in_finished_runs(view):
        if not claim.event.below(bye) and (endings.surely_finished(bye) or not _final(claim)):
            yield Defeat(at, "context", f"the run finished after it ({bye.where})")


def while_leaving(view: View) -> Iterator[Defeat]:
    """Below the end of a whole run, peers and stores vanish while processes exit."""
    for at, claim, bye in _in_finished_runs(view):
        if claim.role == "cause":
            may_follow = claim.of("complaint") or endings.of_a_thread(claim.event)
        else:
            may_follow = not any(map(claim.tells, ("end", "exit", "wait")))  # who waits until a timeout is not leaving
        # a rank that died in a collective of the program had not finished: another rank did
        at_work = claim.event.fields.get("excepthook") and claim.event.fields.get("collective") not in (None, "barrier")
        if may_follow and not at_work and endings.surely_finished(bye) and claim.event.below(bye):
            yield Defeat(at, "context", f"the run had finished ({bye.where}), and the processes were exiting")


def at_exit_barrier(view: View) -> Iterator[Defeat]:
    """A store that an agent of torchrun loses while it waits for the other agents: it enters that barrier only after its
    own workers have succeeded, and whoever hosts the store may exit first (elastic/agent/server/api.py)."""
    lost = [c.event for c in view.claims if c.pattern.category == "peer-lost"]
    waits = (e for e in lost if any(frame[2] == "_exit_barrier" for frame in e.fields.get("frames", ())))
    ends = grouped((e.where.source, e.line) for e in waits)
    for at, claim in view.numbered("cause", "symptom"):
        e, of_peers = claim.event, {claim.pattern.category, claim.pattern.stands_for} & {"peer-lost", "network"}
        if of_peers and any(abs(e.line - line) <= NEAR for line in ends[e.where.source]):
            yield Defeat(at, "context", "the agent waited for the others to exit after its own workers had succeeded")


def _in_finished_runs(view: View) -> Iterator[tuple[int, Claim, Event]]:
    """The job's own claims, each with the last final message of its log, or of its rank where that is a stderr without
    any, where the whole run reports its end."""
    if not liveness.all_done(view.case):
        return
    for at, claim in view.numbered("cause", "symptom", "confirms"):
        bye = liveness.last_finish(view.case, claim.event.where.source) or _finish_beside(view.case, claim.event)
        if not claim.by("outside") and claim.pattern.category != "numerics" and bye is not None:
            yield at, claim, bye


def _finish_beside(case: Case, e: Event) -> Event | None:
    """The final message of the rank in another log, where nothing in this one shows work, as in the stderr of a rank; of a
    line without a rank that of the last rank, where all finished."""
    rank = case.rank_of(e)
    byes = [p.finished for p in case.processes if p.finished and p.rank is not None and rank in (p.rank, None)]
    if case.at_work[e.where.source] or not byes or not (rank is not None or case.all_finished):
        return None
    bye = max(byes, key=lambda e: e.at or 0.0)
    return bye if relation(e, bye) != "after" else None


def _final(claim: Claim) -> bool:
    """Whether it reports the end of a process or job, so that a final message below it is a shell's."""
    dead = endings.uncaught(claim.event) or not {"nothing", "finish"}.isdisjoint(claim.pattern.survived_by)
    ends = any(map(claim.tells, ("end", "exit", "stop", "asks")))
    return dead or ends or claim.pattern.category == "native-crash" or claim.pattern.family in BATCH


def fell_back(view: View) -> Iterator[Defeat]:
    """An error in one line, right above a line that names the replacement."""
    for at, claim in view.numbered("cause", "symptom"):
        e = claim.event
        if claim.pattern.entity != "self" or e.fields.get("frames"):
            continue
        below = next((line for line in e.context[e.before + 1 : e.before + 3] if line.strip()), "")
        if _REGEXES["instead"].search(below):
            yield Defeat(at, "context", f"the next line names the replacement: `{cut(below.strip(), 80)}`")


def started_otherwise(view: View) -> Iterator[Defeat]:
    """A command that was not found started nothing: where all ranks of the job write below it, another line of the
    script started them. Without a known world size they work or fail by themselves: another host's may only wait."""
    for at, claim in view.numbered("cause"):
        if claim.tells("no-start"):
            below = [x for x in view.case.by_source[claim.event.where.source] if x.below(claim.event)]
            ranks, world = view.case.ranks_of(below), view.case.registry.world
            own = [x.event for _, x in view.numbered("cause") if x.ranks and x.pattern.category not in OF_PEERS]
            if ranks >= {*range(world)} if world else any(x.kind == "worked" or x in own for x in below):
                yield Defeat(at, "context", f"the ranks write below it ({below[0].where}): another line started them")


def restored(view: View) -> Iterator[Defeat]:
    """A file server that answers again, or a volume that was mounted in the end, where nothing failed meanwhile. In a
    cluster's list of events the later line decides in any case."""
    failed = any(c.accuses and {*SURVIVED_BY}.issuperset(c.pattern.survived_by) for c in view.claims)
    for at, claim in view.numbered("cause", "symptom"):
        later = (x for word in claim.pattern.survived_by for x in view.case.by_pattern[word])
        if (end := next((x for x in later if x.below(claim.event)), None)) and (claim.by("of_jobs") or not failed):
            yield Defeat(at, "context", f"it passed: {end.where}")
