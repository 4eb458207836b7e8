"""Claims from exit codes, about ranks with an end that only a launcher reports.

exitcode  : -9 (pid: 32688)  (SIGKILL)      killed from outside; host OOM only if the kernel reports it
exitcode  : -11 (pid: 743)   (SIGSEGV)      crashed, even without a message
exitcode  : 3 (pid: 32513)                  exited by itself without a reason
exitcode  : -15                             stopped by the launcher; from outside where it lists whom it stopped, and not this one
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from postmortem.diagnose import liveness, order, topics
from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim, by
from postmortem.diagnose.wording import ranks_text
from postmortem.formats import endings
from postmortem.formats.endings import Ending
from postmortem.formats.lineform import message
from postmortem.model import Event
from postmortem.model.details import Details

Ranks = tuple[int, ...]
PATTERNS = {
    "kill": "rank-exit-sigkill",
    "crash": "rank-exit-crash-signal",
    "limit": "rank-exit-cpu-limit",
    "stop": "rank-exit-signalled",
    "own": "rank-exit-without-reason",
}
AFTER_ERROR = "rank-exit-after-error"
ABOVE = 200  # lines between an error and the launcher's report of the exit
NEXT = 4  # lines: so near even a complaint without the word error counts
LOST_OTHERS = ("peer-lost", "hang")  # an error of these follows from the end of another rank
PATIENCE_S = 25.0  # torchrun kills what does not obey SIGTERM within 30 s


def derive(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """Claims from exit codes for ranks that nothing else accounts for."""
    caused = {r for c in claims if c.role == "cause" for r in c.ranks}
    explained = _explained(case, claims)
    explained |= _nameless_aborts(case, claims, explained | caused)
    found: list[Claim] = []
    for rank, end in sorted(case.ends.items()):
        if rank not in caused and end.reported_by is not None and _is_evidence(case, rank, end, rank in explained):
            found += _claim(case, rank, end, end.reported_by, claims)
    timeouts = [c for c in claims if c.role == "symptom" and "hang" in (c.pattern.category, c.pattern.stands_for)]
    return [_reduced(case, c, found, timeouts) for c in found] or _of_reports(case, claims)


def _reduced(case: Case, c: Claim, found: Sequence[Claim], timeouts: Sequence[Claim]) -> Claim:
    """A symptom, where another rank surely ended before, where it ended after ranks timed out (a watchdog or a monitor
    ends its process), or where the rank waited in a collective when it exited."""
    end = case.ends[c.ranks[0]]
    before = [*found, *(timeouts if end.kind == "own" or end.signal == "SIGABRT" else ())]
    report = replace(c, events=c.events[-1:])  # its last error may be the monitor's
    if any(order.surely_before(other, report) for other in before if other is not c):
        return replace(c, role="symptom")
    stacks = [e for e in case.by_rank.get(c.ranks[0], []) if e.kind == "stack"]
    if c.pattern.id == PATTERNS["own"] and any(e.fields.get("collective") for e in stacks):
        return replace(c, role="symptom", because=f"{c.because}; its stack shows that it waited in a collective")
    return c


def _explained(case: Case, claims: Sequence[Claim]) -> set[int]:
    """Ranks with a failure of which not only a launcher reports."""
    own = [c for c in claims if c.accuses and not c.tells("end") and c.pattern.severity != "warning"]
    own = [c for c in own if c.speaker != "launcher" or c.event.place in case.registry.found["line"]]
    return {r for c in own for r in c.ranks} | case.ranks_of(e for c in own for e in c.events)


def _nameless_aborts(case: Case, claims: Sequence[Claim], known: set[int]) -> set[int]:
    """Further ranks that aborted, if they are no more than processes without a rank that aborted on an exception with a
    symptom as its message, right below: before torch 2.2 no `[rank0]:` is before the message of a watchdog."""
    aborted = {r for r in case.ended("crash") if case.ends[r].signal == "SIGABRT"} - known
    symptoms = [c for c in claims if c.role == "symptom"]
    above = {(c.event.where.source, c.event.line - 1) for c in symptoms}
    aborts = [e for c in symptoms for e in c.events if "terminate called after" in e.text and case.rank_of(e) is None]
    return aborted if len(aborted) <= sum(e.place in above for e in aborts) else set()


def _is_evidence(case: Case, rank: int, end: Ending, explained: bool) -> bool:
    """Whether this end, by itself, accuses its rank or somebody outside."""
    if end.kind == "kill":
        return end.reported_by is not None and not _forced(case, end.reported_by)
    if end.kind == "stop":
        return _unasked(case, end)
    if end.kind == "own" and end.reported_by is not None and end.reported_by.fields.get("reported_by") == "script":
        # a script reports every rank that fails, also those with a nameless traceback
        explained = explained or any(case.rank_of(e) in (rank, None) for e in case.of_kind("exception"))
    return end.kind == "limit" or (not explained and end.kind in ("crash", "own"))


def _claim(case: Case, rank: int, end: Ending, event: Event, claims: Sequence[Claim]) -> list[Claim]:
    host = event.fields.get("host") or event.host or case.registry.host_of.get(rank)
    counts = (c.event for c in claims if c.role == "confirms" and "host-oom" in c.pattern.bears_out)
    counters = (*case.of_kind("counter"), *counts)
    here = [e for e in counters if host in (None, e.host) or not e.host]
    full = here[:1] if case.ended("kill") == [rank] else []
    name = "rank-killed-in-full-cgroup" if full else PATTERNS[end.kind]
    hosts, pids = (host,) if host else (), (event.pid,) if event.pid else ()
    found = _made(case, name, (*full, event), (rank,), hosts, pids, f"the launcher reported {end} for rank {rank}")
    return [_with_error(case, c, claims) if end.kind == "own" else c for c in found]


def _made(
    case: Case, name: str, proof: tuple[Event, ...], ranks: Ranks, hosts: tuple[str, ...], pids: Ranks, because: str
) -> list[Claim]:
    p = case.library.get(name)
    return [Claim(p, p.role, proof, ranks, hosts, (), pids, case.attempt, because, p.strength)] if p else []


def _with_error(case: Case, c: Claim, claims: Sequence[Claim]) -> Claim:
    """The claim with the last error above the report that no other rank wrote, and the category of that error."""
    p = case.library.get(AFTER_ERROR)
    error = _error_above(case, c.event, c.ranks)
    if p is None or error is None:
        return c
    here = [x for x in claims if x.role == "symptom" and any(e.where == error.where for e in x.events)]
    text = error.fields.get("line") or message(error.text)
    known = next((x.pattern.stands_for or x.pattern.category or "" for x in here), "")
    category = known or topics.of(text) or p.category
    if category in LOST_OTHERS:
        return c
    fields: Details = {**error.fields, "line": text}
    if "exitcode" in c.event.fields:
        fields["exitcode"] = c.event.fields["exitcode"]
    events = (error._replace(fields=fields), *c.events)
    return replace(c, pattern=replace(p, category=category, topic=""), events=events)


def _error_above(case: Case, report: Event, ranks: Sequence[int]) -> Event | None:
    """The last error in the lines above, with no work below it."""
    beside = case.by_source[report.where.source]
    near = [x for x in beside if 0 < report.line - x.line <= ABOVE and case.rank_of(x) in (*ranks, None)]
    others = {x.where for x in beside if _is_about_others(case, x)}
    # the report may be the last line of the parent's traceback
    head = min(x.fields.get("opened", report.line) for x in (report, *beside) if x.where == report.where)
    own = [x for x in near if x.where not in others and _is_error(case, x, head)]
    last = max(own, key=lambda x: x.where, default=None)
    worked_on = last and any(x.kind in ("worked", "progress") and x.where >= last.where for x in near)
    return None if worked_on else last


def _is_about_others(case: Case, x: Event) -> bool:
    """Whether a line is a launcher's, or no failure by its pattern."""
    p = case.library.get(x.pattern)
    return by(x, "outside") or (p is not None and (p.role == "context" or p.entity in ("pid", "rank", "job")))


