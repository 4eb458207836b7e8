"""Whose an error is that names no rank: what is known of the ranks excludes some, and those that remain have it.

ValueError: non-hexadecimal number found in fromhex() arg at position 6      once, without a prefix
rank : 0   exitcode : -15     did not end by itself
rank : 1   exitcode : 1       lost a peer: it waited for the one that failed
rank : 2   exitcode : 1       remains, so the error is that of rank 2
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from postmortem.diagnose import endings, liveness
from postmortem.diagnose.case import Case, moment
from postmortem.diagnose.endings import Ending
from postmortem.diagnose.grouped import grouped
from postmortem.diagnose.same import same_host
from postmortem.diagnose.who.identity import MOST, Registry, Strength, build, lost
from postmortem.diagnose.wording import ranks_text
from postmortem.formats.lineform import gist
from postmortem.library import Library
from postmortem.model import Event, Source
from postmortem.model.digits import number

Place = tuple[str, int | None]  # file and line
Ranks = tuple[int, ...]
BELOW = range(1, 5)  # how far a line of a message is below the first
UNIQUE = 24  # characters of a message that two ranks do not print by chance
MOST_REASONS = 8
NEAR_S = 60.0  # between a kill and the last line of the process, or the report of its end
MOST_FORMS = 64  # errors of different text whose ranks are looked for


@dataclass(frozen=True, slots=True)
class Life:
    """One rank, and what lines under its name or a launcher show of it."""

    rank: int
    end: Ending | None = None
    host: str | None = None
    pids: Sequence[int] = ()
    raised: Event | None = None  # its own error
    waited: Event | None = None  # its complaint of a peer
    finished: bool = False
    ended: float | None = None  # when its end was reported, else when the job ended
    last: float | None = None  # when it printed its last line
    printed: bool = True  # whether it has a line


class Orphan(NamedTuple):
    """Equal errors of unknown ranks; `by` is the kind of end of a process that prints one."""

    lines: tuple[Event, ...]
    by: str = "own"

    @property
    def pids(self) -> set[int]:
        """Of the processes that printed it; the kernel may number those of a container otherwise."""
        return {pid for e in self.lines if e.speaker != "kernel" and (pid := e.pid or e.fields.get("pid")) is not None}

    @property
    def logs(self) -> set[str]:
        return {e.where.source for e in self.lines}

    @property
    def printers(self) -> int:
        """How many processes printed it."""
        return len(self.pids) or len(self.lines)


class Remaining(NamedTuple):
    """The ranks that may have an error, and why the others do not."""

    lives: list[Life]
    excluded: dict[int, str]


# ── constraints ─────────────────────────────────────────────────────────────────────────────────────────────


def _elsewhere(o: Orphan, life: Life) -> str:
    host = (life.end and life.end.stated_by and life.end.stated_by.host) or life.host
    known = {e.host for e in o.lines if e.host}
    return f"ran on {host}" if host and known and not any(same_host(host, h) for h in known) else ""


def _another_process(o: Orphan, life: Life) -> str:
    known = life.pids and o.pids.isdisjoint(life.pids)
    return f"is pid {life.pids[0]}" if o.pids and known else ""


def _raised_another(o: Orphan, life: Life) -> str:
    own = life.raised if life.waited is None and not _ended_so(o, life) else None
    return f"has an error of its own ({own.where})" if own is not None else ""


def _waited(o: Orphan, life: Life) -> str:
    return "" if life.waited is None or _ended_so(o, life) else f"lost a peer ({life.waited.where})"


def _finished(o: Orphan, life: Life) -> str:
    return "finished" if life.finished and (life.end is None or life.end.kind == "clean") else ""


def _at_another_time(o: Orphan, life: Life) -> str:
    """The kernel's report, that of the launcher and the last line of a killed process are of about one time."""
    kill = o.lines[0]
    if o.by != "kill" or kill.at is None:
        return ""
    if _fits(o, life.end):
        near = life.ended is None or abs(kill.at - life.ended) <= NEAR_S + 3 * (kill.at_sigma + 1)
        return "" if near else "was killed at another time"
    if life.last is not None and -1.0 <= kill.at - life.last <= NEAR_S:
        return ""
    return "printed a line later" if life.last and life.last > kill.at else "had printed nothing for long"


def _ended_otherwise(o: Orphan, life: Life) -> str:
    if _fits(o, life.end):
        return ""
    return f"ended by {life.end}" if life.end is not None else "is not reported to have failed"


def _ended_so(o: Orphan, life: Life) -> bool:
    """Whether a signal ended it that only such a failure has."""
    return o.by in ("kill", "crash") and _fits(o, life.end)


