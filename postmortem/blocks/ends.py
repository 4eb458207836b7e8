"""What a script that started the ranks says of their ends: a rank, a word for an end, and a code at the end
of the line.

    lidar.py rank 0: exit status 139            for r in 0 1 2; do ... & done; wait $pid; echo ...
    supervise: launch 2 rank 3 ended with 1
    12:04:11 system  | rank1.1 stopped (rc=-9)  honcho's words
    rank 0 -> 132
    start.sh: rank 2 (pid 20958) died of SIGXCPU
    rank0 pid 16379 ended: exit status 137 (KILL)
    member 1: ProcessExpired: Abnormal termination -11          pebble's exception

Every site words it in its own way, so it is read by its structure. The words of known launchers are patterns.
"""

from __future__ import annotations

import re
import signal
from typing import NamedTuple

from postmortem.model.digits import whole
from postmortem.system import lazy as late

_WHO = (
    r"\b(?:rank|worker|task|trainer|replica|member|r)[ _#:=-]{0,2}"
    r"[\[(<]?(?P<rank>\d{1,5})[\])>]?(?:\.\d{1,2})?"
    r"(?:[ ,]{0,2}\(?\bpid[ :=]{1,2}(?P<pid>\d{2,8})\)?)?"
)
_CODE = r"(?:rc|(?:(?:exit|return|error)[ _-]?)?(?:code|status)|retcode|exit)"
_NAMED = r"(?: ?\((?:signal )?(?:SIG)?[A-Za-z][A-Za-z ]{2,24}\))?"  # 137 (KILL), 139 (Segmentation fault)
_END = (
    r"(?:has |was |is )?"
    rf"(?:(?:\w{{3,40}}: )?abnormal(?:ly)? terminat(?:ion|ed)|exit(?:ed|s)?(?: with| by)?(?: {_CODE})?|{_CODE}|(?:ended|died)(?: with)?(?: {_CODE})?"
    rf"|(?:stopped|terminated|ended|died|exited|finished|left|gone|returned|done)(?: with)?[ (:,]{{1,2}}{_CODE})"
    rf"[ :=(]{{1,3}}(?P<code>-?\d{{1,3}})\)?{_NAMED}[.!]?\s*$"
)
_TOLD = late.regex(rf"{_WHO}[ :,|-]{{1,3}}{_END}", re.IGNORECASE)
_ARROW = late.regex(rf"{_WHO} ?[-=]> ?(?P<code>1(?:29|3[0-9]|4[0-3]|52|53)|-\d{{1,2}})\s*$", re.IGNORECASE)
_OWN = late.regex(rf"(?:\S{{1,40}} )?{_END}", re.IGNORECASE)
_KILLED = (
    r"(?:has |was |is )?(?:died|killed|terminated|ended|stopped|crashed|exited(?= (?:by|on|with) signal))"
    r"(?: (?:of|by|with|from|on))?(?: signal)?[ :=]{1,2}(?P<signal>SIG[A-Z]{3,4}|[1-9]\d?)\W*$"
)
_SIGNALLED = late.regex(rf"{_WHO}[ :,|-]{{1,3}}{_KILLED}", re.IGNORECASE)
_OWN_SIGNALLED = late.regex(rf"(?:\S{{1,40}} )?{_KILLED}", re.IGNORECASE)
_NUMBERED = late.regex(r"(?:^|[\s\]>:])(?:rank|worker|task|trainer|replica|member) ?#?\d{1,5}$", re.IGNORECASE)
_NUMBERS = {s.name: s.value for s in signal.Signals}
_PARTS = ("ed", "termination", "exit", "rc", "code", "status", "->", "=>")  # one of these is in each form
_MAY = late.regex(r"(?:-?\d{1,3}\)?(?: ?\([A-Za-z ]{3,36}\))?[.!]?|SIG[A-Z]{3,4}\W*)\s*$")


class End(NamedTuple):
    """How somebody else saw a rank end; `code` as a shell or Python's subprocess tells it."""

    rank: int
    code: int
    pid: int | None = None


def told(body: str, rank: int | None, writer: str = "") -> End | None:
    """The end that a line tells of; `rank` is whose prefix the line has. Where a supervisor begins each line
    with a process's number, that was taken for who wrote it."""
    if len(body) > 200:
        return None
    if rank is None and _NUMBERED.search(writer):
        body = f"{writer} {body}"
    said = body.lower()
    for part in _PARTS:  # no generator: this is asked of each line
        if part in said:
            break
    else:
        return None
    last = body.rstrip()[-1:]
    if not (last.isdecimal() or last in ").!" or "SIG" in body) or not _MAY.search(body):
        return None
    if m := _TOLD.search(body) or _ARROW.search(body):
        return _end(whole(m["rank"]), m["code"], m["pid"])
    if m := _SIGNALLED.search(body):
        return _killed(whole(m["rank"]), m["signal"], m["pid"])
    if rank is not None and (m := _OWN.match(body)):
        return _end(rank, m["code"], None)
    if rank is not None and (m := _OWN_SIGNALLED.match(body)):
        return _killed(rank, m["signal"], None)
    return None


def _killed(rank: int, signal_: str, pid: str | None) -> End | None:
    number = _NUMBERS.get(signal_.upper()) or (whole(signal_) if signal_.isdecimal() else 0)
    return _end(rank, f"-{number}", pid) if number else None


def _end(rank: int, code: str, pid: str | None) -> End | None:
    value = -whole(code[1:]) if code.startswith("-") else whole(code)
    return End(rank, value, whole(pid) if pid else None) if -65 < value < 256 else None
