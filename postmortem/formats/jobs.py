"""A line or a path of a log -> the id of its job, by the kind of its name: Slurm, PBS, LSF, Kubernetes, …

ids("slurmstepd: error: *** JOB 42221 ON clr1247 CANCELLED AT …") -> {"slurm": "42221"}
ids_of_path("logs/slurm-42221.out")                               -> {"slurm": "42221"}
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from postmortem.formats.sieve import Sieve
from postmortem.system import forms

_REGEXES = forms.regexes("formats/jobs")
COMMAND = "command"  # the command that started the job
KINDS = tuple(name for name in _REGEXES if not name.endswith("-path") and name != COMMAND)  # the surest first
_SIEVE = Sieve({name: _REGEXES[name].pattern for name in (*KINDS, COMMAND)})
_LONGEST = 800  # characters of a line that are searched


def ids(text: str) -> dict[str, str]:
    """Return the ids in a line, and the command that it starts, by kind."""
    line = text[:_LONGEST]
    may = _SIEVE.may(line)
    return _found((name, form.compiled.search(line)) for name, form in _SIEVE.forms.items() if may & form.bit)


def ids_of_path(path: str) -> dict[str, str]:
    paths = {name: _REGEXES[f"{name}-path"] for name in KINDS if f"{name}-path" in _REGEXES}
    return _found((name, form.search(path[-_LONGEST:])) for name, form in paths.items())


def _found(matches: Iterable[tuple[str, re.Match[str] | None]]) -> dict[str, str]:
    return {name: next(filter(None, m.groups()), "") for name, m in matches if m}
