"""Tables that people save beside the logs: ps, and the counters of a memory cgroup.

  PID  PPID STAT WCHAN                        ELAPSED     TIME   RSS CMD
21162 21159 Ssl  futex_do_wait                  00:12 00:00:02 311384 python3 -u train.py

oom_kill 1                                          memory.events (cgroup v2), memory.oom_control (v1)
"""

from __future__ import annotations

from collections.abc import Iterator

from postmortem.formats.excerpt import decode, document_event
from postmortem.model import Event, Source
from postmortem.model.details import Details
from postmortem.model.digits import whole
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
