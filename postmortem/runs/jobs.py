"""The events and files of a job -> its id, as its scheduler, its cluster or its launcher names it.

Names of the surest kind win, those of its files before those in its lines. Where the files, or else the lines, have
two names of one kind, neither is taken: the logs of a controller, a node or a wrapper list other jobs too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from postmortem.formats.jobs import COMMAND, KINDS, ids_of_path
from postmortem.model import Event
from postmortem.model.grouped import only

OTHERS = ("scheduler", "slurm", "job-report", "unit-status", "kernel")  # sources that may name other jobs


@dataclass(frozen=True, slots=True)
class Name:
    """The id of a job, null where nothing names it; all ids for the option --job; the command that started it."""

    id: str | None = None
    every: frozenset[str] = frozenset()
    command: str | None = None


def name(events: Sequence[Event], paths: Iterable[str]) -> Name:
    """Return the name of the job with these events and files."""
    files = [pair for path in paths for pair in ids_of_path(path).items()]
    lines = [pair for e in events for pair in _ids(e)]
    chosen = (only(found for of, found in pairs if of == kind) for kind in KINDS for pairs in (files, lines))
    every = frozenset(found for kind, found in (*files, *lines) if kind != COMMAND)
    return Name(next(filter(None, chosen), None), every, command(events))


def command(events: Iterable[Event]) -> str | None:
    """Return the first command in these events that starts a job."""
    return next((found for e in events for kind, found in _ids(e) if kind == COMMAND), None)


def _ids(e: Event) -> Iterator[tuple[str, str]]:
    """The ids that an event states, each with its kind."""
    if e.kind == "job":
        yield e.fields["job_name"]
    elif e.kind == "pattern" and e.fields.get("job_id") and e.source_kind not in OTHERS:
        # the scheduler whose words a pattern reads: `slurm-time-limit` is of Slurm
        kind = next((kind for kind in KINDS if str(e.pattern).startswith(kind)), "scheduler")
        yield kind, e.fields["job_id"]
