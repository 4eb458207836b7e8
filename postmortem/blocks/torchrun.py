"""torchrun's own words: the failure block of ChildFailedError, and the error.json of a rank under @record.

    [0]:
      time      : 2026-11-20_21:22:43
      host      : localhost
      rank      : 1 (local_rank: 1)
      exitcode  : -6 (pid: 1439)  (SIGABRT)
      error_file: <N/A>
      traceback : Signal 6 (SIGABRT) received by PID 1439

One entry is one event of kind `exit`. The block's title "Root Cause (first observed failure)" is the first
process that the agent noticed (torch/distributed/elastic/multiprocessing/errors/__init__.py) and carries no
weight here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from postmortem.blocks.frames import code_line, collective_of
from postmortem.blocks.traceback import WRAPPERS
from postmortem.formats import plain_json, times
from postmortem.formats.excerpt import Excerpt, Line
from postmortem.library import Signature
from postmortem.model import Event, Source, Where
from postmortem.model.digits import whole
from postmortem.privacy import cut

OPENER = Signature(":failure-entry", r"rank      : \d+ \(local_rank: \d+\)", after=12288, before=512)

_RANK = re.compile(r"rank      : (?P<rank>\d{1,7}) \(local_rank: (?P<local>\d{1,7})\)")
_EXIT = re.compile(r"exitcode  : (?P<code>-?\d{1,10})(?: \(pid: (?P<pid>\d{1,10})\)|\s*$)")  # people strike the pid out
_HOST = re.compile(r"host      : (?P<host>[^\s\\\"]+)")
_END = re.compile(r"\s*(?:\[\d+\]:|-{10,}|={10,}|Root Cause|Failures:)")
_FRAME = re.compile(r'\s*File "([^"]{1,400})", line (\d+), in (.+)')
_EXCEPTION = re.compile(r"  (?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*): ?(?P<message>.*)$")


def parse(excerpt: Excerpt) -> Iterator[Event]:
    """Read one entry of the failure block:
    an exit, and where the entry quotes the rank's traceback, an exception."""
    m = _RANK.search(excerpt.text)
    if not m:
        return
    rank, local = whole(m["rank"]), whole(m["local"])
    stamp, host = None, None
    for line in excerpt.preceding():
        if "time      :" in line.text:
            stamp = times.find(line.envelope.body)
            break
        if h := _HOST.search(line.text):
            host = h["host"]
    frames: list[tuple[str, int, str]] = []
    exit_line, exception, last = None, None, excerpt.number
    lines = excerpt.block()
    next(lines)
    for line in lines:
        body = line.envelope.body
        if _END.match(body):
            break
        if e := _EXIT.search(body):
            exit_line = (line, whole(e["code"]), whole(e["pid"]) if e["pid"] else None)
        elif f := _FRAME.match(body):
            frames.append((f[1], whole(f[2]), f[3].strip()[:200]))
        elif frames and (x := _EXCEPTION.match(body)):
            exception = (line, x)
        last = line.number
    if exit_line is None:
        return
    line, code, pid = exit_line
    fields: dict[str, object] = {"exitcode": code, "local_rank": local, "block": True}
    event = excerpt.event("exit", line, fields=fields, rank=rank, pid=pid, end=last)
    event = event._replace(host=_host(host) or event.host)
    if stamp:
        event = event._replace(time=stamp.time, clock=stamp.clock, sigma=0.6, raw_time=stamp.raw)
    yield event
    if exception:
        yield _quoted(excerpt, event, exception[0], exception[1], frames)


def _host(name: str | None) -> str | None:
    """The block names socket.getfqdn(), which on many machines is `localhost` for every node."""
    return None if name is None or name.startswith("localhost") else name


def _quoted(
    excerpt: Excerpt,
    exit_event: Event,
    line: Line,
    m: re.Match[str],
    frames: list[tuple[str, int, str]],
) -> Event:
    context, before = excerpt.context(line.number)
    fields: dict[str, object] = {
        "type": m["type"],
        "message": cut(m["message"], 2000),
        "line": cut(line.text.strip(), 2000),
        "frames": tuple(frames[-60:]),
        "code": code_line(frames),
        "collective": collective_of(frames),
        "reported_by": "launcher",
        "local_rank": exit_event.fields["local_rank"],
    }
    return exit_event._replace(
        kind="exception",
        where=Where(excerpt.source.path, line.number, None, line.envelope.line),
        text=cut(line.text, 4000),
        severity="fatal",
        fields=fields,
        context=context,
        before=before,
    )


def _why(error: Exception) -> str:
    """What the JSON reader says; of a number that is too long it says how to lift Python's limit."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos:,} of {len(error.doc):,}"
    if isinstance(error, plain_json.TooMuch):
        return str(error)
    return "it is nested too deep, or has a number that is too long"


def error_file(source: Source, content: bytes) -> Iterator[Event]:
    """Read an error.json: {"message": {"message": "RuntimeError: …", "extraInfo": {"py_callstack":
    "…", "timestamp": "1795208014"}}}."""
    try:
        record = plain_json.loads(content, "backslashreplace")
    except (ValueError, RecursionError) as e:
        if content.strip() and not str(e).startswith("Extra data"):
            yield Event("unreadable", Where(source.path, None), f"The error file is no whole JSON: {_why(e)}.")
        return
    message = record.get("message") if isinstance(record, dict) else None
    extra = message.get("extraInfo", {}) if isinstance(message, dict) else {}
    text = message.get("message") if isinstance(message, dict) else message
    if not isinstance(text, str):
        return
    extra = extra if isinstance(extra, dict) else {}
    stack = extra.get("py_callstack") if isinstance(extra.get("py_callstack"), str) else ""
    frames = [
        (f[1], whole(f[2]), f[3].strip()[:200]) for line in str(stack).split("\n")[:2000] if (f := _FRAME.match(line))
    ]
    raw = extra.get("timestamp")
    stamp = float(raw) if isinstance(raw, str) and raw.isdecimal() and len(raw) <= 11 else None
    last = next((line for line in reversed(str(stack).rstrip().split("\n")) if line and not line[0].isspace()), "")
    first = text.split("\n", 1)[0]
    decisive = last if last and ": " in last and "Caught " in first else first
    kind, _, detail = decisive.partition(": ")
    fields: dict[str, object] = {
        "type": kind[:200],
        "message": cut(detail, 2000),
        "line": cut(decisive, 2000),
        "frames": tuple(frames[-60:]),
        "code": code_line(frames),
        "collective": collective_of(frames),
        "reported_by": "error-file",
        "local_rank": source.local_rank,
    }
    if kind.rsplit(".", 1)[-1] in WRAPPERS:
        fields["wrapper"] = True
    yield Event(
        kind="exception",
        where=Where(source.path, None),
        text=cut(decisive, 4000),
        time=stamp,
        clock="absolute" if stamp else "none",
        sigma=0.6,
        raw_time=str(raw or ""),
        rank=source.rank,
        host=source.host,
        attempt=source.attempt,
        run=source.run,
        severity="fatal",
        fields=fields,
        source_kind=source.kind,
    )
