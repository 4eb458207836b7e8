"""A job that had printed nothing for long when a scheduler ended it: its time limit only ended a hang.

    0: 2026-11-21 19:21:44,020 | INFO | 0 | iteration 80 loss 2.2871          the last line of any rank, and 34 minutes later
    slurmstepd: error: *** STEP 17.0 ON node-a CANCELLED AT 2026-11-21T19:56:10 DUE TO TIME LIMIT ***

The last line of every rank needs a stamp: a progress bar may have gone on without one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from postmortem.diagnose.case import RANK_LOGS, Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.wording import ranks_text
from postmortem.formats.lineform import message, shape
from postmortem.model import Event
from postmortem.model.grouped import grouped

QUIET_S = 1800.0  # an evaluation or a checkpoint can take many minutes
STEPS = 20  # and as many steps must fit into the silence
APART_S, MANY_STEPS = 60.0, 300  # where one rank's last line differs from that of all others
FEW = 3  # ranks
CHAINED = 2  # lines: "During handling of the above exception, another exception occurred:" and an empty one
MONTH_S = 30 * 86400.0  # no job's limit is longer: then the scheduler's line is about another job
ZONE_S, NEAR_S = 1800.0, 120.0  # clocks without a zone differ by whole half hours: such a silence proves nothing
Writer = tuple[str, int | None]  # a source and a rank


def derive(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """At most one claim: that all ranks had been silent for long when the job was ended."""
    end = _end(case, claims)
    last, pace = last_lines(case), _seconds_a_step(case)
    if end is None or case.finished or pace is None or not last or not all(map(_stamped, last)):
        return []
    silence = _silence(end, last)
    lone, outside = apart(case, last), interrupted_outside(case)
    least = max(APART_S, MANY_STEPS * pace) if lone or outside else max(QUIET_S, STEPS * pace)
    if not least <= silence < MONTH_S:
        return []
    final, *others = sorted(last, key=lambda e: (e is lone, _at(e)), reverse=True)
    if outside:
        ranks, proof, because = case.ranks_of(outside), [*outside, end], _interrupted(case, outside, silence)
    elif lone is not None:
        ranks, proof = case.ranks_of([final]), [final, end, *others[:3]]
        because = _silent(ranks, final, others[0], silence)
    else:
        ranks, proof, because = set(), [final, end, *others[:3]], _reason(case, silence, pace)
    made = case.claim("job-stood-still", ranks, proof, because)
    return [made] if made else []


def _silence(end: Event, last: Sequence[Event]) -> float:
    """Seconds from the last line to the end; 0 where the clocks of lines without a zone may make all of it."""
    silence = _at(end) - max(map(_at, last))
    zoneless = any(e.clock != "absolute" for e in (end, *last))
    return 0.0 if zoneless and silence > NEAR_S and silence % ZONE_S < NEAR_S else silence


def _reason(case: Case, silence: float, pace: float) -> str:
    step = max((e.fields.get("step") or 0 for e in case.of_kind("progress")), default=0)
    because = f"no rank printed a line in the last {duration(silence)}"
    return because + (f"; before that, up to step {step}, a step took {duration(pace)}" if step else "")


def _silent(ranks: Collection[int], final: Event, other: Event, silence: float) -> str:
    until = f"and no rank printed a line in the {duration(silence)} until the job was ended"
    after = f"{ranks_text(ranks)} fell silent after `{message(final.text)}`"
    return f"{after}, {until}; the last line of the others is `{message(other.text)}`"


def apart(case: Case, last: Sequence[Event]) -> Event | None:
    """The last line of the one rank that ended with a line of its own, where all others ended with the same. The first
    rank alone proves nothing: it saves and evaluates for all."""
    forms = grouped((shape(e.text), e) for e in last)
    lone = next((found[0] for found in forms.values() if len(found) == 1), None)
    ranks = case.ranks_of(last)
    if lone is None or len(forms) != 2 or not len(last) == len(ranks) >= FEW:
        return None
    return lone if case.rank_of(lone) != min(ranks) else None


def interrupted_outside(case: Case) -> list[Event]:
    """The tracebacks of a Ctrl-C of the ranks that were in no collective, where most were in one; none where that is the
    first rank alone."""
    raised = case.of_kind("exception")
    # where a peer left, the collective is in the exception above the interrupt
    waited = case.ranks_of(e for e in raised if e.fields.get("collective"))
    interrupts = {case.rank_of(e): e for e in raised if e.text.endswith("KeyboardInterrupt") and e.fields.get("code")}
    of_ranks = {rank: e for rank, e in interrupts.items() if rank is not None}
    outside = [e for rank, e in of_ranks.items() if rank not in waited]
    if case.ranks_of(outside) == {min(case.registry.ranks, default=0)}:
        return []
    return outside if 2 * len(outside) < len(of_ranks) == len(case.registry.ranks) else []


def _interrupted(case: Case, outside: Sequence[Event], silence: float) -> str:
    ranks = case.ranks_of(outside)
    places = ", ".join(sorted({e.fields["code"] or "" for e in outside}))
    where = f"{ranks_text(ranks)} {'was' if len(ranks) == 1 else 'were'} at {places} and the others in a collective"
    return f"{where} when the job was interrupted; no rank had printed a line for {duration(silence)}"


def _at(e: Event) -> float:
    return e.at or 0.0


def _stamped(e: Event) -> bool:
    return e.at is not None and bool(e.raw_time)


def _end(case: Case, claims: Sequence[Claim]) -> Event | None:
    """The stamped line of the scheduler that ended the job, of those that a standstill explains."""
    pattern = case.library.get("job-stood-still")
    explained = {edge.id for edge in pattern.explains} if pattern else set()
    ends = [c.event for c in claims if c.role == "cause" and c.pattern.id in explained and _stamped(c.event)]
    return min(ends, key=_at, default=None)


def last_lines(case: Case) -> list[Event]:
    """The last line of every writer in each log, but for the copies on a launcher's console and for tracebacks."""
    raised = grouped((e.where.source, (e.fields.get("opened") or e.line, e.end)) for e in case.of_kind("exception"))
    lines = case.of_kind("line", "progress", "notice", "finished")
    printed = ((e, case.rank_of(e)) for e in lines if not _within(raised[e.where.source], e.line))
    of_writers = grouped(
        ((e.where.source, rank), e)
        for e, rank in printed
        if e.source_kind in RANK_LOGS or (e.source_kind == "agent" and rank is not None)
        if e.where.source not in case.beside
    )
    return _without_copies(case, [max(reversed(own), key=lambda e: e.line) for own in of_writers.values()])


