"""The events of the timeline -> a trace for ui.perfetto.dev, chrome://tracing or speedscope:
hosts as processes, ranks as threads.

    {"traceEvents": [{"ph": "i", "pid": 2, "tid": 4, "ts": 12573100, "name": "kernel-oom-…", …}, …

Times are microseconds from the first event. The life of each rank, first line to last, is a slice; each event
an instant, the decisive one across all lanes. Made for files up to some 100 MB: those viewers hold all of it
in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from postmortem.report import json as plain
from postmortem.report import lanes, ndjson, text, view
from postmortem.report.events import Row, read_events


def render_trace(incident: view.Incident) -> str:
    """Return the JSON object form of the trace event format."""
    document = incident.document
    decisive, culprit = lanes.decisive(document)
    rows = [row for row in read_events(incident) if math.isfinite(row.time)]
    rows = [row._replace(rank=culprit) if row.rank is None and row.place == decisive else row for row in rows]
    rows.sort(key=lambda row: (row.host, -1 if row.rank is None else row.rank, row.time, row.address))
    base = min((row.time for row in rows), default=0.0)
    hosts = {host: place for place, host in enumerate(dict.fromkeys(row.host for row in rows), 1)}
    states = {item.get("rank"): view.known(item.get("state")) for item in view.rows(document.get("ranks"))}
    events = [*_names(rows, hosts), *_lives(rows, hosts, states, base)]
    events += [_instant(row, hosts[row.host], base, row.place == decisive) for row in rows]
    head = {
        "tool": "postmortem",
        "headline": text.sentence(view.headline(document)),
        "start": ndjson.iso(base) if rows else None,
    }
    listed = ",\n".join(plain.harmless(plain.dump(event, order=False)) for event in events)
    return (
        f'{{"displayTimeUnit":"ms","otherData":{plain.dump(head, order=False)},"traceEvents":[\n{listed}\n'
        f"]}}\n"
    )


def _thread(row: Row) -> int:
    return 0 if row.rank is None else row.rank + 1


def _names(rows: Iterable[Row], hosts: dict[str, int]) -> list[dict[str, Any]]:
    out = [
        _meta("process_name", pid, 0, text.line(host, 120) or "no host named") for host, pid in hosts.items()
    ]
    for host, rank in dict.fromkeys((row.host, row.rank) for row in rows):
        out.append(
            _meta(
                "thread_name",
                hosts[host],
                0 if rank is None else rank + 1,
                "host" if rank is None else f"rank {rank}",
            )
        )
    return out


def _meta(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": {"name": name}}


def _lives(
    rows: Iterable[Row], hosts: dict[str, int], states: dict[Any, str], base: float
) -> list[dict[str, Any]]:
    spans: dict[tuple[str, int], tuple[float, float]] = {}
    for row in rows:
        if row.rank is not None:
            first, last = spans.get((row.host, row.rank), (row.time, row.time))
            spans[row.host, row.rank] = (min(first, row.time), max(last, row.time))
    return [
        _life(hosts[host], rank, first - base, last - first, states.get(rank))
        for (host, rank), (first, last) in spans.items()
    ]


def _life(process: int, rank: int, start: float, length: float, state: str | None) -> dict[str, Any]:
    span = {"ts": _micro(start), "dur": max(_micro(length), 1)}
    return {
        "ph": "X",
        "pid": process,
        "tid": rank + 1,
        **span,
        "name": f"rank {rank}",
        "cat": "life",
        "args": {"state": state or "unknown"},
    }


def _instant(row: Row, process: int, base: float, decisive: bool) -> dict[str, Any]:
    told = {
        "text": text.line(row.text, 400),
        "where": row.address,
        "severity": row.severity,
        "uncertainty_s": row.sigma,
    }
    name = row.pattern or text.line(row.text, 60) or row.kind or "line"
    place = {
        "pid": process,
        "tid": _thread(row),
        "ts": _micro(row.time - base),
        "s": "g" if decisive else "t",
    }
    return {"ph": "i", **place, "name": text.line(name, 80), "cat": row.severity, "args": told}


def _micro(seconds: float) -> int:
    return round(seconds * 1e6)
