"""A scheduler's table has rows of other jobs too; only those of this job count.

JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
990               train        gpu       proj         64 OUT_OF_ME+    0:125     another job's, where slurm-991.out lies beside
991               train        gpu       proj         64  COMPLETED      0:0
"""

from __future__ import annotations

import re

from postmortem.diagnose.case import Case, Observation

_ROW = re.compile(r"[ |]*(\d{2,12})(?:_\[?[\d,-]+\]?|\+\d+)?(?:\.[\w]+)?[ |]")  # 990, 990_4, 990+1, 990.batch; sacct -p has bars
_NAMED = re.compile(r"(?:slurm|job|jobid)[-_.=]?(\d{2,12})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"\d{2,12}")


def others(case: Case, observations: list[Observation]) -> dict[int, str]:
    """Which observations (by their place in the list) are rows of other jobs, and how that is known."""
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
    if own:
        return {i: f"the row is of job {n}, and these logs are of job {', '.join(sorted(own)[:3])}" for i, _, n in told if n not in own}
    if case.finished and case.finished >= set(case.registry.ranks) and not any(case.exit_code(r) for r in case.exits):
        return {i: f"the row is of job {n}; nothing says that this is it, and its ranks finished" for i, _, n in told}
    return {}
