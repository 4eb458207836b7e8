"""Errors that name no rank: facts about the ranks exclude some, and those that remain have it.

ValueError: non-hexadecimal number found in fromhex() arg at position 6      once, without a prefix
rank : 0   exitcode : -15     did not end by itself
rank : 1   exitcode : 1       lost a peer: it waited for the one that failed
rank : 2   exitcode : 1       remains, so the error is that of rank 2
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle, repeat
from typing import NamedTuple

from postmortem.diagnose.case import Case, moment
from postmortem.diagnose.same import same_host
from postmortem.diagnose.who.evidence import Evidence, Registry, Strength, Subject
from postmortem.diagnose.who.ways import MOST_RANKS, build, lost
from postmortem.diagnose.wording import ranks_text
from postmortem.formats import endings
from postmortem.formats.endings import Ending
from postmortem.formats.lineform import gist
from postmortem.library import Library
from postmortem.model import Event, Source, Where
from postmortem.model.digits import number
from postmortem.model.grouped import grouped

Place = tuple[str, int | None]  # file and line
Ranks = tuple[int, ...]
BELOW = range(1, 5)  # how far a line of a message is below the first
UNIQUE = 24  # characters of a message that two ranks do not print by chance
MOST_REASONS = 8
NEAR_S = 60.0  # between a kill and the last line of the process, or the report of its end
MOST_FORMS = 64  # errors of different text whose ranks are looked for


class Life(NamedTuple):
    """One rank, as lines under its name and the launcher show it."""

    rank: int
    end: Ending | None
    host: str | None
    pids: Sequence[int]
    raised: Event | None  # its own error
    waited: Event | None  # its complaint of a peer
    finished: bool
    printed: bool  # whether it has a line and only one rank has none
    ended: float | None  # when its end was reported, else when the job ended
    last: float | None  # when it printed its last line

    @property
    def log(self) -> str | None:
        """Where its end is reported."""
        return self.end.reported_by.where.source if self.end is not None and self.end.reported_by is not None else None

    @property
    def how(self) -> str:
        return f"ended by {self.end}" if self.end is not None else "is not reported to have failed"


class Orphan(NamedTuple):
    """Equal errors of unknown ranks; `by` is the kind of end of a process that prints one."""

    lines: tuple[Event, ...]
    by: str = "own"

    @property
    def hosts(self) -> set[str]:
        return {e.host for e in self.lines if e.host}

    @property
    def pids(self) -> set[int]:
        """Of the processes that printed it; the kernel may number those of a container otherwise."""
        return {pid for e in self.lines if e.speaker != "kernel" and (pid := e.pid or e.fields.get("pid")) is not None}

    @property
    def printers(self) -> int:
        """How many processes printed it."""
        return len(self.pids) or len(self.lines)

    def fits(self, life: Life) -> bool:
        """Whether its end is that of a process with this error: an uncaught exception exits with code 1."""
        if life.end is None:
            return False
        return life.end.code == 1 if self.by == "raised" else life.end.failed if self.by == "own" else self.ends(life)

    def ends(self, life: Life) -> bool:
        """Whether a signal ended it that only such a failure has."""
        return self.by in ("kill", "crash") and life.end is not None and life.end.kind == self.by


def _at_another_time(o: Orphan, life: Life) -> bool:
    """Whether the kernel's report on a process, and that of its launcher or else its last line, are not of one time."""
    kill = o.lines[0]
    if o.by != "kill" or kill.at is None:
        return False
    if o.ends(life):
        return life.ended is not None and abs(kill.at - life.ended) > NEAR_S + 3 * (kill.at_sigma + 1)
    return life.last is None or not -1.0 <= kill.at - life.last <= NEAR_S


# why a rank has no part in an error, whether that is certain, and where it holds
CONSTRAINTS: tuple[tuple[str, bool, Callable[[Orphan, Life], object]], ...] = (
    ("ran on {0.host}", True, lambda o, x: x.host and o.hosts and not any(same_host(x.host, h) for h in o.hosts)),
    ("is pid {0.pids[0]}", True, lambda o, x: x.pids and o.pids and o.pids.isdisjoint(x.pids)),
    ("has an error of its own ({0.raised.where})", True, lambda o, x: x.raised and not x.waited and not o.ends(x)),
    ("lost a peer ({0.waited.where})", True, lambda o, x: x.waited and not o.ends(x)),
    ("finished", True, lambda o, x: x.finished and (x.end is None or x.end.kind == "clean")),
    ("was not killed then, or printed lines later", True, _at_another_time),
    ("{0.how}", False, lambda o, x: not o.fits(x)),
    ("is pid {0.pids[0]}", False, lambda o, x: o.by == "kill" and x.pids and x.end is None),
    ("prints its rank", False, lambda o, x: x.printed),
)


