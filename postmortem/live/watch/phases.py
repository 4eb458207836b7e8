"""Phases of a job that may print nothing for long, by the last line or by the code that runs (see phases.yaml).

"Saving checkpoint to /ckpt/step_1000"       checkpoint
frames in torch/_inductor/                   compile
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from postmortem.system import forms

START = "start"  # before the first step
LIMIT = 300  # characters of a line
_REGEXES = forms.regexes("live/watch/phases")


def _of(kind: str) -> dict[str, re.Pattern[str]]:
    return {name.removeprefix(kind): regex for name, regex in _REGEXES.items() if name.startswith(kind)}


_LINES, _FILES, _FUNCTIONS = _of("line-"), _of("file-"), _of("function-")


def of_line(line: str) -> str:
    """Return the phase that a line announces; empty if it announces none, or the end of one."""
    text = line[-LIMIT:] if "\r" in line else line[:LIMIT]
    if _REGEXES["over"].search(text):
        return ""
    return next((name for name, regex in _LINES.items() if regex.search(text)), "")


def of_frames(frames: Iterable[tuple[str, int, str]]) -> str:
    """Return the phase of a stack."""
    rows = list(frames)
    for name, regex in _FILES.items():
        if any(regex.search(file.replace("\\", "/")) for file, _, _ in rows):
            return name
    for name, regex in _FUNCTIONS.items():
        if any(regex.match(function.rsplit(".", 1)[-1]) for _, _, function in rows):
            return name
    return ""