def _fits(o: Orphan, end: Ending | None) -> bool:
    """Whether a process with this end may have printed the error: an uncaught exception exits with code 1."""
    if end is None:
        return False
    return end.code == 1 if o.by == "raised" else end.kind == o.by if o.by != "own" else end.failed


def _known_process(o: Orphan, life: Life) -> str:
    return f"is pid {life.pids[0]}" if o.by == "kill" and life.pids and life.end is None else ""


def _printed(o: Orphan, life: Life) -> str:
    return "prints its rank" if life.printed else ""


CONSTRAINTS: tuple[tuple[Callable[[Orphan, Life], str], bool], ...] = (
    (_elsewhere, True),
    (_another_process, True),
    (_raised_another, True),
    (_waited, True),
    (_finished, True),
    (_at_another_time, True),
    (_ended_otherwise, False),
    (_known_process, False),
    (_printed, False),
)


def remaining(o: Orphan, lives: Iterable[Life]) -> Remaining:
    """Those that no constraint excludes. One that is not certain (False) is dropped where it would exclude all."""
    left, out = list(lives), dict[int, str]()
    for forbids, certain in CONSTRAINTS:
        now = {life.rank: why for life in left if (why := forbids(o, life))}
        if certain or len(now) < len(left):
            out |= now
            left = [life for life in left if life.rank not in now]
    return Remaining(left, out)


def owners(o: Orphan, lives: Sequence[Life], alone: bool) -> tuple[Ranks, dict[int, str]]:
    """The ranks that have an error, and why no other has it: all of a node whose log has it once for each, the only one
    that remains, as many as printed it, or all where they ended with one code. Of several errors (not `alone`) only
    that of a known process and what surely ended one counts."""
    here = [life for life in lives if life.end and life.end.stated_by and life.end.stated_by.where.source in o.logs]
    if len(here) == o.printers > 1:
        return _ranks(here), {}
    left, excluded = remaining(o, here or lives)
    sure = alone or all(map(liveness.uncaught, o.lines))
    one = len(left) == 1 and (sure or len(o.pids) == 1) and _may_be_its(o, left[0], bool(excluded), lives)
    return (_ranks(left), excluded) if one or _each(o, left, sure, alone) else ((), {})


def _each(o: Orphan, left: Sequence[Life], sure: bool, alone: bool) -> bool:
    """Whether each of several has it: their ends fit, and they are as many as printed it, or ended with one code."""
    codes = {life.end.code if life.end and _fits(o, life.end) else None for life in left}
    equal = (sure and len(left) == o.printers) or (alone and len(codes) == 1 < o.printers)
    return len(left) > 1 and None not in codes and equal


def _may_be_its(o: Orphan, life: Life, others: bool, lives: Sequence[Life]) -> bool:
    """Whether its end fits; where all others are excluded, another end does, and none where no end is known. Of a kill
    the only rank that is known is enough."""
    excluded = others or (o.by == "kill" and len(lives) == 1)
    return _fits(o, life.end) or (excluded and (life.end is not None or not any(x.end for x in lives)))


def _ranks(lives: Iterable[Life]) -> Ranks:
    return tuple(sorted(life.rank for life in lives))


def lives(case: Case, reported: Mapping[int, Ending] = {}) -> list[Life]:
    """The ranks of an attempt. `reported`: ends that others than the launcher report."""
    ends = case.ends or reported or _aborted(case)
    raised, waited = _by_name(case)
    absent = {r for r in case.registry.ranks if not any(e.kind != "exit" for e in case.by_rank.get(r, ()))}
    printed = case.registry.world is not None and len(absent) == 1
    known = case.registry
    numbered = range(min(MOST, max(known.pids, default=0)))
    return [
        Life(
            rank=r,
            end=ends.get(r),
            host=known.host_of.get(r),
            pids=known.pids.get(r, ()),
            raised=raised.get(r),
            waited=waited.get(r),
            finished=r in case.finished,
            ended=end.stated_by.at
            if (end := ends.get(r)) and end.stated_by and end.stated_by.at is not None
            else case.end,
            last=max(filter(None, map(moment, case.by_rank.get(r, ()))), default=None),
            printed=printed and r not in absent,
        )
        for r in sorted({*known.ranks, *known.pids, *ends, *raised, *waited, *numbered})
    ]


def _by_name(case: Case) -> tuple[dict[int, Event], dict[int, Event]]:
    """The ranks with an error under their name, and those that lost a peer, each with the line."""
    gone = lost(case.events, case.library)
    known = ((case.registry.identify(e), e) for e in case.events)
    ranked = [(rank, e) for (rank, strength), e in known if rank is not None and strength is not Strength.LISTED]
    waited = {rank: e for rank, e in reversed(ranked) if e.place in gone}
    return {rank: e for rank, e in reversed(ranked) if raised_here(e) and rank not in waited}, waited


