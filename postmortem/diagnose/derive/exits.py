"""What exit codes prove: claims about ranks whose end only the launcher saw.

exitcode  : -9 (pid: 32688)  (SIGKILL)      killed from outside; host OOM only with the kernel's word
exitcode  : -11 (pid: 743)   (SIGSEGV)      crashed, even if nothing was printed
exitcode  : 3 (pid: 32513)                  left by itself and did not say why
exitcode  : -15                             stopped by the launcher, a victim; where it says whom it stopped, and not this one: from outside
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from postmortem.diagnose import endings, life, order
from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.endings import Ending
from postmortem.diagnose.order import surely_before
from postmortem.model import Event
from postmortem.model.digits import number

PATTERNS = {
    "kill": "rank-exit-sigkill",
    "crash": "rank-exit-crash-signal",
    "limit": "rank-exit-cpu-limit",
    "stop": "rank-exit-signalled",
    "own": "rank-exit-without-reason",
}
PATIENCE_S = 25.0  # torchrun kills what did not obey SIGTERM within 30 s


def derive(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """Claims from exit codes for ranks that nothing else accounts for."""
    caused = {r for c in claims if c.role == "cause" for r in c.ranks}
    explained = _explained(case, claims)
    explained |= _without_a_name(case, claims, explained | caused)
    found = []
    for rank, end in sorted(case.ends.items()):
        if rank not in caused and end.told_by is not None and _speaks(case, rank, end, rank in explained):
            found += _ended(case, rank, end)
    return [_weighed(case, c, found) for c in found] or told(case, claims)


def _weighed(case: Case, c: Claim, found: Sequence[Claim]) -> Claim:
    """An end follows from another rank's that surely came before it; and who stood in a collective when it
    left waited for somebody else, and only tells of it."""
    if any(surely_before(other, c) for other in found if other is not c):
        return replace(c, role="symptom")
    if c.pattern.id == PATTERNS["own"] and any(_in_collective(e) for e in case.by_rank.get(c.ranks[0], [])):
        return replace(c, role="symptom", because=f"{c.because}; its stack shows that it waited in a collective")
    return c


def _in_collective(e: Event) -> bool:
    return e.kind == "stack" and bool(e.fields.get("collective"))


def _explained(case: Case, claims: Sequence[Claim]) -> set[int]:
    """Ranks of whose end something other than a launcher tells."""
    found: set[int] = set()
    for c in claims:
        # the sound of SIGABRT alone: gloo's threads end so when their peers leave, and after a goodbye it is
        # a crash
        if not c.accuses or c.speaker == "launcher" or c.tells("end") or c.pattern.severity == "warning":
            continue
        found |= {*c.ranks} | case.ranks_of(c.events)
    return found


def _without_a_name(case: Case, claims: Sequence[Claim], known: set[int]) -> set[int]:
    """Further ranks of whose end a line tells that names none: of one kind there are no more ends than such
    lines."""
    own = {r for r in case.ended("own") if case.ends[r].code == 1} - known
    aborted = {r for r in case.ended("crash") if case.ends[r].signal == "SIGABRT"} - known
    raised = own if len(own) <= _nameless(case, claims) else set()
    return raised | (aborted if len(aborted) <= _aborting(case, claims) else set())


def _nameless(case: Case, claims: Sequence[Claim]) -> int:
    """How many processes died of an exception before they had a group: until then torch puts no `[rank0]:`
    before a traceback, so on a common console nobody knows whose it is."""
    early = [c for c in claims if c.accuses and c.pattern.category == "rendezvous"]
    known = {(e.where.source, e.where.line) for c in early for e in c.events}
    raised = [e for e in case.of_kind("exception") if case.rank_of(e) is None and life.uncaught(e)]
    return sum(1 for e in raised if (e.where.source, e.where.line) in known)


def _aborting(case: Case, claims: Sequence[Claim]) -> int:
    """How many processes without a name aborted on an exception whose message, right below, is a complaint
    of others: before torch 2.2 the watchdog's words have no `[rank0]:`."""
    below = {(c.event.where.source, (c.event.where.line or 0) - 1) for c in claims if c.role == "symptom"}
    said = [e for c in claims if c.role == "symptom" for e in c.events if "terminate called after" in e.text]
    return sum(1 for e in said if case.rank_of(e) is None and (e.where.source, e.where.line) in below)


def _speaks(case: Case, rank: int, end: Ending, explained: bool) -> bool:
    """Whether this end, by itself, accuses its rank or somebody outside."""
    if end.kind in ("kill", "limit"):
        return end.kind == "limit" or not _forced(case, end)
    if end.kind == "stop":
        return _unasked(case, end)
    if end.kind == "own" and end.told_by is not None and end.told_by.fields.get("told_by") == "script":
        explained = explained or _may_have_raised(case, rank)
    return not explained and end.kind in ("crash", "own")


