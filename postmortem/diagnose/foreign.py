"""What others tell beside the logs of one job: the kernel since its boot, a scheduler, a cluster. Not all of it is about this job.

JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
990               train        gpu       proj         64 OUT_OF_ME+    0:125     another job's, where slurm-991.out lies beside
991               train        gpu       proj         64  COMPLETED      0:0

[111403.118] NVRM: Xid (PCI:0000:91:00): 79, … GPU has fallen off the bus.       of some day; all ranks said that they finished
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set

from postmortem.diagnose import exits, verdict
from postmortem.diagnose.case import BROAD, OTHERS, Case, Observation
from postmortem.diagnose.identity import same_host
from postmortem.diagnose.stale import PROGRAMS, outside
from postmortem.model import Event, Finding, Where

_ROW = re.compile(
    r"[ |]*(\d{2,12})(?:_\[?[\d,-]+\]?|\+\d+)?(?:\.[\w]+)?[ |]"
)  # 990, 990_4, 990+1, 990.batch; sacct -p has bars
_NAMED = re.compile(r"(?:slurm|job|jobid)[-_.=]?(\d{2,12})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"\d{2,12}")
COMPLAINTS = ("peer-lost", "network", "hang", "rendezvous", "collective-mismatch")  # what ranks say of others
SAY_WHY = (
    "cuda-device-assert",
    "cuda-device-side-assert-error",
    "cuda-ecc-error",
    "cuda-contained-error",
    "cuda-nvlink-error",
)


def rows(case: Case, observations: list[Observation]) -> dict[int, str]:
    """Which observations (by their place in the list) are a table's rows of other jobs, and how that is known."""
    told = _rows(case)
    own = _own_numbers(case, told)
    strange = {where: n for where, n in told.items() if own and n not in own}
    why = f", and these logs are of job {', '.join(sorted(own)[:3])}"
    return {
        i: f"the row is of job {strange[o.event.where]}{why}"
        for i, o in enumerate(observations)
        if o.event.where in strange
    }


def _rows(case: Case) -> dict[Where, str]:
    """The number of the job of which each of a table's telling rows speaks."""
    return {
        e.where: m[1]
        for e in case.of_kind("pattern")
        if e.source_kind == "scheduler" and (m := _ROW.match(e.text))
    }


def _own_numbers(case: Case, told: Mapping[Where, str]) -> set[str]:
    """The numbers of this job, as names of files and lines outside of the tables have them."""
    tables = {where.source for where in told}
    if not tables:
        return set()
    beside = [path for path in case.sources if path not in tables]
    captured = {
        str(n)
        for e in case.of_kind("pattern")
        if e.where.source not in tables and (n := e.fields.get("job_id"))
    }
    numbers = {n for path in beside for n in _NUMBER.findall(path)}
    return {n for path in beside for n in _NAMED.findall(path)} | captured | (numbers & set(told.values()))


def harmless(case: Case, observations: list[Observation]) -> dict[int, str]:
    """Which observations did the job no harm: all ranks say that they finished, none complains, and no launcher says otherwise."""
    ranks = set(case.registry.ranks)
    if not _finished(case) or any(case.exit_code(r) for r in case.exits):
        return {}
    accused = [(i, o) for i, o in enumerate(observations) if o.role in ("cause", "symptom", "confirms")]
    if any(
        (not _of_others(o) and o.pattern.category) or set(o.ranks) & ranks
        for _, o in accused
        if o.role != "confirms"
    ):
        return {}
    return {
        i: "all ranks finished and none complains"
        for i, o in accused
        if _of_others(o) and not _after_the_end(case, o)
    }


def _finished(case: Case) -> bool:
    """Whether all ranks said goodbye or, where goodbyes have no names, every console ends in one."""
    byes = {e.where.source for e in case.of_kind("finished")}
    consoles = {
        e.where.source
        for e in case.of_kind("line", "progress")
        if e.source_kind in ("console", "json-lines", "ray")
    }
    return bool(byes) and (
        case.finished >= set(case.registry.ranks) or (not case.finished and byes >= consoles)
    )


