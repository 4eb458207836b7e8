"""Reports of others beside the job's own logs (the kernel since boot, a scheduler, a cluster): not all are about
this job.

JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
990               train        gpu       proj         64 OUT_OF_ME+    0:125     another job's, where slurm-991.out lies beside
991               train        gpu       proj         64  COMPLETED      0:0

[111403.118] NVRM: Xid (PCI:0000:91:00): 79, … GPU has fallen off the bus.       of some day; all ranks report that they finished
[ 1234.667890] Out of memory: Killed process 9991 (python3) ...                  pid 9991 is no rank's
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from postmortem.diagnose import liveness
from postmortem.diagnose.case import Case, moment
from postmortem.diagnose.claim import Claim, by
from postmortem.diagnose.claims import exits
from postmortem.diagnose.claims.links import declared
from postmortem.diagnose.order import gap
from postmortem.diagnose.processes import child_of
from postmortem.diagnose.rules.view import Defeat, View
from postmortem.diagnose.same import same_host
from postmortem.diagnose.who import elimination
from postmortem.diagnose.wording import ranks_text
from postmortem.model import Event, Where
from postmortem.system import forms

_REGEXES = forms.regexes("diagnose/lines")
GPU = ("gpu-hardware", "gpu-fault")
ON_GPUS = (*GPU, "gpu-memory", "nccl")  # families of patterns in which a rank reports on its GPU
PROGRAMS = ("python", "pt_", "pt-", "ray", "vllm", "sglang", "torchrun", "train", "main")  # names of rank processes
NEAR_S = 60.0  # between a kill and the report of its effect
SERVED_S = 10.0  # between the end of a service and the next request to it


# ── processes ───────────────────────────────────────────────────────────────────────────────────────────────


def is_program(e: Event) -> bool:
    """Whether the process that a kernel line names may be a rank."""
    return e.fields.get("comm", "").lower().startswith(PROGRAMS)


def _of_unknown_process(c: Claim) -> bool:
    """Whether it is a kernel line about a process that no rank is joined to."""
    kernel = c.speaker == "kernel" and c.role in ("cause", "confirms")
    return kernel and c.pattern.entity == "pid" and not c.ranks


def joined(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """Kernel claims about processes of unknown pid get the one rank that may be it: containers have pids of their own."""
    mine = [_of_unknown_process(c) and is_program(c.event) and not case.outside(c.event) for c in claims]
    lives = elimination.lives(case) if any(mine) else []
    return [_joined(case, c, lives) if own else c for c, own in zip(claims, mine, strict=True)]


def _joined(case: Case, c: Claim, lives: Sequence[elimination.Life]) -> Claim:
    """The claim with the rank that the process was, or whose child: a rank may report a child's end without its pid."""
    if moment(c.event) is None and c.event.clock == "boot":  # an unplaced boot stamp may be of any day
        return c
    e = c.event
    near = (x for x in case.telling("child") if abs(gap(e, x) or 0.0) <= NEAR_S + 3 * (e.at_sigma + x.at_sigma))
    ranks = tuple(case.ranks_of(near))
    because = f"the process was a child of {ranks_text(ranks)}, which reported its end"
    if not ranks:
        ranks, why = elimination.owners(elimination.Orphan((c.event,), "kill"), lives, alone=True)
        because = f"no rank is known to have this pid; {why}"
        ranks = ranks if c.event.at is not None or case.ended("kill") == [*ranks] else ()
    return replace(c, ranks=ranks, because=because) if len(ranks) == 1 else c


