"""The journal of a run that ended well -> a row without a failure: the hours that its hosts went through.

    row(Path("postmortem-runs/20261123-071845-6bps/run.jsonl"))
    ->  Row(outcome="healthy", hours=3.2, involved=(Involved("host", "gpu-017", False),), …)

`postmortem run` has it filed where the command ends with code 0. Nobody reads its logs for that: it is
healthy by its exit code, or recovered where ranks were started again. The tasks of one step of Slurm have one
row, to which each adds its host; another launcher's hosts have one each, because nothing says for certain
that they are one job.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from postmortem.errors import UsageError
from postmortem.fleet.history.rows import Involved, Row, count, hours, kept, moment
from postmortem.privacy.anonymize import Anonymizer
from postmortem.report import view
from postmortem.version import __version__

JOURNAL = "run.jsonl"
LONGEST = 1 << 16  # bytes of a record


def row(path: Path, names: Anonymizer | None = None) -> Row | None:
    """What is kept of a run; None of one that did not end well: its report tells. `names` hides its host."""
    first, last = _ends(path)
    begun, ended, host = moment(first.get("time")), moment(last.get("time")), kept(first.get("host"))
    well = first.get("event") == "run" and last.get("event") == "done" and last.get("code") == 0
    if not well or last.get("signal") or not host or not begun or not ended:
        return None
    slurm, ranks = view.part(first, "slurm"), view.part(last, "ranks")
    job, step = kept(slurm.get("job")), kept(slurm.get("step"))
    here, world, lives = (count(ranks.get(name)) for name in ("here", "world", "lives"))
    own: list[Any] = [job, step, kept(slurm.get("restart"))] if job and step else [host, begun, first.get("pid")]
    again = (lives or 1) > 1
    if names is not None:
        names.learn(host, "host")
        host = names.text(host)
    return Row(
        uid=hashlib.sha256(json.dumps(["run", *own]).encode()).hexdigest(),
        outcome="recovered" if again else "healthy",
        category=None,
        pattern=None,
        confidence=None,
        headline="Ended with exit code 0" + (f" in attempt {lives}." if again else "."),
        fingerprint=None,
        cause=None,
        code=None,
        job=job,
        world_size=world if step or world == here else None,  # a part of a job is no job of its size
        attempts=lives or 1,
        happened=ended,
        begun=begun,
        ended=ended,
        hours=hours(begun, ended),
        lost_rank_hours=None if again else 0.0,
        torch=None,
        nccl=None,
        version=__version__,
        library=None,
        report=None,
        logs=None,
        involved=(Involved("host", host, False),),
    )


def _ends(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first and the last record."""
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
