"""The failure block of torchrun's ChildFailedError, and the error.json of a rank under @record.

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

import json
import re
from collections.abc import Iterator

from postmortem.blocks.frames import Frames, frame_of
from postmortem.blocks.traceback import exception_fields, is_wrapper
from postmortem.formats import plain_json, times
from postmortem.formats.excerpt import Excerpt, Line, source_event, timed
from postmortem.library import Signature
from postmortem.model import Event, Source, Stamp, Where
from postmortem.model.details import Details
from postmortem.model.digits import whole
from postmortem.privacy import cut
from postmortem.system import forms

OPENER = Signature(":failure-entry", r"rank      : \d+ \(local_rank: \d+\)", after=12288, before=512)
SIGMA = 0.6  # of a time in whole seconds
_REGEXES = forms.regexes("blocks/exceptions")
_FRAME = _REGEXES["frame"]


def parse(excerpt: Excerpt) -> Iterator[Event]:
    """Read one entry: an exit, and the exception if the entry quotes the rank's traceback."""
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
    exit_, exception, last = None, None, excerpt.number
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
            exception = (line, x)
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
    if exception:
        yield _quoted(excerpt, event, *exception, frames)


def _quoted(excerpt: Excerpt, exit_event: Event, line: Line, m: re.Match[str], frames: Frames) -> Event:
    context, before = excerpt.context(line.number)
    fields = exception_fields(m["type"], m["message"], line.text.strip(), frames)
    fields |= {"reported_by": "launcher", "local_rank": exit_event.fields["local_rank"]}
    return exit_event._replace(
        kind="exception",
        where=Where(excerpt.source.path, line.number, None, line.envelope.line),
        text=cut(line.text, 4000),
        severity="fatal",
        fields=fields,
        context=context,
        before=before,
    )


def error_file(source: Source, content: bytes) -> Iterator[Event]:
    """Read an error.json: {"message": {"message": "RuntimeError: …", "extraInfo": {"py_callstack":
    "…", "timestamp": "1795208014"}}}."""
    try:
        record = plain_json.loads(content, "backslashreplace")
    except (ValueError, RecursionError) as e:
        if content.strip() and not str(e).startswith("Extra data"):
            yield source_event(source, "unreadable", f"The error file is no whole JSON: {_why(e)}.")
        return
    message = record.get("message") if isinstance(record, dict) else None
    extra = message.get("extraInfo") if isinstance(message, dict) else None
    text = message.get("message") if isinstance(message, dict) else message
    if not isinstance(text, str):
        return
    extra = extra if isinstance(extra, dict) else {}
    stack = extra.get("py_callstack")
    rows = stack.rstrip().split("\n") if isinstance(stack, str) else []
    frames = [frame_of(m) for row in rows[:2000] if (m := _FRAME.match(row)) and m["func"]]
    raw = str(extra.get("timestamp") or "")
    stamp = Stamp(float(raw), "absolute", raw, SIGMA) if raw.isdecimal() and len(raw) <= 11 else None
    last = next((row for row in reversed(rows) if row and not row[0].isspace()), "")
    first = text.split("\n", 1)[0]
    decisive = last if last and ": " in last and "Caught " in first else first
    kind, _, detail = decisive.partition(": ")
    fields = exception_fields(kind[:200], detail, decisive, frames)
    fields |= {"reported_by": "error-file", "local_rank": source.local_rank}
    fields |= {"wrapper": True} if is_wrapper(kind) else {}
    event = source_event(source, "exception", cut(decisive, 4000), severity="fatal", fields=fields)
    yield timed(event, stamp)


def _why(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos:,} of {len(error.doc):,}"
    if isinstance(error, plain_json.TooMuch):
        return str(error)
    return "it is nested too deep, or has a number that is too long"
