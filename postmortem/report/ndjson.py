"""The events of the timeline -> one JSON object a line, for jq, DuckDB, pandas, and for Timesketch.

    {"time": "2026-11-20T21:13:48.704000Z", "uncertainty_s": 0.004, "rank": 3, "host": "node-b",
     "kind": "kill", "severity": "fatal", "pattern": "kernel-oom-killed-process", "text": "… Killed …",
     "file": "node-b/dmesg.txt", "line": 81, "message": "… Killed process 29502 …",
     "datetime": "2026-11-20T21:13:48.704000Z", "timestamp_desc": "kill"}

Timesketch imports what has `message`, `datetime` and `timestamp_desc`.
An event that no clock places has a null for its time: `jq -c 'select(.datetime)'` leaves those out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from postmortem.report import json as plain
from postmortem.report import view
from postmortem.report.events import Row, read_events


def render_ndjson(incident: view.Incident) -> str:
    """Return all events by time, those without one last."""
    return "".join(plain.harmless(plain.dump(row, order=False)) + "\n" for row in objects(incident))


def objects(incident: view.Incident) -> Iterator[dict[str, Any]]:
    """The same as mappings. Times are ISO 8601 in UTC, `uncertainty_s` is one standard deviation."""
    rows = read_events(incident, ordered=True)
    rows.sort(key=lambda row: (not math.isfinite(row.time), row.time if math.isfinite(row.time) else 0.0))
    return map(_object, rows)


def _object(row: Row) -> dict[str, Any]:
    moment = iso(row.time)
    return {
        "time": moment,
        "uncertainty_s": row.sigma if moment else None,
        "rank": row.rank,
        "host": row.host or None,
        "kind": row.kind or None,
        "severity": row.severity,
        "pattern": row.pattern or None,
        "text": row.text,
        "file": row.source,
        "line": row.line,
        "message": row.text or row.pattern,
        "datetime": moment,
        "timestamp_desc": row.kind or "line",
    }


def iso(moment: float) -> str | None:
    """Epoch seconds -> ISO 8601 in UTC; None where no clock places the event, or no calendar has the day."""
    try:
        return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None
