"""Work for the pool's tests: tasks that do their work, die, hang, starve or raise.
Workers import it by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from postmortem.errors import PatternError
from postmortem.model import Scanned
from postmortem.reading import Job, Read, read, read_bundle

KILL, FAULT, HANG, STARVE, RAISE, OURS, ONCE = range(-1, -8, -1)


def halves(bundle: tuple[object, ...]) -> list[float]:
    """Half of each number; negative ones do harm."""
    return [_half(item) for item in bundle]


def _half(item: object) -> float:
    number, folder = item if isinstance(item, tuple) else (item, "")
    assert isinstance(number, int)
    if number == ONCE and not (mark := Path(folder) / "died").exists():
        mark.touch()
        number = KILL
    _harm(number)
    return number / 2


def _harm(number: int) -> None:
    if number == KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == FAULT:
        os.kill(os.getpid(), signal.SIGSEGV)
    if number == HANG:
        time.sleep(600)
    if number == STARVE:
        bytearray(1 << 40)
    if number == RAISE:
        raise ValueError("no such half")
    if number == OURS:
        raise PatternError("x.yaml:3: wrong")


def read_or_die(jobs: tuple[Job, ...]) -> list[Read]:
    """The work of a worker of `analyze`, but for logs with the name of a deadly harm."""
    out = []
    for job in jobs:
        kind = job.container.path.name.split("-")[0]
        _harm({"kill": KILL, "fault": FAULT, "hang": HANG, "starve": STARVE}.get(kind, 0))
        out.append(read(job.container, job.extra, job.lines))
    return out


def read_or_die_at_the_second_part(jobs: tuple[Job, ...]) -> list[Read | Scanned]:
    """A worker of which the second part of a divided log is the death."""
    _harm(KILL if any(job.part and job.part.start == 1 << 20 for job in jobs) else 0)
    return read_bundle(jobs)
