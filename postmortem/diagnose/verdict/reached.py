"""How far a job came that stopped without an error, and whom it waits for.

    Initializing distributed: GLOBAL_RANK: 3, MEMBER: 4/8               and no member 5: four ranks never announced themselves
    … NCCL INFO ncclCommInitRank comm 0x24 rank 0 nranks 8 … Init START and no `Init COMPLETE`
    rank 2: torch 2.13.0                                                the last line of rank 2; the others printed a further one
    saving checkpoint to /ckpt/2.pt                                     the last line begins something, and nothing follows

A hang that no time-out ended has no line that reports it: the logs just stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from postmortem.diagnose import liveness
from postmortem.diagnose.case import RANK_LOGS, Case
from postmortem.diagnose.compare import standstill
from postmortem.diagnose.compare.rank_rows import MOST_RANKS
from postmortem.diagnose.compare.standstill import MONTH_S, QUIET_S, duration
from postmortem.diagnose.wording import capital, ranks_text
from postmortem.formats.lineform import message, shape
from postmortem.model import Event
from postmortem.model.digits import number
from postmortem.model.grouped import grouped, usual
from postmortem.system import forms

_REGEXES = forms.regexes("diagnose/lines")
QUIET = ("line", "notice")
SHOWN = 5  # lines of proof


class Reached(NamedTuple):
    """A sentence without its end, the category of the wait, the ranks that others wait for, and the lines."""

    text: str
    category: str
    ranks: tuple[int, ...]
    proof: tuple[Event, ...]


def of(case: Case) -> Reached | None:
    """How far the job came; None where the logs show its end, or steady work up to their last lines."""
    if case.of_kind("finished") or case.ends:
        return None
    return next(filter(None, (step(case) for step in STEPS)), None)


# ── counters of a start ─────────────────────────────────────────────────────────────────────────────────────


def announced(case: Case) -> Reached | None:
    """The ranks that announced themselves to a group, where they are fewer than it has members."""
    joins = [e for e in case.telling("joins") if not _went_on(case, e)]
    for (_, world), found in grouped(((e.pattern, _world(e)), e) for e in joins).items():
        came = {rank for e in found if (rank := e.fields.get("rank", case.rank_of(e))) is not None}
        n = max(len(came), *(number(e.fields.get("joined")) or 0 for e in found))
        if 0 < n < world <= MOST_RANKS:
            absent = sorted(set(range(world)) - came) if len(came) == n else []
            left = f"; {ranks_text(absent)} {'has' if len(absent) == 1 else 'have'} no line" if absent else ""
            text = f"Startup never completed: {n} of {world} ranks announced themselves{left}"
            return Reached(text, "rendezvous", tuple(absent), tuple(found))
    return None


def _world(e: Event) -> int:
    """The number of members; Lightning's `MEMBER: 4/8` numbers them from 1, it does not count them."""
    return number(e.fields.get("world") or str(e.fields.get("detail") or "").rpartition("/")[2]) or 0


def _communicators(case: Case) -> Reached | None:
    """The ranks that began a communicator of NCCL and did not complete it."""
    lines = [e for e in case.telling("communicator") if not _went_on(case, e)]
    done = {_process(e) for e in lines if e.text.rstrip().endswith("COMPLETE")}
    waiting = tuple(e for e in lines if _process(e) not in done)
    if not waiting:
        return None
    world = max(number(e.fields.get("world")) or 0 for e in waiting)
    members = range(world) if not done and world <= MOST_RANKS else ()
    absent = sorted({*members} - {number(e.fields.get("rank")) for e in waiting})
    begun = len({*done, *map(_process, waiting)})
    text = f"NCCL set-up began on {begun} rank{'s' * (begun > 1)} and completed on {len(done) or 'none'}"
    text += f"; {ranks_text(absent)} never began it" if absent else ""
    return Reached(text, "rendezvous", tuple(absent), waiting)


def _process(e: Event) -> tuple[object, ...]:
    return e.fields.get("host"), e.fields.get("pid"), e.fields.get("rank"), e.fields.get("world")


def _went_on(case: Case, e: Event) -> bool:
    """Whether its log shows work below a line, or any log does where lines of other logs have no order with it."""
    own = [x for x in case.of_kind("worked") if x.fields.get("by") in ("count", "loss", "answer", "up")]
    return any(x.where.source != e.where.source or x.line > e.line for x in own)


# ── the last lines of the ranks ─────────────────────────────────────────────────────────────────────────────


def _behind(case: Case) -> Reached | None:
    """The few ranks that stopped at another line than the others, before any rank is seen at work."""
    last = {} if liveness.shown_at_work(case) else dict(_last_lines(case))
    form = usual(forms[-1] for forms, _ in last.values())
    most = [own for own in last.values() if own[0][-1] == form]
    others = {rank: own for rank, own in last.items() if own[0][-1] != form}
    behind = {rank: own for rank, own in others.items() if any(own[0][-1] in forms for forms, _ in most)}
    few = behind or (others if len(others) < len(most) else {})
    if not few or len(few) > len(most):
        return None
    return _stopped(case, tuple(sorted(few)), next(iter(few.values()))[1], most[0][1])


def _last_lines(case: Case) -> Iterator[tuple[int, tuple[list[str], Event]]]:
    """The forms of the lines of each rank that has some of its own, in their order, and the last line."""
    for rank, own in case.by_rank.items():
        ends = [e for e in own if e.kind == "line" and e.fields.get("last")]
        if ends:
            e = max(ends, key=lambda e: (len(e.fields.get("once", ())), e.line))
            printed = [*(text for _, text, _ in e.fields.get("once", ())), e.text]
            yield rank, ([shape(text) for text in printed], e)


