"""What others tell beside the logs of one job: the kernel since its boot, a scheduler, a cluster. Not all of it is about this job.

JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
990               train        gpu       proj         64 OUT_OF_ME+    0:125     another job's, where slurm-991.out lies beside
991               train        gpu       proj         64  COMPLETED      0:0

[111403.118] NVRM: Xid (PCI:0000:91:00): 79, … GPU has fallen off the bus.       of some day; all ranks said that they finished
"""

from __future__ import annotations

import re

from postmortem.diagnose.case import Case, Observation

_ROW = re.compile(r"[ |]*(\d{2,12})(?:_\[?[\d,-]+\]?|\+\d+)?(?:\.[\w]+)?[ |]")  # 990, 990_4, 990+1, 990.batch; sacct -p has bars
_NAMED = re.compile(r"(?:slurm|job|jobid)[-_.=]?(\d{2,12})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"\d{2,12}")
OTHERS = ("kernel", "scheduler", "kubernetes", "gpu-report", "process-table", "cgroup", "core-note")


def rows(case: Case, observations: list[Observation]) -> dict[int, str]:
    """Which observations (by their place in the list) are a table's rows of other jobs, and how that is known."""
    told = [(i, o, m[1]) for i, o in enumerate(observations) if o.event.source_kind == "scheduler" and (m := _ROW.match(o.event.text))]
    if not told:
        return {}
    tables = {o.event.where.source for _, o, _ in told}
    beside = [path for path in case.sources if path not in tables]
    captured = {
        str(x.event.fields.get("job_id")) for x in observations if x.event.where.source not in tables and x.event.fields.get("job_id")
    }
    numbers = {n for path in beside for n in _NUMBER.findall(path)}
    own = {n for path in beside for n in _NAMED.findall(path)} | captured | {n for _, _, n in told if n in numbers}
    if not own:
        return {}
    return {i: f"the row is of job {n}, and these logs are of job {', '.join(sorted(own)[:3])}" for i, _, n in told if n not in own}


def harmless(case: Case, observations: list[Observation]) -> dict[int, str]:
    """Which observations did the job no harm: all ranks say that they finished, none complains, and no launcher says otherwise."""
    ranks = set(case.registry.ranks)
    if not case.of_kind("finished") or not case.finished >= ranks or any(case.exit_code(r) for r in case.exits):
        return {}
    accused = [(i, o) for i, o in enumerate(observations) if o.role in ("cause", "symptom", "confirms") and o.pattern.category is not None]
    if any(not _of_others(o) or set(o.ranks) & ranks for _, o in accused if o.role != "confirms"):
        return {}
    return {i: "all ranks finished and none complains" for i, o in accused if not _after_the_end(case, o)}


def _of_others(o: Observation) -> bool:
    return o.event.source_kind in OTHERS or bool(o.event.fields.get("kernel"))


def _after_the_end(case: Case, o: Observation) -> bool:
    """Whether a scheduler ended what had already said goodbye: then it hung at its exit."""
    if o.event.source_kind == "kernel" or o.event.fields.get("kernel") or o.event.at is None:
        return False
    return all(e.at is not None and o.event.at > e.at for e in case.of_kind("finished"))