def _may_have_raised(case: Case, rank: int) -> bool:
    """Whether a traceback is this rank's, or nobody's: a script tells of every rank that fails, also of those
    that say why."""
    raised = case.of_kind("exception")
    return any(case.rank_of(e) in (rank, None) for e in raised)


def _ended(case: Case, rank: int, end: Ending) -> list[Claim]:
    assert end.told_by is not None
    event = end.told_by
    host = event.host or case.registry.host_of.get(rank)
    counters = _counters(case, host) if end.kind == "kill" and len(case.ended("kill")) == 1 else []
    pattern = case.library.get("rank-killed-in-full-cgroup" if counters else PATTERNS[end.kind])
    if pattern is None:
        return []
    return [
        Claim(
            pattern,
            pattern.role,
            (*counters[:1], event),
            (rank,),
            (host,) if host else (),
            (),
            (event.pid,) if event.pid else (),
            case.attempt,
            f"the launcher reported {end} for rank {rank}",
            pattern.strength,
        )
    ]


def told(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """The end of a process of which a launcher, a shell or a container tells, where nothing in the logs
    accounts for it.

    [ERROR] [launch.py:434:sigkill_handler] ['python', '-u', 'main.py'] exits with return code = -9
    Exception: process 0 terminated with signal SIGKILL
    """
    if any(c.role == "cause" for c in claims) or case.all_finished:
        return []
    claims = [c for c in claims if not (_outlived(case, c) or _after_the_job(case, c))]
    accused = _accused(claims)
    for c in claims:
        end = endings.told(c.event) if c.tells("end") else None
        if end is not None and end.kind != "clean" and _unaccounted(case, c, end, accused[c.pattern.generic]):
            return _told(case, c, end)
    return _lost(case, claims)


def _accused(claims: Sequence[Claim]) -> dict[bool, list[Claim]]:
    """The complaints that account for an end; for one of which only the whole job's code is told (True), also
    those that only stand for a kind of failure."""
    told = [c for c in claims if c.role == "symptom" and c.speaker != "kernel" and _of_a_kind(c)]
    return {True: told, False: [c for c in told if c.pattern.category]}


def _of_a_kind(c: Claim) -> bool:
    """Whether a complaint says what kind of failure it follows from, and not only that something failed."""
    return bool(c.pattern.category) or c.pattern.stands_for not in ("", "python-exception")


def _lost(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """Who looked after a process lost it, and names one rank's first."""
    for c in claims:
        if c.tells("lost") and len(c.ranks) == 1:
            return _as(case, "rank-vanished", c, c.event, f"{c.event.where}: the raylet lost its process")
    return []


def _outlived(case: Case, c: Claim) -> bool:
    """Whether the job began or went on after it in the same log, and was done: a helper step of a batch
    script failed. The end of the whole job has no work behind it."""
    whole = c.pattern.entity == "job" or life.all_done(case)
    later = life.after(case, c.event, None) if whole and c.speaker != "kernel" else iter(())
    return next(later, None) is not None


def _after_the_job(case: Case, c: Claim) -> bool:
    """Whether it stands below the last word of a whole run that went well: a script clears up behind it."""
    bye = life.last_goodbye(case, c.event.where.source)
    below = bye is not None and life.below(c.event, bye) and life.has_last_word(bye)
    return below and c.tells("end") and not c.ranks and life.all_done(case)


def _unaccounted(case: Case, c: Claim, end: Ending, accused: Sequence[Claim]) -> bool:
    if end.kind == "kill":
        return not any(_stands_before(e, c.event) for e in (*case.telling("forces"), *case.telling("stop")))
    if end.kind == "stop" and any(_stands_before(e, c.event) for e in case.telling("asks")):
        return False
    complaints = [x for x in accused if not x.event.fields.get("wrapper") and not _stopped_after(x, c, end)]
    if end.kind == "crash" and complaints and all(_below(x, c) or _missed(x, end) for x in complaints):
        return True  # they missed the process, whoever told of it first
    return not complaints or _unspoken(case, c, end, accused)


def _missed(x: Claim, end: Ending) -> bool:
    """Whether a complaint says that a peer has gone, and the crash is not SIGABRT, which such a complaint
    may end in."""
    return x.pattern.category == "peer-lost" and end.signal != "SIGABRT"


def _told(case: Case, c: Claim, end: Ending) -> list[Claim]:
    kind = end.kind if end.kind in ("kill", "crash", "limit", "stop") else "own"
    event = c.event._replace(fields=dict(c.event.fields) | {"exitcode": end.code})
    return _as(case, PATTERNS[kind], c, event, f"{c.event.where} reports {end}")


def _as(case: Case, name: str, c: Claim, event: Event, because: str) -> list[Claim]:
    p = case.library.get(name)
    local = number(event.fields.get("local_rank")) if not case.registry.ranks else None
    ranks = c.ranks or (() if local is None else (local,))  # spawn without a word of ranks: one host
    if p is None:
        return []
    return [Claim(p, p.role, (event,), ranks, c.hosts, (), c.pids, case.attempt, because, p.strength)]


def told_of(claims: Sequence[Claim]) -> dict[int, Ending]:
    """How spawn, srun or a shell says that ranks ended."""
    ended = [(c, endings.told(c.event)) for c in claims if c.tells("end")]
    return {rank: end for c, end in ended if end is not None for rank in c.ranks}


def told_killed(claims: Sequence[Claim]) -> set[int]:
    """Ranks of which they say that SIGKILL ended them."""
    return {rank for rank, end in told_of(claims).items() if end.kind == "kill"}


def _stopped_after(x: Claim, c: Claim, end: Ending) -> bool:
    """Slurm ends a step of which a task failed by itself, and says so below. That says nothing against the
    task."""
    if not (x.tells("stop") and x.speaker != "launcher" and end.code > 0 and end.kind != "stop"):
        return False
    return x.event.where.source == c.event.where.source and (x.event.where.line or 0) > (c.event.where.line or 0)


def _below(x: Claim, c: Claim) -> bool:
    """Whether `x` stands below `c` in the same log."""
    a, b = x.event.where, c.event.where
    return a.source == b.source and (a.line or 0) > (b.line or 0)


def _stands_before(a: Event, b: Event) -> bool:
    """Whether `a` stands before `b`, or nothing tells: the task whose end led to a cancellation is reported
    before it, the others after."""
    if a.where.source != b.where.source or a.where.line is None or b.where.line is None:
        return True
    return a.where.line < b.where.line


def _unspoken(case: Case, c: Claim, end: Ending, accused: Sequence[Claim]) -> bool:
    """One rank ended by itself and did not say why, while others complain: that follows from its end."""
    if len(c.ranks) != 1 or end.kind == "stop":
        return False
    spoke = {r for x in accused for r in (*x.ranks, case.rank_of(x.event)) if r is not None}
    return bool(spoke) and c.ranks[0] not in spoke


def _unasked(case: Case, end: Ending) -> bool:
    """The launcher names the workers that it stops. The only one that a signal ended and that is not among
    them got it from elsewhere."""
    if end.code > 0 or end.told_by is None or case.telling("stop"):  # where the job was told to stop, everybody was
        return False
    asks = case.telling("asks")
    if not asks and end.told_by.fields.get("told_by") == "script":
        return _first_of_all(case, end)
    asked = {number(e.fields.get("pid")) for e in asks}
    complete = any(e.where.source == end.told_by.where.source for e in asks)  # another agent's log may lack its head
    told = [case.ends[r] for r in case.ended("stop")]
    others = [x.told_by.pid for x in told if x.code < 0 and x.told_by and x.told_by.pid not in asked]
    return complete and end.told_by.pid is not None and others == [end.told_by.pid]


def _first_of_all(case: Case, end: Ending) -> bool:
    """Whether a script that stops nobody told of this end alone by a signal, and before all others."""
    others = [x for x in case.ends.values() if x is not end]
    tellers = [x.told_by for x in others if x.kind == "own" and x.told_by is not None]
    return (
        end.told_by is not None
        and 0 < len(tellers) == len(others)
        and all(order.came_before(end.told_by, teller) for teller in tellers)
    )


def _counters(case: Case, host: str | None) -> list[Event]:
    """Counters of memory cgroups that say that something in them was OOM-killed."""
    found = (*case.of_kind("counter"), *case.telling("oom-count"))
    return [e for e in found if host is None or e.host is None or e.host == host]


def _forced(case: Case, end: Ending) -> bool:
    """The agent kills with SIGKILL what did not obey SIGTERM: a stuck victim, or the stuck culprit, but
    nobody's kill."""
    event = end.told_by
    if event is None or event.pid not in set(_killed_by_agent(case, event)):
        return False
    case.note(f"{event.where}: the launcher itself sent SIGKILL to pid {event.pid}, after SIGTERM")
    return True


def _killed_by_agent(case: Case, event: Event) -> Iterator[int | None]:
    for e in case.telling("forces"):
        yield number(e.fields.get("pid"))
    for e in case.telling("asks"):
        pid = number(e.fields.get("pid"))
        if pid is not None and event.at is not None and e.at is not None and event.at - e.at > PATIENCE_S:
            yield pid