def _within(tracebacks: Sequence[tuple[int, int]], line: int) -> bool:
    """Whether a line is in a traceback, or says above one that it followed from another."""
    return any(opened - CHAINED <= line <= end for opened, end in tracebacks)


def _without_copies(case: Case, last: Sequence[Event]) -> list[Event]:
    """Of a rank with dated lines in several logs the last one, as mpirun writes them to its console and to a file for each
    rank; and of lines without a rank those that are of no other log, and not all above the ranks': a batch script's."""
    of_ranks = grouped((case.rank_of(e), e) for e in last)
    nameless = of_ranks.pop(None, [])
    latest = [e for own in of_ranks.values() for e in ([max(own, key=_at)] if all(map(_stamped, own)) else own)]
    known = {message(e.text) for e in latest}
    return [*latest, *(e for e in nameless if message(e.text) not in known and not _above_ranks(case, e))]


def _above_ranks(case: Case, e: Event) -> bool:
    """Whether a line is above all lines of the ranks in its log."""
    of_ranks = [x.line for x in case.by_source[e.where.source] if case.rank_of(x) is not None]
    return bool(of_ranks) and e.line < min(of_ranks)


def _seconds_a_step(case: Case) -> float | None:
    """Seconds that a step took on the slowest rank; None where no rank counts its steps."""
    timed = ((e, e.fields.get("step"), e.at) for e in case.of_kind("progress"))
    marks = (((e.where.source, e.rank), (n, at)) for e, n, at in timed if n is not None and at is not None)
    counted = grouped(marks)
    spans = [(min(marks), max(marks)) for marks in counted.values()]
    paces = [(ended - began) / (last - first) for (first, began), (last, ended) in spans if last > first]
    return max((pace for pace in paces if pace > 0), default=None)


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
