"""Claims from requests to stop in the table of processes: a signal that nobody there sent, and a rank that a launcher
found still running when all others had finished.

exitcode  : -15 (pid: 4201)                     and no `Sending process 4201 closing signal SIGTERM`
[rank2] Training finished.                      and `Sending process 4202 closing signal SIGTERM` for no other pid
WARNING got signal 15 (SIGTERM), leaving        and no launcher, scheduler or failure before it
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from postmortem.diagnose import liveness
from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.wording import capital, listed, ranks_text
from postmortem.formats.lineform import message
from postmortem.model import Event


def derive(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """At most one claim, where nothing else is a cause, or nothing but the stop of the launcher itself."""
    causes = [c for c in claims if c.role == "cause"]
    found = None
    if all(c.tells("stop") for c in causes):
        found = _still_running(case) or _unknown_running(case)
    if found is None and all(c.pattern.category == "peer-lost" and c.strength == "silent" for c in causes):
        found = _signaled(case) or _reported(case, claims)
    return [found] if found is not None else []


def _still_running(case: Case) -> Claim | None:
    """Ranks that did not exit: of torchrun's processes only those that still run are sent a signal, and all others
    finished."""
    rows = {p.rank: p for p in case.processes if p.rank is not None}
    running = _running(case)
    finished = {r for r, p in rows.items() if p.finished}
    failed = {r for r, end in case.ends.items() if end.failed}
    if not 0 < len(running) * 2 < len(rows) or failed.intersection(running) or finished.union(running) != rows.keys():
        return None
    so = "until the job was stopped" if case.telling("stop") else "and its stack shows that it waits for its threads"
    because = f"{ranks_text(running)} did not exit after all others had finished, {so}"
    requests = [stop.event for r in running if (stop := rows[r].stop) is not None]
    shown = [rows[r].stack or rows[r].last_line for r in running]
    return case.claim("rank-did-not-exit", running, [*shown, *requests], because)


def _unknown_running(case: Case) -> Claim | None:
    """Processes of unknown ranks that did not exit: the launcher stops fewer than had finished."""
    asks = case.telling("asks") if case.telling("stop") and case.all_finished else []
    pids = sorted({pid for e in asks if (pid := e.fields.get("pid")) is not None})
    if not 0 < len(pids) * 2 < len(case.registry.ranks):
        return None
    named = f"Process{'es' if len(pids) > 1 else ''} {listed(list(map(str, pids)))}"
    because = f"{named} still ran when the job was stopped; all ranks had reported that they finished"
    busy = _after_their_end(case)
    if not len(pids) == len(busy) == 1:
        return case.claim("rank-did-not-exit", (), asks, because)
    (last,) = busy.values()
    because += f", and {ranks_text(busy)} then logged `{message(last.text)}`"
    return case.claim("rank-did-not-exit", list(busy), [asks[0], last, *asks[1:]], because)


def _after_their_end(case: Case) -> dict[int, Event]:
    """The last lines that ranks printed below their reports that they had finished, in the same log."""
    found = {}
    for rank in case.finished:
        last = next((p.last_line for p in case.processes if p.rank == rank), None)
        byes = [e for e in case.by_rank[rank] if e.kind == "finished" and last and e.where.source == last.where.source]
        if last is not None and byes and last.line > max(e.line for e in byes):
            found[rank] = last
    return found


def _running(case: Case) -> list[int]:
    """The ranks that the launcher stops, or that wait for their threads at exit by their stacks; without both those that
    did not finish."""
    rows = [(p.rank, p) for p in case.processes if p.rank is not None]
    stopped = [r for r, p in rows if (p.stop is not None and p.stop.by == "launcher") or _exiting(p.stack)]
    if stopped or not case.telling("stop"):
        return stopped
    return [r for r, p in rows if not p.finished and p.last_line is not None]


def _exiting(stack: Event | None) -> bool:
    """Whether the main thread waits in the interpreter's `threading._shutdown`."""
    frames = stack.fields.get("frames", ()) if stack is not None else ()
    return bool(frames) and frames[-1][2] == "_shutdown"


def _signaled(case: Case) -> Claim | None:
    """Ranks that a stop signal ended, where no launcher or scheduler reports that it sent any."""
    ended = [p for p in case.processes if p.end is not None and p.end.kind == "stop" and p.stop is None]
    at_work = case.by_kind["worked"] or len(case.ends) > len(ended)  # else an excerpt, which may lack the sender
    if not (ended and at_work) or case.telling("asks") or case.telling("stop"):
        return None
    names = [p.rank for p in ended if p.rank is not None]
    signal = ended[0].end.signal if ended[0].end is not None else ""
    because = f"{signal} ended {ranks_text(names)}, and no line shows that the launcher or a scheduler sent it"
    return _of(case, "rank-exit-signalled", names, [p.end.reported_by for p in ended if p.end], because)


def _reported(case: Case, claims: Sequence[Claim]) -> Claim | None:
    """Ranks that report a SIGTERM, where no line shows a sender, a failure, a finish or that they worked on."""
    asked = [c for c in claims if c.tells("asked") and not c.by("outside") and not _went_on(case, c.event)]
    failed = any(c.role == "symptom" and c not in asked for c in claims)
    known = [case.finished, case.telling("asks"), case.telling("stop"), liveness.all_done(case)]
    if not asked or failed or any(known) or not case.by_kind["worked"]:
        return None
    names = sorted(case.ranks_of(c.event for c in asked))
    because = capital(f"{ranks_text(names) if names else 'a process'} reported SIGTERM, and no line shows who sent it")
    return _of(case, "rank-was-stopped", names, [c.event for c in asked], because)


def _went_on(case: Case, e: Event) -> bool:
    return any(x.fields.get("since", 0) > e.line for x in liveness.after(case, e, None))


def _of(case: Case, pattern: str, ranks: Collection[int], proof: Sequence[Event | None], because: str) -> Claim | None:
    """A claim about these ranks; about the job, where they are all that it has."""
    whole = len(ranks) != 1 and len(ranks) >= len(case.registry.ranks)
    found = case.claim(pattern, () if whole else ranks, proof, because)
    return replace(found, pattern=replace(found.pattern, entity="job")) if found is not None and whole else found