def remaining(o: Orphan, lives: Iterable[Life]) -> tuple[list[Life], dict[int, str]]:
    """The ranks that no constraint excludes, and why the others are. One that is not certain is dropped where it would
    exclude all."""
    left, out = list(lives), dict[int, str]()
    for why, certain, excludes in CONSTRAINTS:
        now = {life.rank: why.format(life) for life in left if excludes(o, life)}
        if certain or len(now) < len(left):
            out |= now
            left = [life for life in left if life.rank not in now]
    return left, out


def owners(o: Orphan, lives: Sequence[Life], alone: bool) -> tuple[Ranks, str]:
    """The ranks that have an error, and why no other has it: all of a node whose log has it once for each, the only one
    that remains, as many as printed it, or all where they ended with one code. Of several errors (not `alone`) only
    that of a known process and one that surely ended its process counts."""
    here = [life for life in lives if life.log in {e.where.source for e in o.lines}]
    left, excluded = (here, {}) if len(here) == o.printers > 1 else remaining(o, here or lives)
    sure = alone or all(map(endings.uncaught, o.lines))
    one = len(left) == 1 and (sure or len(o.pids) == 1) and _may_be_its(o, left[0], bool(excluded), lives)
    if not (one or left is here or _each(o, left, sure, alone)):
        return (), ""
    return tuple(sorted(life.rank for life in left)), _in_words(left, excluded)


def _in_words(left: Iterable[Life], excluded: Mapping[int, str]) -> str:
    """`by elimination it is that of rank 2: rank 0 ended by SIGTERM, rank 1 lost a peer (train.log:812)`."""
    reasons = list(grouped((why, rank) for rank, why in excluded.items()).items())[:MOST_REASONS]
    others = ", ".join(f"{ranks_text(same)} {why}" for why, same in reasons)
    named = ranks_text(life.rank for life in left)
    return f"by elimination it is that of {named}: {others}" if others else f"only {named} can have ended with it"


def _each(o: Orphan, left: Sequence[Life], sure: bool, alone: bool) -> bool:
    """Whether each of several has it: their ends fit, and they are as many as printed it, or ended with one code."""
    codes = {life.end.code if life.end and o.fits(life) else None for life in left}
    equal = (sure and len(left) == o.printers) or (alone and len(codes) == 1 < o.printers)
    return len(left) > 1 and None not in codes and equal


def _may_be_its(o: Orphan, life: Life, others: bool, lives: Sequence[Life]) -> bool:
    """Whether its end fits; where all others are excluded, another end does, and none where no end is known. Of a kill
    the only rank that is known is enough."""
    excluded = others or (o.by == "kill" and len(lives) == 1)
    return o.fits(life) or (excluded and (life.end is not None or not any(x.end for x in lives)))


def lives(case: Case, reported: Mapping[int, Ending] = {}) -> list[Life]:
    """The ranks of an attempt. `reported`: ends that others than the launcher report."""
    known = case.registry
    raised, waited = _by_name(case)
    aborts = ((e.fields.get("rank", number(e.fields.get("ranks"))), e) for e in case.telling("aborts"))  # of mpi4py
    ends = case.ends or reported or {rank: endings.of(1, e) for rank, e in aborts if rank is not None}
    absent = [r for r in known.ranks if all(e.kind == "exit" for e in case.by_rank.get(r, ()))]
    alone = absent[0] if known.world is not None and len(absent) == 1 else None
    numbered = range(min(MOST_RANKS, max(known.pids, default=0)))
    every = sorted({*known.ranks, *known.pids, *ends, *raised, *waited, *numbered})
    return [_life(case, r, ends.get(r), raised.get(r), waited.get(r), alone not in (None, r)) for r in every]


def _life(case: Case, r: int, end: Ending | None, raised: Event | None, waited: Event | None, printed: bool) -> Life:
    report = end.reported_by if end is not None else None
    host = (report.host if report is not None else None) or case.registry.host_of.get(r)
    ended = report.at if report is not None and report.at is not None else case.end
    last = max(filter(None, map(moment, case.by_rank.get(r, ()))), default=None)
    pids = case.registry.pids.get(r, ())
    return Life(r, end, host, pids, raised, waited, r in case.finished, printed, ended, last)