def _is_error(case: Case, x: Event, end: int) -> bool:
    """Whether a line reports an error; right above the end a complaint without the word counts, too."""
    if x.fields.get("wrapper"):
        return False
    if x.kind == "notice" and end - x.line <= NEXT:
        return True
    return x.kind == "exception" or x.fields.get("reports_error", False) or case.library.get(x.pattern) is not None


# ── stops and kills by the launcher ─────────────────────────────────────────────────────────────────────────


def _unasked(case: Case, end: Ending) -> bool:
    """Whether this is the only rank ended by a signal that is not among those that the launcher asked to stop."""
    report = end.reported_by
    if end.code > 0 or report is None or case.telling("stop"):  # where the whole job was stopped, every rank was
        return False
    asks = case.telling("asks")
    asked = {e.fields.get("pid") for e in asks}
    complete = any(e.where.source == report.where.source for e in asks)  # another agent's log may lack its head
    stopped = [case.ends[r] for r in case.ended("stop")]
    others = [x.reported_by.pid for x in stopped if x.code < 0 and x.reported_by and x.reported_by.pid not in asked]
    return complete and report.pid is not None and others == [report.pid]


def _forced(case: Case, event: Event) -> bool:
    """Whether the launcher itself sent SIGKILL to a rank that did not obey SIGTERM: a stuck victim or culprit."""
    asks = [e for e in case.telling("asks") if (order.gap(e, event) or 0.0) > PATIENCE_S]
    asked = {e.fields["pid"] for e in asks if "pid" in e.fields}
    if event.pid not in asked.union(e.fields.get("pid") for e in case.telling("forces")):
        return False
    case.note(f"{event.where}: the launcher itself sent SIGKILL to pid {event.pid}, after SIGTERM")
    return True


