"""A kernel log reaches back to boot: a line about a process that is none of this job's is another job's.

[ 1234.667890] Out of memory: Killed process 9991 (python3) ...      pid 9991 is no rank's, or every rank's end is known
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from postmortem.diagnose.case import BROAD, Case, Observation, as_int
from postmortem.model import Event

KILLS = ("kernel-oom-killed-process", "kernel-oom-summary", "kernel-segfault", "kernel-trap")
PROGRAMS = (
    "python",
    "pt_",
    "pt-",
    "ray",
    "vllm",
    "sglang",
    "torchrun",
    "train",
    "main",
)  # what ranks are called
BEFORE_S, AFTER_S = 120.0, 900.0  # of a job's life, with what its end takes


def kept(case: Case, o: Observation, everything: Sequence[Observation]) -> Observation | None:
    """The observation, joined to a rank where that can be told; None where it is another job's."""
    e = o.event
    if o.role not in ("cause", "confirms") or not (e.fields.get("kernel") or e.source_kind == "kernel"):
        return o
    if o.ranks:
        return o
    if outside(case, e):
        case.note(f"{o.pattern.id} at {e.where} was left out: it lies outside the life of this job")
        return None
    if o.pattern.id in KILLS and _all_accounted(case, e, everything):
        case.note(f"{o.pattern.id} at {e.where} was left out: every rank's end is known, and none was killed")
        return None
    if o.pattern.id in KILLS and _among_strangers(case, o):
        case.note(
            f"{o.pattern.id} at {e.where} was left out: another kill took a process from among this job's, this one did not"
        )
        return None
    if o.pattern.id in KILLS and _knows_processes(case):
        if _fits_container(case, o):
            return replace(
                o,
                ranks=_silent_candidates(case),
                because="no pid joins (containers have their own); the process name fits and this rank vanished",
            )
        case.note(
            f"{o.pattern.id} at {e.where} was left out: pid {e.fields.get('pid')} is no process of this job"
        )
        return None
    return o


def outside(case: Case, e: Event) -> bool:
    """Whether an event lies well before or after all that is known of the job."""
    if e.at is None or case.start is None or case.end is None or e.at_sigma >= BROAD:
        return False
    return e.at < case.start - BEFORE_S - 3 * e.at_sigma or e.at > case.end + AFTER_S


def _all_accounted(case: Case, e: Event, everything: Sequence[Observation]) -> bool:
    """Whether nobody is left who could have been killed: all finished or, of a kill at no known time, said why they ended."""
    if any(case.exit_code(r) in (-9, 137) for r in case.exits):
        return False
    ends = set(case.finished)
    if e.at is None or case.start is None or e.at_sigma >= BROAD:
        raised = [
            o
            for o in everything
            if o.role == "cause" and o.pattern.entity == "self" and o.pattern.severity == "fatal"
        ]
        ends |= {r for o in raised for r in o.ranks}
    return ends >= set(case.registry.ranks) and bool(ends or case.of_kind("finished"))


def _among_strangers(case: Case, o: Observation) -> bool:
    """Whether the kernel's table of tasks shows that this kill was in another job's memory cgroup, and another one in this job's."""
    tables = {
        e.pid: set(t) for e in case.of_kind("oom-tasks") if isinstance(t := e.fields.get("tasks"), tuple)
    }
    if len(tables) < 2 or not o.pids:
        return False
    spoken = (e for e in case.events if not e.fields.get("kernel") and e.source_kind != "kernel")
    known = {p for e in spoken for p in (e.pid, as_int(e.fields.get("pid"))) if p is not None and p > 1}
    ours = {pid for pid, tasks in tables.items() if tasks & known}
    return bool(ours) and o.pids[0] in tables and o.pids[0] not in ours


def _knows_processes(case: Case) -> bool:
    return len(case.registry.pids) >= max(1, len(case.registry.ranks) // 2)


def _fits_container(case: Case, o: Observation) -> bool:
    """Kernel pids are the host's. In a container they fit no rank; then process name, moment and a vanished rank must agree."""
    e = o.event
    comm = str(e.fields.get("comm", "")).lower()
    if not comm.startswith(PROGRAMS):
        return False
    vanished = _silent_candidates(case)
    if len(vanished) != 1:
        return False
    if e.at is None or case.end is None:
        return e.clock != "boot"  # an unplaced boot stamp may be of any day
    exit_event = case.exits.get(vanished[0])
    moment = exit_event.at if exit_event is not None and exit_event.at is not None else case.end
    return abs(e.at - moment) <= 60 + 3 * (e.at_sigma + 1)


def _silent_candidates(case: Case) -> tuple[int, ...]:
    """Ranks whose launcher says SIGKILL."""
    return tuple(sorted(r for r in case.exits if case.exit_code(r) in (-9, 137)))