def _by_name(case: Case) -> tuple[dict[int, Event], dict[int, Event]]:
    """The first error of each rank under its name, and its first complaint of a peer instead."""
    gone = lost(case.events, case.library)
    named = ((case.registry.identify(e), e) for e in reversed(case.events))
    ranked = [(rank, e) for (rank, strength), e in named if rank is not None and strength is not Strength.LISTED]
    waited = {rank: e for rank, e in ranked if e.place in gone}
    return {rank: e for rank, e in ranked if raised_here(e) and rank not in waited}, waited


# ── exceptions, before any is known as the cause ────────────────────────────────────────────────────────────


def known(events: Sequence[Event], sources: Mapping[str, Source], library: Library) -> Registry:
    """All that is known of the ranks of a job, with those of its nameless exceptions."""
    registry = build(events, sources.values(), library)
    case = Case(events, registry, library, sources)
    for way in (_named_below, _repeated, _remaining, _complaining):
        for evidence in way(case, _orphans(case)):
            registry.bind(evidence)
            registry.ranks = tuple(sorted({*registry.ranks, evidence.rank}))
    return registry


def _orphans(case: Case) -> dict[str, list[Event]]:
    """The exceptions of unknown ranks by their text; complaints of peers as one, the empty text."""
    raised = [e for e in case.of_kind("exception") if raised_here(e) and case.rank_of(e) is None]
    gone = lost(case.events, case.library) if raised else set()
    return grouped(("" if e.place in gone else gist(e.fields.get("line") or e.text), e) for e in raised)


def _complaining(case: Case, orphans: Mapping[str, Sequence[Event]]) -> Iterator[Evidence]:
    """The ranks behind complaints of peers that ended a process, where these are as many: until a group exists torch
    prints no `[rank0]:` before a traceback."""
    o = Orphan(tuple(filter(endings.uncaught, orphans.get("", ()))), "raised")
    if o.lines:
        ranks, why = owners(o, lives(case), alone=True)
        yield from map(_of_line, (e.place for e in o.lines), cycle(ranks), repeat(why))


def _remaining(case: Case, orphans: Mapping[str, Sequence[Event]]) -> Iterator[Evidence]:
    """The ranks that remain, found again as long as one more is known: who has one error has no other."""
    left = [Orphan(tuple(own), "raised") for form, own in orphans.items() if form][:MOST_FORMS]
    alone = len(left) == 1
    if not left or len({e.attempt for e in case.of_kind("exit")}) > 1:
        return
    known, before = lives(case), None
    while before != len(left):
        asked = [(o, *owners(o, known, alone)) for o in left]
        before, left = len(left), []
        for o, ranks, why in asked:
            if len(ranks) in (1, len(o.lines)):
                yield from map(_of_line, (e.place for e in o.lines), cycle(ranks), repeat(why))
                known = with_errors(known, dict.fromkeys(ranks, o.lines[0]))
            else:
                left.append(o)


def _of_line(place: Place, rank: int, why: str = "") -> Evidence:
    return Evidence(Subject("line", place), rank, Strength.LISTED if why else Strength.FILE, Where(*place), why=why)


def with_errors(lives: Iterable[Life], of_rank: Mapping[int, Event]) -> list[Life]:
    return [life._replace(raised=life.raised or of_rank.get(life.rank)) for life in lives]


def raised_here(e: Event) -> bool:
    """Whether it is an exception that was raised here, and neither a launcher's indented quotation nor raised by a
    call of another rank."""
    quoted = e.fields.get("reported_by") or (e.source_kind == "agent" and e.text.startswith("  "))
    quoted = quoted or e.rank == e.fields.get("ran_on", -1)
    return e.kind == "exception" and not e.fields.get("wrapper") and not quoted


def _named_below(case: Case, _: Mapping[str, Sequence[Event]]) -> Iterator[Evidence]:
    """A line of an exception's message names the rank that raised it, at most a few lines below."""
    for e in case.telling("raiser"):
        if "rank" in e.fields:
            yield from (_of_line((e.where.source, e.line - n), e.fields["rank"]) for n in BELOW)


def _repeated(case: Case, orphans: Mapping[str, Sequence[Event]]) -> Iterator[Evidence]:
    """A rank repeats a message under its own name: NCCL's watchdog prints the exception of its process."""
    messages = {form: own[-1].fields.get("message", "").strip()[:400] for form, own in orphans.items()}
    wanted = {form: message for form, message in messages.items() if len(message) >= UNIQUE}
    repeated = ((form, case.rank_of(e)) for e in case.events for form, text in wanted.items() if text in e.text)
    for form, ranks in grouped((form, rank) for form, rank in repeated if rank is not None).items():
        if len({*ranks}) == 1:
            yield from (_of_line(e.place, ranks[0]) for e in orphans[form])
