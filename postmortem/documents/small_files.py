"""Small files that people save beside the logs: a table or one record each.

  PID  PPID STAT WCHAN                        ELAPSED     TIME   RSS CMD                   ps
21162 21159 Ssl  futex_do_wait                  00:12 00:00:02 311384 python3 -u train.py

oom_kill 1                                          memory.events (cgroup v2), memory.oom_control (v1)

{"message": {"message": "RuntimeError: …", "extraInfo": {"py_callstack": "…", "timestamp": "1795208014"}}}
                                                    torchelastic's error file, of a rank under @record
{"header": {"id": "0x7f8c496ae9f661", "rank": 2, "n_ranks": 8, "nnodes": 1},
 "metadata": {"dump_timestamp_us": 1748030377748202, "hostname": "gn1", "pid": 1639453},
 "coll_perf": {"coll": "AllReduce", "coll_sn": 1407, "coll_msg_size_bytes": 17179869184, "coll_exec_time_us": 61974}}
                                                    NCCL Inspector, for each collective that a rank completed

The last number of each rank is compared with those of the other ranks' files, as the counters of a recorder are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from postmortem.formats import plain_json
from postmortem.formats.excerpt import decode, document_event, source_event, timed
from postmortem.formats.frames import exception_fields, frame_of, is_wrapper
from postmortem.model import Event, Source, Stamp
from postmortem.model.details import Counts, Details, Group
from postmortem.model.digits import whole
from postmortem.privacy import cut
from postmortem.system import forms

_REGEXES = forms.regexes("formats/excerpts")
_STATES = {"D": "uninterruptible", "T": "stopped", "t": "traced", "Z": "zombie"}


def processes(source: Source, content: bytes) -> Iterator[Event]:
    """One `process` event for each row of `ps`, by the columns of its header."""
    lines = [decode(line) for line in content[: 1 << 20].split(b"\n")]
    columns: list[str] = []
    for i, line in enumerate(lines):
        if _REGEXES["ps-header"].match(line):
            columns = line.split()
            continue
        cells = line.split(None, max(len(columns) - 1, 0))
        row = dict(zip(columns, cells, strict=False))
        if len(cells) < len(columns) or not row.get("PID", "").isdecimal():
            continue
        fields: Details = {
            "state": _STATES.get(row.get("STAT", row.get("S", ""))[:1], ""),
            "wchan": row.get("WCHAN", ""),
            "command": row.get("CMD", row.get("COMMAND", "")),
            "ppid": row.get("PPID", ""),
        }
        yield document_event(source, "process", lines, i, fields, whole(row["PID"]))


def counters(source: Source, content: bytes) -> Iterator[Event]:
    """A `counter` event if a memory cgroup counts OOM kills."""
    lines = [decode(line) for line in content[: 1 << 20].split(b"\n")]
    kills = ((i, whole(m["n"])) for i, line in enumerate(lines) if (m := _REGEXES["oom-kills"].match(line)))
    if found := next((kill for kill in kills if kill[1]), None):
        yield document_event(source, "counter", lines, found[0], {"oom_kill": found[1]}, None)


SIGMA = 0.6  # of a time in whole seconds
_FRAME = forms.regexes("formats/exceptions")["frame"]


def error_file(source: Source, content: bytes) -> Iterator[Event]:
    """Read an error.json."""
    try:
        record = plain_json.loads(content, "backslashreplace")
    except (ValueError, RecursionError) as e:
        if content.strip() and not str(e).startswith("Extra data"):
            yield source_event(source, "unreadable", f"The error file cannot be read: {plain_json.reason(e)}.")
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


_RECORD = re.compile(
    rb'"header"\s*:\s*\{\s*"id"\s*:\s*"(?P<id>[^"]{1,40})"\s*,\s*"rank"\s*:\s*(?P<rank>\d{1,7})\s*,\s*"n_ranks"\s*:\s*'
    rb'(?P<size>\d{1,7})[^{}]*\}.{0,400}?"dump_timestamp_us"\s*:\s*(?P<us>\d{1,17})\s*,\s*"hostname"\s*:\s*'
    rb'"(?P<host>[^"]{1,253})"\s*,\s*"pid"\s*:\s*(?P<pid>\d{1,10}).{0,200}?"coll"\s*:\s*"(?P<op>\w{1,40})"\s*,\s*'
    rb'"coll_sn"\s*:\s*(?P<sn>\d{1,15})',
    re.DOTALL,
)


def inspector(source: Source, content: bytes) -> Iterator[Event]:
    """One `recorder` with the last collective of each communicator; the rank is that in the largest."""
    last: dict[bytes, re.Match[bytes]] = {}
    for m in _RECORD.finditer(content):
        kept = last.get(m["id"])
        if kept is None or whole(m["sn"].decode()) >= whole(kept["sn"].decode()):
            last[m["id"]] = m
    if not last:
        return
    world = max(last.values(), key=lambda m: whole(m["size"].decode()))
    status: dict[str, Counts] = {}
    groups: dict[str, Group] = {}
    for comm, m in last.items():
        done, key = whole(m["sn"].decode()), comm.decode("latin-1")
        status[key] = {"enqueued": done, "started": done, "completed": done}
        groups[key] = {"desc": "NCCL communicator", "ranks": tuple(range(min(whole(m["size"].decode()), 4096)))}
    fields: Details = {"entries": (), "pending": (), "status": status, "groups": groups, "whole": False}
    rank, host, pid = whole(world["rank"].decode()), world["host"].decode("latin-1"), whole(world["pid"].decode())
    op, number, name = (world[key].decode("latin-1") for key in ("op", "sn", "id"))
    text = f"rank {rank}: last completed {op} {number} of communicator {name}"
    event = source_event(source, "recorder", text, rank=rank, host=host, pid=pid, fields=fields)
    us = world["us"].decode()
    yield timed(event, Stamp(whole(us) / 1e6, "absolute", us, 0.001))
