"""A kernel log reaches back to boot: a line about a process that is none of this job's is another job's.

[ 1234.667890] Out of memory: Killed process 9991 (python3) ...      pid 9991 is no rank's, or every rank's end is known
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from postmortem.diagnose.case import Case, moment
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.rules.view import Defeat, View
from postmortem.model import Event
from postmortem.model.digits import number

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
NEAR_S = 60.0  # seconds between a kill and the silence that it caused


def is_program(e: Event) -> bool:
    """Whether the process that a kernel line names may be a rank."""
    return str(e.fields.get("comm") or "").lower().startswith(PROGRAMS)


def joined(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """Claims of the kernel on processes, with the one rank whose end fits where no pid does: containers have
    pids of their own."""
    out = []
    for c in claims:
        if _kernels(c) and _about_processes(c) and not c.ranks and _fits_container(case, c):
            why = "no pid matches (containers have their own); the process name matches, and this rank fell silent"
            c = replace(c, ranks=_killed(case), because=why)
        elif _kernels(c) and _about_processes(c) and not c.ranks and (rank := _parent(case, c)) is not None:
            why = f"the process was a child of rank {rank}, which reported its end"
            c = replace(c, ranks=(rank,), because=why)
        out.append(c)
    return out


def among_strangers(view: View) -> Iterator[Defeat]:
    """The kernel's table of tasks shows that this kill was in another job's memory cgroup, and another one
    in this job's."""
    tables: dict[int | None, set[object]] = {}
    for e in view.case.of_kind("oom-tasks"):
        tasks = e.fields.get("tasks")
        if isinstance(tasks, tuple):
            tables[e.pid] = set(tasks)
    if len(tables) < 2:
        return
    ours = {pid for pid, tasks in tables.items() if tasks & _own_pids(view.case)}
    for at, claim in _loose(view):
        victim = claim.pids[0] if claim.pids else None
        if _about_processes(claim) and ours and victim in tables and victim not in ours:
            yield Defeat(at, "context", "another kill hit a process of this job, this one did not")


def _own_pids(case: Case) -> set[int]:
    """Pids of which the job's own logs speak."""
    found = set()
    for e in case.events:
        if e.speaker != "kernel":
            found |= {p for p in (e.pid, number(e.fields.get("pid"))) if p is not None and p > 1}
    return found


def unknown_process(view: View) -> Iterator[Defeat]:
    """The pids of most ranks are known, and this one is none of them."""
    case = view.case
    if len(case.registry.pids) < max(1, len(case.registry.ranks) // 2):
        return
    for at, claim in _loose(view):
        if _about_processes(claim):
            yield Defeat(at, "context", f"pid {claim.event.fields.get('pid')} does not belong to this job")


def _loose(view: View) -> Iterator[tuple[int, Claim]]:
    """Claims of the kernel that no rank is joined to."""
    for at, claim in view.numbered("cause", "confirms"):
        if _kernels(claim) and not claim.ranks:
            yield at, claim


def _kernels(c: Claim) -> bool:
    return c.speaker == "kernel" and c.role in ("cause", "confirms")


def _about_processes(c: Claim) -> bool:
    return c.pattern.entity == "pid"


def outside(case: Case, e: Event) -> bool:
    """Whether an event lies well before or after all that is known of the job."""
    at = moment(e)
    if at is None or case.start is None or case.end is None:
        return False
    return at < case.start - BEFORE_S - 3 * e.at_sigma or at > case.end + AFTER_S


def _fits_container(case: Case, c: Claim) -> bool:
    """Kernel pids are the host's. In a container they fit no rank; then process name, moment and a vanished
    rank must agree."""
    e, vanished = c.event, _killed(case)
    if not is_program(e) or len(vanished) != 1 or outside(case, e):
        return False
    if len(case.registry.pids) < max(1, len(case.registry.ranks) // 2):
        return False
    if e.at is None or case.end is None:
        return e.clock != "boot"  # an unplaced boot stamp may be of any day
    told = case.ends[vanished[0]].told_by
    moment = told.at if told is not None and told.at is not None else case.end
    return abs(e.at - moment) <= NEAR_S + 3 * (e.at_sigma + 1)


def _parent(case: Case, c: Claim) -> int | None:
    """The one rank that reports the sudden end of a child without its pid, about when the kernel killed a process."""
    e = c.event
    if not is_program(e) or outside(case, e) or (moment(e) is None and e.clock == "boot"):
        return None
    told = [x for x in case.telling("child") if None in (e.at, x.at) or _near(e, x)]
    ranks = {rank for x in told if (rank := case.rank_of(x)) is not None}
    return ranks.pop() if len(ranks) == 1 else None


def _near(e: Event, x: Event) -> bool:
    return abs((e.at or 0.0) - (x.at or 0.0)) <= NEAR_S + 3 * (e.at_sigma + x.at_sigma)


def _killed(case: Case) -> tuple[int, ...]:
    """Ranks of which the launcher says SIGKILL."""
    return tuple(sorted(case.ended("kill")))