def unknown_process(view: View) -> Iterator[Defeat]:
    """The pids of most ranks are known, and this one is none of them; or another line on a fault of a GPU names a rank's
    process. The pid of an Xid 13 may be that of any process that was running when the interrupt came."""
    named = any(c.ranks and _on_a_gpu(c) for c in view.claims)
    pids_are_known = len(view.case.registry.pids) >= max(1, len(view.case.registry.ranks) // 2)
    for at, claim in view.numbered("cause", "symptom", "confirms"):
        pid = claim.event.fields.get("pid")
        of_a_program = claim.pattern.entity == "gpu" and claim.pattern.category in ("gpu-fault", None)
        fault = named and claim.speaker == "kernel" and of_a_program and not claim.ranks and pid is not None
        strange = _of_unknown_process(claim) and pids_are_known
        if fault or (strange and not _served(claim, view.claims)):
            yield Defeat(at, "context", f"pid {pid} does not belong to this job")


def of_another_run(view: View) -> Iterator[Defeat]:
    """A document about a process of another time, or of a pid that the job's own lines do not have. A core of a child
    counts: its parent is a process of the job."""
    case = view.case
    own = [e for e in case.events if not by(e, "outside")]
    pids = {str(pid) for e in own for pid in (e.pid, e.fields.get("pid"), child_of(e)) if pid}
    known = sum(any(str(pid) in pids for pid in each) for each in case.registry.pids.values())
    for at, claim in view.numbered("cause", "confirms"):
        e = claim.event
        pid = e.fields.get("pid")
        if claim.speaker != "tool" or pid is None or not e.fields.get("signal"):
            continue
        if case.outside(e):
            yield Defeat(at, "context", f"pid {pid} ended at another time than this job")
        elif known * 2 >= max(1, len(case.registry.ranks)) and not {str(pid), e.fields.get("ppid")} & pids:
            yield Defeat(at, "context", f"pid {pid} does not belong to this job")


def _served(kill: Claim, claims: Sequence[Claim]) -> bool:
    """Whether a rank lost a service right after the kernel had killed a program: then the program may have been it."""
    lost = [c.event for c in claims if (c.role, c.kind, c.pattern.family) == ("cause", "network", "python")]
    return any(-1.0 <= apart <= SERVED_S for e in lost if (apart := gap(kill.event, e)) is not None)


def in_another_cgroup(view: View) -> Iterator[Defeat]:
    """The kernel's lists of tasks show that another kill was in this job's memory cgroup, and this one was not."""
    tasks = {e.pid: set(e.fields["tasks"]) for e in view.case.of_kind("oom-tasks")}
    if len(tasks) < 2:
        return
    job = [e for e in view.case.events if not by(e, "outside")]
    pids = {e.pid for e in job} | {e.fields.get("pid") for e in job}
    ours = {victim for victim, listed in tasks.items() if listed & (pids - {None, 0, 1})}
    for at, claim in view.numbered("cause", "confirms"):
        if ours and _of_unknown_process(claim) and set(claim.pids[:1]) & (tasks.keys() - ours):
            yield Defeat(at, "context", "another kill hit a process of this job, this one did not")


# ── rows of tables ──────────────────────────────────────────────────────────────────────────────────────────


def _strange_rows(case: Case) -> set[Where]:
    """Rows about several jobs, where nothing shows which is this one."""
    tables = [e for e in case.of_kind("pattern") if e.source_kind == "scheduler"]
    rows = {e.where: m[1] for e in tables if (m := _REGEXES["job-row"].match(e.text)) is not None}
    rows |= case.stated_rows
    return set(rows) if len(set(rows.values())) > 1 and not case.own_numbers(rows) else set()


# ── a job that all ranks finished ───────────────────────────────────────────────────────────────────────────


def harmless(view: View) -> Iterator[Defeat]:
    """Reports of others did the job no harm where all ranks finished and none complains."""
    case = view.case
    if not liveness.all_done(case) or any(_is_complaint(case, c) for c in view.claims):
        return
    last = max(math.inf if e.at is None else e.at for e in case.of_kind("finished"))
    for at, claim in view.numbered("cause", "symptom", "confirms"):
        # a scheduler that ended a job below its end: it hung at its exit
        if claim.by("outside") and not (claim.by("of_jobs") and (claim.event.at or 0.0) > last):
            yield Defeat(at, "context", "all ranks finished, and none reports an error")


def _is_complaint(case: Case, c: Claim) -> bool:
    own = not c.by("outside") and c.pattern.category is not None
    return c.accuses and (own or bool(set(c.ranks) & set(case.registry.ranks)))


# ── causes that nothing links to this job ───────────────────────────────────────────────────────────────────


def downgraded(case: Case, claims: Sequence[Claim], loose: Sequence[Claim]) -> list[Claim]:
    """The claims; the loose ones yield to any other cause, or are no more than a guess."""
    others = any(c.role == "cause" and c not in loose and c.strength != "silent" for c in claims)
    out = []
    for c in claims:
        if c in loose:
            why = "nothing links it to this job, and no line of the ranks confirms it"
            case.note(f"{c.pattern.id} at {c.event.where}: {why}")
            if others:
                c = replace(c, role="context", because=why)
            # who hands in a scheduler's log means its lines, and a host's log with dates is believed where the time of
            # the job is unknown
            elif c.event.where in _strange_rows(case) or (c.speaker == "kernel" and not _is_dated(case, c)):
                c = replace(c, guess=True)
        out.append(c)
    return out


def unlinked(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """Causes stated by others that nothing links to this job (a rank, a time, a job number) and that no line of its
    ranks confirms.

    `dmesg` without -T or --time-format iso counts seconds since a boot that may be months ago. A scheduler's table of
    several jobs may lack this one's row; a cluster's events are mostly about other pods.
    """
    causes = [c for c in claims if c.role == "cause" and c.by("outside")] if case.own else []
    # the report of a GPU's state at some time explains a failure of a rank that fits
    causes = [c for c in causes if not c.ranks or c.event.source_kind == "gpu-report"]
    return _unconfirmed(case, [c for c in causes if _is_loose(case, c)], claims)


def _unconfirmed(case: Case, loose: Sequence[Claim], claims: Sequence[Claim]) -> list[Claim]:
    """Those that no line of a rank confirms. Where a fault of a rank's GPU is known, the other faults are of other jobs."""
    own = [c for c in claims if c.accuses and not c.by("outside")]
    known = any(c.ranks and _on_a_gpu(c) for c in claims)
    return [c for c in loose if (known and _on_a_gpu(c)) or not _confirmed(case, c, own)]


def _on_a_gpu(c: Claim) -> bool:
    return c.speaker == "kernel" and c.pattern.category in GPU


def _is_loose(case: Case, c: Claim) -> bool:
    """Whether it is about another row, another time, a host without a rank, or a program that is no rank. A fault
    that a program made on a GPU is that program's, and a rank would report its own."""
    if c.event.where in _strange_rows(case) or case.start is None or not _is_dated(case, c):
        return True
    hosts = set(case.registry.host_of.values())
    if hosts and c.hosts and not any(same_host(a, b) for a in hosts for b in c.hosts):
        return True
    return c.pattern.category == "gpu-fault" or (bool(c.event.fields.get("comm")) and not is_program(c.event))


def _is_dated(case: Case, c: Claim) -> bool:
    return any(moment(e) is not None and not case.outside(e) for e in c.events)


def _confirmed(case: Case, c: Claim, own: Sequence[Claim]) -> bool:
    """Whether the ranks' own claims follow from it. A rank that states another cause has one of its own."""
    causes = [x for x in own if x.role == "cause" and not x.pattern.derived and not x.of("complaint")]
    if causes:
        return any(declared(c, x) or (_akin(x, c) and x.pattern.family == "gpu-fault") for x in causes)
    killed = c.pattern.category == "host-oom" and not _REGEXES["job-row"].match(c.event.text)
    return any(_akin(x, c) for x in own) or (killed and _some_rank_killed(case, own))


def _some_rank_killed(case: Case, own: Sequence[Claim]) -> bool:
    """Whether a SIGKILL is reported, or a rank with lines neither finished nor complained."""
    if case.ended("kill") or exits.reported_killed(own):
        return True
    known = {r for c in own for r in c.ranks} | case.ranks_of(e for c in own for e in c.events)
    silent = set(case.by_rank) - case.finished - known - set(case.ends)
    return bool(silent) and any(c.of("complaint") for c in own)


def _akin(own: Claim, c: Claim) -> bool:
    """Whether a rank's claim fits: any claim about its GPU fits the kernel's on a GPU; else the categories decide."""
    category = c.pattern.category
    if category in own.pattern.bears_out:
        return True
    if category in GPU:
        return own.pattern.family in ON_GPUS and not own.pattern.says_why and not own.of("gone")
    same = own.pattern.category == category or (category == "network" and own.pattern.category in ("peer-lost", "hang"))
    return same and category != "host-oom"