def doubtful(case: Case, findings: Sequence[Finding]) -> list[Finding]:
    """Causes that others state, that nothing binds to this job (a rank, a moment of its life, a number) and its ranks do not bear out.

    `dmesg` without -T or --time-format iso counts seconds since a boot that may be months ago, and keeps lines of all jobs since.
    A scheduler's table of several jobs may hold this one's row or not; a cluster's events are mostly of other pods.
    """
    told = [f for f in findings if f.role == "cause" and _of_others(f) and not f.ranks]
    if not told or all(e.source_kind in OTHERS for e in case.events):
        return []
    own = [f for f in findings if f.role in ("cause", "symptom") and not _of_others(f)]
    strange = _strange_rows(case)
    hosts = set(case.registry.host_of.values())
    loose = [
        f
        for f in told
        if f.event.where in strange or not any(_within(case, e) for e in f.events) or _strangers(f, hosts)
    ]
    return [f for f in loose if not _borne_out(case, f, own)]


def guessed(case: Case, f: Finding) -> bool:
    """Whether even without another cause it is no more than a guess. Who hands in a scheduler's log, and no table, means its lines; a
    host's log with dates is believed where nobody knows when the job was."""
    placed = _dated if case.start is None else lambda e: _within(case, e)
    return f.event.where in _strange_rows(case) or (_kernels(f) and not any(map(placed, f.events)))


def _strange_rows(case: Case) -> set[Where]:
    told = _rows(case)
    return set(told) if len(set(told.values())) > 1 and not _own_numbers(case, told) else set()


def _strangers(f: Finding, hosts: Set[str]) -> bool:
    """Whether it speaks of a program that is no rank, or of a host on which this job has none; a fault that a program made on a GPU is
    that program's, and it would have said so."""
    comm = str(f.event.fields.get("comm") or "").lower()
    elsewhere = bool(hosts and f.hosts) and not any(same_host(a, b) for a in hosts for b in f.hosts)
    return elsewhere or (bool(comm) and not comm.startswith(PROGRAMS)) or f.pattern.category == "gpu-fault"


def _dated(e: Event) -> bool:
    return e.at is not None and e.at_sigma < BROAD


def _within(case: Case, e: Event) -> bool:
    """Whether it surely fell into the job's life."""
    return _dated(e) and case.start is not None and not outside(case, e)


def _borne_out(case: Case, f: Finding, own: Sequence[Finding]) -> bool:
    """Whether what the ranks say follows from it. Who states a cause that does not has one of its own; a complaint of others is none."""
    causes = [
        x for x in own if x.role == "cause" and not x.pattern.derived and x.pattern.category not in COMPLAINTS
    ]
    if causes:
        return any(
            verdict.explains(f, x) or (_akin(x, f) and x.pattern.family == "gpu-fault") for x in causes
        )
    if f.pattern.category == "host-oom" and not _ROW.match(f.event.text) and _killed(case, own):
        return True
    return any(_akin(x, f) for x in own)


def _killed(case: Case, own: Sequence[Finding]) -> bool:
    """Whether somebody tells of a SIGKILL, or a rank that had spoken neither finished nor complained."""
    if any(case.exit_code(r) in exits.KILL for r in case.exits) or exits.told_killed(own):
        return True
    told = {r for f in own for r in (*f.ranks, *(case.registry.rank_of(e) for e in f.events))}
    return any(x.pattern.category in COMPLAINTS for x in own) and bool(
        set(case.by_rank) - case.finished - told - set(case.exits)
    )


def _akin(own: Finding, f: Finding) -> bool:
    """A rank's own words on its GPU go with what the kernel says of one; of other things the words have to be of the same kind."""
    if f.pattern.category in ("gpu-hardware", "gpu-fault"):
        return (
            own.pattern.family in ("gpu-fault", "gpu-hardware", "gpu-memory", "nccl")
            and own.pattern.id not in SAY_WHY
        )
    if f.pattern.category == "host-oom":
        return own.pattern.id == "dataloader-worker-killed"
    return own.pattern.category == f.pattern.category or (
        f.pattern.category == "network" and own.pattern.category in ("peer-lost", "hang")
    )


def _kernels(f: Observation | Finding) -> bool:
    return f.event.source_kind == "kernel" or bool(f.event.fields.get("kernel"))


def _of_others(f: Observation | Finding) -> bool:
    return f.event.source_kind in OTHERS or bool(f.event.fields.get("kernel"))


def _after_the_end(case: Case, o: Observation) -> bool:
    """Whether a scheduler ended what had already said goodbye: then it hung at its exit."""
    if _kernels(o) or o.event.at is None:
        return False
    return all(e.at is not None and o.event.at > e.at for e in case.of_kind("finished"))