# ── ends without a rank ─────────────────────────────────────────────────────────────────────────────────────


def _of_reports(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """The end of a process that a launcher, a shell or a container reports, where nothing accounts for it.

    [ERROR] [launch.py:434:sigkill_handler] ['python', '-u', 'main.py'] exits with return code = -9
    Exception: process 0 terminated with signal SIGKILL
    """
    if any(c.role == "cause" for c in claims) or case.all_finished:
        return []
    claims = [c for c in claims if not _job_went_on(case, c)]
    for c, end in _reported_ends(claims):
        if end.kind != "clean" and _unaccounted(case, c, end, _complaints(claims, c.pattern.generic)):
            return _of_report(case, c, end, claims)
    lost = next(
        (c for c in claims if c.pattern.family == "ray" and c.pattern.stands_for == "peer-lost" and len(c.ranks) == 1),
        None,
    )
    if lost is None:
        return []
    because = f"{ranks_text(lost.ranks)} was lost by Ray, and the end of its process is not in these logs"
    return _as(case, "rank-vanished", lost, lost.event, because)


def _of_report(case: Case, c: Claim, end: Ending, claims: Sequence[Claim]) -> list[Claim]:
    kind = end.kind if end.kind in PATTERNS else "own"
    event = c.event._replace(fields={**c.event.fields, "exitcode": end.code})
    # one signal to all ranks: a scheduler (sbatch --signal) or a person sent it to the whole job
    ends = reported_ends(claims).items() if end.kind in ("stop", "kill") else ()
    same = {rank for rank, other in ends if (other.kind, other.signal) == (end.kind, end.signal)}
    to_all = len(same) > 1 and same >= set(case.registry.ranks)
    if to_all or (kind == "own" and not c.ranks and not c.event.fields.get("host")):
        c = replace(c, ranks=(), hosts=())  # a command that exits by itself accuses no host, a signal to all no rank
    found = _as(case, PATTERNS[kind], c, event, f"{c.event.where} reports {end}")
    return [_with_error(case, x, claims) if kind == "own" else x for x in found]


def _reported_ends(claims: Sequence[Claim]) -> list[tuple[Claim, Ending]]:
    return [(c, end) for c in claims if c.tells("end") and (end := endings.reported(c.event)) is not None]


def _complaints(claims: Sequence[Claim], whole_job: bool) -> list[Claim]:
    """Symptoms that account for an end; for the end of the whole job also those of a category by `stands_for` alone."""
    symptoms = [c for c in claims if c.role == "symptom" and not c.by("of_host")]
    stand_for = [c for c in symptoms if whole_job and c.pattern.stands_for not in ("", "python-exception")]
    return [c for c in symptoms if c.pattern.category or c in stand_for]


def _as(case: Case, name: str, c: Claim, event: Event, because: str) -> list[Claim]:
    local = event.fields.get("local_rank") if not case.registry.ranks else None
    ranks = c.ranks or (() if local is None else (local,))  # spawn names no ranks: all are on one host
    # the ranks that write to this log, where none of them finished and all others did: the command had started them
    here = case.writers.get(event.where.source, set())
    others = set(case.registry.ranks) - here
    if not ranks and others and others == case.finished:
        ranks = tuple(sorted(here))
    return _made(case, name, (event,), ranks, c.hosts, c.pids, because)


def _job_went_on(case: Case, c: Claim) -> bool:
    """Whether the job went on below in the same log, and was done: a helper step of a batch script failed, before or
    after it. A report on the whole job has no progress below it, nor has the end of a rank that rank's own."""
    rank = c.event.rank if c.tells("end") and not c.by("outside") else None
    whole = rank is not None or c.pattern.entity == "job" or liveness.all_done(case)
    later = liveness.after(case, c.event, rank) if whole and not c.by("of_host") else iter(())
    if next(later, None) is not None:
        return True
    # below the final message of a whole run that went well a script cleans up
    last = liveness.last_finish(case, c.event.where.source) if c.tells("end") and not c.ranks else None
    return last is not None and c.event.below(last) and endings.surely_finished(last) and liveness.all_done(case)


def _unaccounted(case: Case, c: Claim, end: Ending, accused: Sequence[Claim]) -> bool:
    if end.kind == "kill":
        return all(
            order.relation(e, c.event, lines=0) == "after" for e in (*case.telling("forces"), *case.telling("stop"))
        )
    if end.kind == "stop" and any(order.relation(e, c.event, lines=0) != "after" for e in case.telling("asks")):
        return False
    complaints = [x for x in accused if not x.event.fields.get("wrapper") and not _is_stop_after(x, c, end)]
    lost = "peer-lost" if end.signal != "SIGABRT" else ""  # it may follow from such a complaint
    if end.kind == "crash" and all(x.event.below(c.event) or x.pattern.category == lost for x in complaints):
        return True  # they follow from the crash, whichever was reported first
    return not complaints or _only_silent_rank(case, c, end, accused)


def _is_stop_after(x: Claim, c: Claim, end: Ending) -> bool:
    """Whether Slurm ended a step below the report of a task that failed by itself."""
    own = end.code > 0 and end.kind != "stop"
    return own and x.tells("stop") and x.speaker != "launcher" and x.event.below(c.event)


def _only_silent_rank(case: Case, c: Claim, end: Ending, accused: Sequence[Claim]) -> bool:
    """Whether one rank ended by itself without a reason while others complain: that follows from its end."""
    if len(c.ranks) != 1 or end.kind == "stop":
        return False
    complaining = {r for x in accused for r in (*x.ranks, case.rank_of(x.event)) if r is not None}
    return bool(complaining) and c.ranks[0] not in complaining


def reported_ends(claims: Sequence[Claim]) -> dict[int, Ending]:
    """The ends of ranks that spawn, srun or a shell reports."""
    return {rank: end for c, end in _reported_ends(claims) for rank in c.ranks}


def reported_killed(claims: Sequence[Claim]) -> set[int]:
    """The ranks that these report as ended by SIGKILL."""
    return {rank for rank, end in reported_ends(claims).items() if end.kind == "kill"}
