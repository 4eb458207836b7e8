"""The journal of a run that ended well -> a row without a failure: the hours of its hosts.

    row(Path("postmortem-runs/20261123-071845-6bps/run.jsonl"))
    ->  Row(outcome="healthy", hours=3.2, involved=(Involved("host", "gpu-017", False),), …)

`postmortem run` files it when the command ends with code 0. The logs are not read: the run is healthy by its
exit code, or recovered if ranks were restarted. The tasks of one Slurm step share a row, to which each adds
its host; each host of another launcher has its own row, since nothing proves that they are one job.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from postmortem.errors import UsageError
from postmortem.fleet.history.rows import Involved, Row, clean, count, hours, moment
from postmortem.privacy.anonymize import Anonymizer
from postmortem.report import view
from postmortem.version import __version__

JOURNAL = "run.jsonl"
LONGEST = 1 << 16  # bytes of a record


def row(path: Path, names: Anonymizer | None = None) -> Row | None:
    """Return the row of a run; None for one that did not end well. `names` replaces its host."""
    first, last = _ends(path)
    begun, ended, host = moment(first.get("time")), moment(last.get("time")), clean(first.get("host"))
    well = first.get("event") == "run" and last.get("event") == "done" and last.get("code") == 0
    if not well or last.get("signal") or not host or not begun or not ended:
        return None
    slurm, ranks = view.part(first, "slurm"), view.part(last, "ranks")
    job, step = clean(slurm.get("job")), clean(slurm.get("step"))
    here, world, attempts = (count(ranks.get(name)) for name in ("here", "world", "lives"))
    key: list[Any] = [job, step, clean(slurm.get("restart"))] if job and step else [host, begun, first.get("pid")]
    restarted = (attempts or 1) > 1
    if names is not None:
        names.learn(host, "host")
        host = names.text(host)
    return Row(
        uid=hashlib.sha256(json.dumps(["run", *key]).encode()).hexdigest(),
        outcome="recovered" if restarted else "healthy",
        headline="Ended with exit code 0" + (f" in attempt {attempts}." if restarted else "."),
        attempts=attempts or 1,
        job=job,
        world_size=world if step or world == here else None,  # a part of a job has not the size of the job
        happened=ended,
        begun=begun,
        ended=ended,
        hours=hours(begun, ended),
        lost_rank_hours=None if restarted else 0.0,
        version=__version__,
        involved=(Involved("host", host, False),),
    )


def _ends(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the first and the last record."""
    try:
        with path.open("rb") as file:
            first = file.readline(LONGEST)
            file.seek(max(0, path.stat().st_size - LONGEST))
            lines = file.read(LONGEST).splitlines() or [b""]
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "name a journal of `postmortem run`") from None
    return _record(first), _record(lines[-1])


def _record(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
