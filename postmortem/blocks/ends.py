"""The end of a rank, as reported by the script that started it: a rank, a word for an end, and a code.

lidar.py rank 0: exit status 139            for r in 0 1 2; do ... & done; wait $pid; echo ...
12:04:11 system  | rank1.1 stopped (rc=-9)  honcho
start.sh: rank 2 (pid 20958) died of SIGXCPU
"""

from __future__ import annotations

import signal
from typing import NamedTuple

from postmortem.formats import forms
from postmortem.model.digits import whole

_REGEXES = forms.regexes("blocks/identities")
_NUMBERS = {s.name: s.value for s in signal.Signals}
_PARTS = ("ed", "termination", "exit", "rc", "code", "status", "->", "=>")  # each form has one of these


class End(NamedTuple):
    """The end of a rank; `code` as of a shell or of Python's subprocess."""

    rank: int
    code: int
    pid: int | None = None


def end_in(body: str, rank: int | None, writer: str = "") -> End | None:
    """The end that a line reports; `rank` is that of its prefix. A number with which a supervisor begins each
    line was read as a writer."""
    if len(body) > 200 or "NCCL WARN" in body or "NCCL INFO" in body:  # `Close from rank 1, retcode 3` (proxy.cc)
        return None
    if rank is None and writer and _REGEXES["number"].search(writer):
        body = f"{writer} {body}"
    lower = body.lower()
    for part in _PARTS:  # no generator: this runs for each line
        if part in lower:
            break
    else:
        return None
    last = body.rstrip()[-1:]
    if not (last.isdecimal() or last in ").!" or "SIG" in body) or not _REGEXES["may-end"].search(body):
        return None
    for name in ("end-of-rank", "end-arrow", "killed-rank"):
        if m := _REGEXES[name].search(body):
            pid = m.groupdict().get("pid")
            return _end(whole(m["rank"]), m.groupdict(), whole(pid) if pid else None)
    for name in ("own-end", "own-killed") if rank is not None else ():
        if m := _REGEXES[name].match(body):
            return _end(rank, m.groupdict(), None)
    return None


def _end(rank: int | None, found: dict[str, str], pid: int | None) -> End | None:
    if "signal" in found:
        name = found["signal"]
        code = -(_NUMBERS.get(name.upper()) or (whole(name) if name.isdecimal() else 0)) or None
    else:
        digits = found["code"]
        code = -whole(digits[1:]) if digits.startswith("-") else whole(digits)
    return End(rank, code, pid) if rank is not None and code is not None and -65 < code < 256 else None