def _begun(case: Case) -> Reached | None:
    """The last line of a log that begins something: an evaluation, a checkpoint, a compilation. A bar that grew is under
    way."""
    works = [e for e in case.of_kind("worked") if e.where.source not in case.beside]
    done = {source: max(e.line for e in own) for source, own in grouped((e.where.source, e) for e in works).items()}
    found = [
        e
        for e in _last_of_logs(case)
        if _REGEXES["begins"].search(message(e.text, len(e.text)))
        and e.line >= done.get(e.where.source, 0) + liveness.is_bar(e)
    ]
    busy = done.keys() - {e.where.source for e in found}
    if not found or len(busy) >= len(found):
        return None  # the work was complete, or goes on elsewhere
    e = max(found, key=lambda e: (e.at or 0.0, e.where.source))
    text = f"The log stops at `{_doing(e)}`{_after_step(case)}{_elsewhere(case, e)}"
    return Reached(text, _phase(case), (), tuple(found[:SHOWN]))


def _elsewhere(case: Case, begun: Event) -> str:
    """The last line of the ranks that did not begin it, where each rank has one."""
    last = standstill.last_lines(case)
    others = [e for e in last if shape(e.text) != shape(begun.text)]
    one_each = len(last) == len(case.ranks_of(last)) > len(others)
    if not one_each or len({shape(e.text) for e in others}) != 1:
        return ""
    return f"; the last line of {ranks_text(case.ranks_of(others))} is `{_doing(others[0])}`"


def _apart(case: Case) -> Reached | None:
    """The one rank that ended with a line of its own, where all others went on to the same one."""
    last = standstill.last_lines(case)
    lone = standstill.apart(case, last)
    if lone is None:
        return None
    other = next(e for e in last if shape(e.text) != shape(lone.text))
    return _stopped(case, tuple(case.ranks_of([lone])), lone, other)


def _stopped(case: Case, ranks: tuple[int, ...], at: Event, others: Event) -> Reached:
    text = f"{capital(ranks_text(ranks))} stopped at `{_doing(at)}`; the last line of the others is `{_doing(others)}`"
    return Reached(text, _phase(case), ranks, (at, others))


def _quiet(case: Case) -> Reached | None:
    """A log that others still write to, long after the last sign of work: a watcher of the queue, retries."""
    for source in case.at_work:
        done = max((e for e in case.by_source[source] if e.kind == "worked"), key=lambda e: e.line, default=None)
        later = [e for e in case.by_source[source] if done and e.below(done) and e.raw_time and e.kind in QUIET]
        times = [e.at for e in later if e.at is not None]
        if done and times and QUIET_S <= (silence := max(times) - min(times)) < MONTH_S:
            text = f"No rank reports progress in the last {duration(silence)} of the log{_after_step(case)}"
            return Reached(text, "hang", (), (done, max(later, key=lambda e: e.line)))
    return None


def _never_worked(case: Case) -> Reached | None:
    """A job without any sign of work: the last line of all."""
    ends = _last_of_logs(case)
    launched = case.registry.ranks or case.registry.world or any(s.kind == "agent" for s in case.sources.values())
    if liveness.is_alive(case) or not launched or not ends:
        return None
    e = max(ends, key=lambda e: (e.at or 0.0, e.line))
    text = f"No rank reports a step; the last line is `{_doing(e)}`"
    return Reached(text, "rendezvous", (), (e,))


def _last_of_logs(case: Case) -> list[Event]:
    """The last ordinary line of each log, or the progress bar below it that has not moved yet."""
    found: dict[str, Event] = {}
    for e in case.of_kind("progress"):
        if e.source_kind in RANK_LOGS and _REGEXES["bar-at-zero"].search(e.text):
            found[e.where.source] = e
    for e in case.of_kind("line"):
        if e.fields.get("last") and e.source_kind in (*RANK_LOGS, "agent") and e.where.source not in case.beside:
            line, text = e.fields.get("final", (e.line, e.text))
            own = e._replace(
                where=e.where._replace(line=line, file_line=None if line != e.line else e.where.file_line), text=text
            )
            found[e.where.source] = max(found.get(e.where.source, own), own, key=lambda e: e.line)
    return list(found.values())


def _doing(e: Event) -> str:
    """The message of a line; of a progress bar its name and how far it is."""
    if m := _REGEXES["bar-at"].search(e.text):
        return f"{m['what'].strip()} {m['percent']} %"
    return message(e.text)


def _after_step(case: Case) -> str:
    """The last step, where steps were counted: `batch=32` among the arguments is none, nor are the examples of a map."""
    counted = (e for e in case.of_kind("progress") if not _REGEXES["bar-of-data"].search(e.text))
    steps = {e.fields["step"] for e in counted if "step" in e.fields}
    return f", after step {max(steps)}" if len(steps) > 1 else ""


def _phase(case: Case) -> str:
    """A wait before the first step is one of the start."""
    return "hang" if case.of_kind("progress") or liveness.shown_at_work(case) else "rendezvous"


STEPS: Sequence[Callable[[Case], Reached | None]] = (
    announced,
    _communicators,
    _behind,
    _begun,
    _apart,
    _quiet,
    _never_worked,
)
