"""The failure block of torchrun's ChildFailedError.

    [0]:
      time      : 2026-11-20_21:22:43
      host      : localhost
      rank      : 1 (local_rank: 1)
      exitcode  : -6 (pid: 1439)  (SIGABRT)
      error_file: <N/A>
      traceback : Signal 6 (SIGABRT) received by PID 1439

One entry is one event of kind `exit`. "Root Cause (first observed failure)" is the first process that the agent
noticed (torch/distributed/elastic/multiprocessing/errors/__init__.py) and has no weight.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from postmortem.formats import times
from postmortem.formats.excerpt import Excerpt, Line, timed
from postmortem.formats.frames import Frames, exception_fields, frame_of
from postmortem.library import Signature
from postmortem.model import Event, Where
from postmortem.model.details import Details
from postmortem.model.digits import whole
from postmortem.privacy import cut
from postmortem.system import forms

OPENER = Signature(":failure-entry", r"rank      : \d+ \(local_rank: \d+\)", after=12288, before=512)
SIGMA = 0.6  # of a time in whole seconds
_REGEXES = forms.regexes("formats/exceptions")
_FRAME = _REGEXES["frame"]


def parse(excerpt: Excerpt) -> Iterator[Event]:
    """Read one entry: an exit, and the exceptions if the entry quotes the rank's traceback."""
    m = _REGEXES["entry-rank"].search(excerpt.text)
    if not m:
        return
    stamp, host = None, None
    for line in excerpt.preceding():
        if "time      :" in line.text:
            stamp = times.find(line.envelope.body)
            break
        if h := _REGEXES["entry-host"].search(line.text):
            host = h["host"]
    frames: Frames = []
    exit_, last = None, excerpt.number
    chain: list[tuple[Line, re.Match[str], Frames]] = []  # the last exception, and those that it was raised from
    lines = excerpt.block()
    next(lines)
    for line in lines:
        body = line.envelope.body
        if _REGEXES["entry-end"].match(body):
            break
        if e := _REGEXES["entry-exit"].search(body):
            exit_ = (line, e)
        elif (f := _FRAME.match(body)) and f["func"]:
            frames.append(frame_of(f))
        elif frames and (x := _REGEXES["entry-exception"].match(body)):
            chain.append((line, x, frames))
            frames = []
        last = line.number
    if exit_ is None:
        return
    line, e = exit_
    fields: Details = {"exitcode": whole(e["code"]), "local_rank": whole(m["local"]), "block": True}
    pid = whole(e["pid"]) if e["pid"] else None
    event = excerpt.event("exit", line, fields=fields, rank=whole(m["rank"]), pid=pid, end=last)
    if host and not host.startswith("localhost"):  # socket.getfqdn(), which may be `localhost` on every node
        event = event._replace(host=host)
    event = timed(event, stamp._replace(sigma=SIGMA) if stamp else None)
    yield event
    for quoted in chain:
        yield _quoted(excerpt, event, *quoted, chained=quoted is not chain[-1])


def _quoted(
    excerpt: Excerpt, exit_event: Event, line: Line, m: re.Match[str], frames: Frames, *, chained: bool
) -> Event:
    context, before = excerpt.context(line.number)
    fields = exception_fields(m["type"], m["message"], line.text.strip(), frames)
    fields |= {"reported_by": "launcher", "local_rank": exit_event.fields["local_rank"]}
    fields |= {"chained": True} if chained else {}
    return exit_event._replace(
        kind="exception",
        where=Where(excerpt.source.path, line.number, None, line.envelope.line),
        text=cut(line.text, 4000),
        severity="fatal",
        fields=fields,
        context=context,
        before=before,
    )