def _aborted(case: Case) -> dict[int, Ending]:
    """The ranks for which mpi4py aborts the job, as if they had exited with code 1."""
    named = ((e.fields.get("rank", number(e.fields.get("ranks"))), e) for e in case.telling("aborts"))
    return {rank: endings.of(1, e) for rank, e in named if rank is not None}


def in_words(ranks: Ranks, excluded: Mapping[int, str]) -> str:
    """`by elimination it is that of rank 2: rank 0 ended by SIGTERM, rank 1 lost a peer (train.log:812)`."""
    reasons = grouped((why, rank) for rank, why in excluded.items())
    others = ", ".join(f"{ranks_text(same)} {why}" for why, same in list(reasons.items())[:MOST_REASONS])
    return f"by elimination it is that of {ranks_text(ranks)}" + (f": {others}" if others else "")


# ── exceptions, before any is known as the cause ────────────────────────────────────────────────────────────


def known(events: Sequence[Event], sources: Mapping[str, Source], library: Library) -> Registry:
    """The joins of a job, with the ranks of its nameless exceptions."""
    registry = build(events, sources.values(), library)
    case = Case(events, registry, library, sources)
    registry.by_place = _named_below(case)
    orphans: dict[str, list[Event]] = defaultdict(list)
    gone = lost(events, library)
    for e in filter(raised_here, events):
        if case.rank_of(e) is None and e.place not in gone:
            orphans[gist(e.fields.get("line") or e.text)].append(e)
    if orphans:
        repeated = _repeated_with_a_rank(case, orphans)
        found = {e.place: rank for form, rank in repeated.items() for e in orphans[form]}
        registry.by_place = {**registry.by_place, **found}
        if len({e.attempt for e in case.of_kind("exit")}) < 2:
            first = {rank: orphans[form][0] for form, rank in repeated.items()}
            left = [Orphan(tuple(own), "raised") for form, own in orphans.items() if form not in repeated]
            registry.by_place |= _eliminated(left, with_errors(lives(case), first))
    registry.ranks = tuple(sorted({*registry.ranks, *registry.by_place.values()}))
    return registry


def _eliminated(orphans: Sequence[Orphan], known: Sequence[Life]) -> dict[Place, int]:
    """The ranks of the lines, found again as long as one more is known: who has one error has no other."""
    found: dict[Place, int] = {}
    left, alone = list(orphans[:MOST_FORMS]), len(orphans) == 1
    while left:
        now = [(o, ranks) for o in left if (ranks := owners(o, known, alone)[0]) and len(ranks) in (1, len(o.lines))]
        if not now:
            break
        for o, ranks in now:
            found |= zip((e.place for e in o.lines), ranks * (len(o.lines) // len(ranks)), strict=True)
        known = with_errors(known, {rank: o.lines[0] for o, ranks in now for rank in ranks})
        left = [o for o in left if all(o is not other for other, _ in now)]
    return found


def with_errors(lives: Iterable[Life], of_rank: Mapping[int, Event]) -> list[Life]:
    return [replace(life, raised=life.raised or of_rank.get(life.rank)) for life in lives]


def raised_here(e: Event) -> bool:
    """Whether it is an exception that was raised here, and no launcher's indented quotation."""
    quoted = e.fields.get("reported_by") or (e.source_kind == "agent" and e.text.startswith("  "))
    return e.kind == "exception" and not e.fields.get("wrapper") and not quoted


def _named_below(case: Case) -> dict[Place, int]:
    """The places above a line of an exception's message that names the rank that raised it."""
    lines = [e for e in case.telling("raiser") if "rank" in e.fields]
    return {(e.where.source, e.line - n): e.fields["rank"] for e in lines for n in BELOW}


def _repeated_with_a_rank(case: Case, orphans: Mapping[str, Sequence[Event]]) -> dict[str, int]:
    """The rank that repeats a message under its own name: NCCL's watchdog prints the exception of its process."""
    messages = {form: own[-1].fields.get("message", "").strip()[:400] for form, own in orphans.items()}
    wanted = {form: message for form, message in messages.items() if len(message) >= UNIQUE}
    repeated = ((form, case.rank_of(e)) for e in case.events for form, text in wanted.items() if text in e.text)
    speakers = grouped((form, rank) for form, rank in repeated if rank is not None)
    return {form: ranks[0] for form, ranks in speakers.items() if len({*ranks}) == 1}
