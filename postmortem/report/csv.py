"""The events of the timeline -> CSV (RFC 4180) for spreadsheets and notebooks; the columns are ndjson's.

    time,uncertainty_s,rank,host,kind,severity,pattern,text,file,line
    2026-11-20T21:13:48.704000Z,0.004,3,node-b,kill,fatal,kernel-oom-killed-process,… Killed …,dmesg.txt,81

A spreadsheet takes a cell that begins with =, +, - or @ for a formula, and a log may have been written to be
one (CWE-1236): such a cell gets an apostrophe in front.
"""

from __future__ import annotations

import csv
import io
from typing import Any

from postmortem.report import view
from postmortem.report.table import COLUMNS, cells, iso, table
from postmortem.report.text import visible

_FORMULA = ("=", "+", "-", "@")


def render_csv(incident: view.Incident) -> str:
    """Return all events by time, those without one last, below a line of names."""
    rows = table(incident)
    held = io.StringIO(newline="")
    writer = csv.writer(held, lineterminator="\n")
    writer.writerow(COLUMNS)
    columns = [iso(rows["time"]), *(cells(rows[name], _cell) for name in COLUMNS[1:])]
    writer.writerows(zip(*columns, strict=True))
    return held.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    shown = visible(value).replace("\n", " ")
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown
