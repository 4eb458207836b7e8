"""Reports of others beside the job's own logs (the kernel since boot, a scheduler, a cluster): not all are about
this job.

JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
990               train        gpu       proj         64 OUT_OF_ME+    0:125     another job's, where slurm-991.out lies beside
991               train        gpu       proj         64  COMPLETED      0:0

[111403.118] NVRM: Xid (PCI:0000:91:00): 79, … GPU has fallen off the bus.       of some day; all ranks report that they finished
[ 1234.667890] Out of memory: Killed process 9991 (python3) ...                  pid 9991 is no rank's
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from postmortem.diagnose import liveness
from postmortem.diagnose.case import Case, moment
from postmortem.diagnose.claims import OTHERS, Claim
from postmortem.diagnose.explain import declared
from postmortem.diagnose.rules.view import Defeat, View
from postmortem.formats import forms
from postmortem.model import Event

_REGEXES = forms.regexes("diagnose/lines")
GPU = ("gpu-hardware", "gpu-fault")
ON_GPUS = (*GPU, "gpu-memory", "nccl")  # families of patterns in which a rank reports on its GPU
PROGRAMS = ("python", "pt_", "pt-", "ray", "vllm", "sglang", "torchrun", "train", "main")  # names of rank processes
BEFORE_S, AFTER_S = 120.0, 900.0  # around the job's own lines: its start and its end take time
NEAR_S = 60.0  # between a kill and the report of its effect


# ── processes ───────────────────────────────────────────────────────────────────────────────────────────────


def is_program(e: Event) -> bool:
    """Whether the process that a kernel line names may be a rank."""
    return e.fields.get("comm", "").lower().startswith(PROGRAMS)


def outside(case: Case, e: Event) -> bool:
    """Whether an event lies well before or after all that is known of the job."""
    at = moment(e)
    if at is None or case.start is None or case.end is None:
        return False
    return at < case.start - BEFORE_S - 3 * e.at_sigma or at > case.end + AFTER_S


def _of_unknown_process(c: Claim) -> bool:
    """Whether it is a kernel line about a process that no rank is joined to."""
    kernel = c.speaker == "kernel" and c.role in ("cause", "confirms")
    return kernel and c.pattern.entity == "pid" and not c.ranks


def joined(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """Kernel claims about processes of unknown pid get the one rank with an end that fits: containers have pids of their own."""
    out = []
    for c in claims:
        if _of_unknown_process(c) and is_program(c.event) and not outside(case, c.event):
            if (rank := _only_killed(case, c.event)) is not None:
                why = "no pid matches (containers have their own); the process name matches, and this rank fell silent"
                c = replace(c, ranks=(rank,), because=why)
            elif (rank := _parent(case)) is not None:
                c = replace(c, ranks=(rank,), because=f"the process was a child of rank {rank}, which reported its end")
        out.append(c)
    return out


def _only_killed(case: Case, e: Event) -> int | None:
    """The one rank that ended by SIGKILL at this time, where the pids of most ranks are known."""
    killed = case.ended("kill")
    if len(killed) != 1 or not _pids_are_known(case):
        return None
    if e.at is None or case.end is None:
        return killed[0] if e.clock != "boot" else None  # an unplaced boot stamp may be of any day
    report = case.ends[killed[0]].stated_by
    at = report.at if report is not None and report.at is not None else case.end
    return killed[0] if abs(e.at - at) <= NEAR_S + 3 * (e.at_sigma + 1) else None


def _pids_are_known(case: Case) -> bool:
    return len(case.registry.pids) >= max(1, len(case.registry.ranks) // 2)


def _parent(case: Case) -> int | None:
    """The one rank that reports the sudden end of a child without its pid."""
    ranks = case.ranks_of(case.telling("child"))
    return ranks.pop() if len(ranks) == 1 else None


def unknown_process(view: View) -> Iterator[Defeat]:
    """The pids of most ranks are known, and this one is none of them."""
    for at, claim in view.numbered("cause", "confirms"):
        if _of_unknown_process(claim) and _pids_are_known(view.case):
            yield Defeat(at, "context", f"pid {claim.event.fields.get('pid')} does not belong to this job")


def in_another_cgroup(view: View) -> Iterator[Defeat]:
    """The kernel's lists of tasks show that another kill was in this job's memory cgroup, and this one was not."""
    tasks = {e.pid: set(e.fields["tasks"]) for e in view.case.of_kind("oom-tasks")}
    if len(tasks) < 2:
        return
    job = [e for e in view.case.events if e.speaker != "kernel"]
    pids = {e.pid for e in job} | {e.fields.get("pid") for e in job}
    ours = {victim for victim, listed in tasks.items() if listed & (pids - {None, 0, 1})}
    for at, claim in view.numbered("cause", "confirms"):
        if ours and _of_unknown_process(claim) and set(claim.pids[:1]) & (tasks.keys() - ours):
            yield Defeat(at, "context", "another kill hit a process of this job, this one did not")


# ── a job that all ranks finished ───────────────────────────────────────────────────────────────────────────


def harmless(view: View) -> Iterator[Defeat]:
    """Reports of others did the job no harm where all ranks finished and none complains."""
    case = view.case
    if not liveness.all_done(case) or any(_is_complaint(case, c) for c in view.claims):
        return
    for at, claim in view.numbered("cause", "symptom", "confirms"):
        if claim.speaker in OTHERS:
            yield Defeat(at, "context", "all ranks finished, and none reports an error")


def _is_complaint(case: Case, c: Claim) -> bool:
    own = c.speaker not in OTHERS and c.pattern.category is not None
    return c.accuses and (own or bool(set(c.ranks) & set(case.registry.ranks)))


def at_another_time(view: View) -> Iterator[Defeat]:
    """The kernel reports it from before or after the job, or without a date while a rank states a cause that does not
    follow from it: `dmesg` without -T counts seconds since a boot that may be months ago."""
    stated = [c for _, c in view.numbered("cause") if c.speaker not in OTHERS and not c.pattern.derived]
    own = [c for c in stated if c.pattern.says_why or c.pattern.family != "gpu-fault"]
    for at, claim in view.numbered("cause"):
        undated = own and moment(claim.event) is None and not any(declared(claim, c) for c in own)
        if claim.speaker == "kernel" and not claim.ranks and (undated or outside(view.case, claim.event)):
            yield Defeat(at, "context", "nothing links it to this job")
