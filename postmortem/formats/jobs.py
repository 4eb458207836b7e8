"""A line or a path of a log -> the id of its job, by the kind of its name: Slurm, PBS, LSF, Kubernetes, …

ids("slurmstepd: error: *** JOB 42221 ON clr1247 CANCELLED AT …") -> {"slurm": "42221"}
ids_of_path("logs/slurm-42221.out")                               -> {"slurm": "42221"}
"""

from __future__ import annotations

from collections.abc import Iterable

from postmortem.system import forms

_REGEXES = forms.regexes("formats/jobs")
COMMAND = "command"  # the command that started the job
KINDS = tuple(name for name in _REGEXES if not name.endswith("-path") and name != COMMAND)  # the surest first
_LONGEST = 800  # characters of a line that are searched


def ids(text: str) -> dict[str, str]:
    """Return the ids in a line, and the command that it starts, by kind."""
    return _found(text[:_LONGEST], (*KINDS, COMMAND))


def ids_of_path(path: str) -> dict[str, str]:
    """Return the ids in a path, by kind."""
    found = _found(path[-_LONGEST:], [f"{name}-path" for name in KINDS if f"{name}-path" in _REGEXES])
    return {name.removesuffix("-path"): value for name, value in found.items()}


def _found(text: str, names: Iterable[str]) -> dict[str, str]:
    matches = ((name, _REGEXES[name].search(text)) for name in names)
    return {name: next(filter(None, m.groups()), "") for name, m in matches if m}
