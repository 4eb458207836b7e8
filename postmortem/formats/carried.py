r"""What Ray's driver or a worker of Dask tells of a task -> the task's own exception; of Ray's with the
worker's pid.

    ray.exceptions.RayTaskError(ManifestError): ray::Worker.run() (pid=22891, ip=192.0.2.2, actor_id=a55477cc)
    KeyError: 'price'
    <blank> The above exception was the direct cause of the following exception: <blank>
    ray::Worker.run() (pid=22891, ip=192.0.2.2, actor_id=a55477cc, repr=<r.Worker object at 0x7fdb3c0ed9d0>)
      File "/opt/train/r.py", line 11, in price
    ManifestError: row 21 of shard 1 is not usable

The driver's own frames stand above, and the worker's carets stand at wrong columns (ray/exceptions.py,
RayTaskError).

    2026-11-22 11:56:04,227 - distributed.worker - ERROR - Compute Failed
    Key:       rank-fb2de1b3
    Exception: "ValueError('row 7 has no label')"
    Traceback: '  File "/opt/train/t.py", line 8, in rank\n    step(row)\n'

Dask prints both as Python would write them in code (distributed/worker.py, execute).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from postmortem.formats.excerpt import Line
from postmortem.library import Signature
from postmortem.model.digits import number
from postmortem.system import lazy as late

MOST = 400
_HEAD = late.regex(
    r"(?:[\w.]{1,80}\.)?(?:RayTaskError|ActorDiedError)?(?:\(\w{1,80}\))?:? ?"
    r"ray::[^\s(]{1,200}\(\) \(pid=(?P<pid>\d{1,9})(?:, ip=(?P<ip>[\w.:]{2,60}))?"
)
_FRAME = late.regex(r'\s*File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,9}), in (?P<func>.{1,200})')
_RAISED = late.regex(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:: .*|:?)$")
_CHAIN = late.regex(r"(?:The above exception was|During handling of)")
_GAP = late.regex(r"\s*$|\s+|ray::")


COMPUTED = Signature(":task-failed", r"(?:Compute|Execute) Failed$", after=32768, before=512)
BLOCK = 400  # lines of a task's arguments
_TOLD = late.regex(r"""Exception: {1,8}(?P<outer>['"])(?P<type>(?:\w+\.)*[A-Za-z_]\w*)\((?P<args>.*)\)(?P=outer)$""")
_QUOTED = late.regex(r"""f?(?P<quote>\\?['"])(?P<text>.*)(?P=quote),?$""")
_TRACE = late.regex(r"Traceback: {1,8}['\"]")


class Carried(NamedTuple):
    """The exception of a task."""

    line: Line
    frames: list[tuple[str, int, str]]
    pid: int | None
    host: str | None


def of_task(body: str, below: Iterator[Line]) -> Carried | None:
    """Read the lines below an exception's line `body`; None where that carries no task's exception."""
    head = _HEAD.match(body)
    if head is None:
        return None
    frames: list[tuple[str, int, str]] = []
    found: Line | None = None
    shown: list[tuple[str, int, str]] = []
    for _, line in zip(range(MOST), below, strict=False):
        said = line.envelope.body
        if frame := _FRAME.match(said):
            frames.append((frame["file"], number(frame["line"]) or 0, frame["func"].strip()))
        elif _CHAIN.match(said):
            frames = []
        elif line.envelope.key or line.envelope.stamp is not None:
            break
        elif _RAISED.match(said):
            found, shown = line, frames
        elif not _GAP.match(said):
            break
    return Carried(found, shown, number(head["pid"]), head["ip"]) if found is not None else None


def of_dask(below: Iterator[Line]) -> Carried | None:
    """Read the lines below `Compute Failed`: the exception's line as a traceback would end with it."""
    found: Line | None = None
    for _, line in zip(range(BLOCK), below, strict=False):
        body = line.envelope.body
        if told := _TOLD.match(body):
            said = _QUOTED.match(told["args"])
            message = said["text"] if said else told["args"]
            text = f"{told['type']}: {message}" if message else told["type"]
            found = Line(line.number, line.text, line.envelope._replace(body=text))
        elif found is not None and _TRACE.match(body):
            shown = (_FRAME.match(part.replace('\\"', '"')) for part in body.split("\\n"))
            frames = [(m["file"], number(m["line"]) or 0, m["func"].strip()) for m in shown if m]
            return Carried(found, frames, None, None)
        elif line.envelope.stamp is not None and " - distributed." in line.text:
            break
    return Carried(found, [], None, None) if found is not None else None
