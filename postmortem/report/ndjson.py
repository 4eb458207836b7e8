"""The events of the timeline -> one JSON object a line, for jq, DuckDB, pandas, and for Timesketch.

    {"time": "2026-11-20T21:13:48.704000Z", "uncertainty_s": 0.004, "rank": 3, "host": "node-b",
     "kind": "kill", "severity": "fatal", "pattern": "kernel-oom-killed-process", "text": "… Killed …",
     "file": "node-b/dmesg.txt", "line": 81, "message": "… Killed process 29502 …",
     "datetime": "2026-11-20T21:13:48.704000Z", "timestamp_desc": "kill"}

Timesketch imports what has `message`, `datetime` and `timestamp_desc`.
An event that no clock places has a null for its time: `jq -c 'select(.datetime)'` leaves those out.
"""

from __future__ import annotations

from typing import Any

from postmortem.report import json as plain
from postmortem.report import view
from postmortem.report.table import COLUMNS, cells, iso, table


def render_ndjson(incident: view.Incident) -> str:
    """Return all events by time, those without one last. Times are ISO 8601 in UTC, `uncertainty_s` is one
    standard deviation."""
    rows = table(incident)
    said = {name: cells(rows[name], _json) for name in COLUMNS[1:]}
    said["time"] = said["datetime"] = [_json(moment) for moment in iso(rows["time"])]
    said["message"] = [
        pattern if text == '""' and pattern != "null" else text
        for text, pattern in zip(said["text"], said["pattern"], strict=True)
    ]
    said["timestamp_desc"] = ['"line"' if kind == "null" else kind for kind in said["kind"]]
    names = (*COLUMNS, "message", "datetime", "timestamp_desc")
    line = "{" + ",".join(f'"{name}":%s' for name in names) + "}\n"
    return "".join(map(line.__mod__, zip(*(said[name] for name in names), strict=True)))


def _json(value: Any) -> str:
    return plain.harmless(plain.dump(value, order=False))
