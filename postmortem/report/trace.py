"""The events of the timeline -> a trace for ui.perfetto.dev, chrome://tracing or speedscope:
hosts as processes, ranks as threads.

    {"traceEvents": [{"ph": "i", "pid": 2, "tid": 4, "ts": 12573100, "name": "kernel-oom-…", …}, …

Times are microseconds from the first event. The life of each rank, first line to last, is a slice; each event
an instant, the decisive one across all lanes. Made for files up to some 100 MB: those viewers hold all of it
in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from postmortem.model.frame import categories
from postmortem.report import json as plain
from postmortem.report import lanes, text, view
from postmortem.report.events import Place, frame
from postmortem.report.table import cells, iso, moments

if TYPE_CHECKING:
    import pandas as pd


def render_trace(incident: view.Incident) -> str:
    """Return the JSON object form of the trace event format."""
    document = incident.document
    rows = _timed(frame(incident), *lanes.decisive(document))
    states = {item.get("rank"): view.known(item.get("state")) for item in view.rows(document.get("ranks"))}
    events = [*map(_dumped, (*_names(rows), *_lives(rows, states))), *_instants(rows)]
    head = {
        "tool": "postmortem",
        "headline": text.sentence(view.headline(document)),
        "start": min(filter(None, iso(moments(rows["time"]))), default=None),
    }
    listed = ",\n".join(events)
    return f'{{"displayTimeUnit":"ms","otherData":{plain.dump(head, order=False)},"traceEvents":[\n{listed}\n]}}\n'


def _timed(rows: pd.DataFrame, decisive: Place, culprit: int | None) -> pd.DataFrame:
    """What has a time, host by host, rank by rank, by time, with the numbers of the format: `pid` of a host,
    `tid` of a rank (0: the host's own), `ts` in microseconds. `decisive`: the line of the verdict."""
    source, line = decisive
    rows = rows[rows["time"].notna()].copy()
    number = rows["line"].isna() if line is None else (rows["line"] == line).fillna(False)
    rows["decisive"] = (rows["source"] == source) & number.astype(bool)
    if culprit is not None:
        rows["rank"] = rows["rank"].mask(rows["decisive"] & rows["rank"].isna(), culprit)
    rows["tid"] = (rows["rank"] + 1).fillna(0).astype("int64")
    known = rows["line"].astype(object).where(rows["line"].notna(), "")
    both = zip(rows["source"].tolist(), known.tolist(), strict=True)
    found = [f"{place}:{number}" if number != "" else place for place, number in both]
    rows["address"] = categories(found)
    rows = rows.sort_values(["host", "tid", "time", "address"], kind="stable", ignore_index=True)
    rows["pid"] = rows["host"].cat.remove_unused_categories().cat.codes.astype("int64") + 1
    rows["ts"] = ((rows["time"] - rows["time"].min()) * 1e6).round().astype("int64")
    return rows


def _names(rows: pd.DataFrame) -> list[dict[str, Any]]:
    named, pids, threads = (rows[name].tolist() for name in ("host", "pid", "tid"))
    hosts = dict.fromkeys(zip(named, pids, strict=True))
    ranks = dict.fromkeys(zip(pids, threads, strict=True))
    return [
        *(_meta("process_name", pid, 0, text.line(host, 120) or "no host") for host, pid in hosts),
        *(_meta("thread_name", pid, tid, f"rank {tid - 1}" if tid else "host") for pid, tid in ranks),
    ]


def _meta(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": {"name": name}}


def _lives(rows: pd.DataFrame, states: dict[Any, str]) -> list[dict[str, Any]]:
    """Each rank from its first line to its last."""
    own = rows[rows["tid"] > 0].groupby(["pid", "tid"], sort=False)["ts"]
    spans = own.agg(["min", "max"]).reset_index().to_numpy().tolist()
    return [
        {
            **{"ph": "X", "pid": process, "tid": thread, "ts": first, "dur": max(last - first, 1)},
            **{"name": f"rank {thread - 1}", "cat": "life"},
            "args": {"state": states.get(thread - 1) or "unknown"},
        }
        for process, thread, first, last in spans
    ]


def _instants(rows: pd.DataFrame) -> list[str]:
    """Each event, dumped: what many of them share is written once."""
    said = cells(rows["text"], lambda word: _text(word, 400))
    names = [
        _text(text.line(pattern or text.line(word, 60) or kind or "line", 80), 80)
        for pattern, word, kind in zip(rows["pattern"], rows["text"], rows["kind"], strict=True)
    ]
    columns = (
        rows["pid"].tolist(),
        rows["tid"].tolist(),
        rows["ts"].tolist(),
        ["g" if decisive else "t" for decisive in rows["decisive"]],
        names,
        cells(rows["severity"], _dumped),
        said,
        cells(rows["address"], _dumped),
        cells(rows["severity"], _dumped),
        cells(rows["sigma"], _dumped),
    )
    line = (
        '{"ph":"i","pid":%d,"tid":%d,"ts":%d,"s":"%s","name":%s,"cat":%s,'
        '"args":{"text":%s,"where":%s,"severity":%s,"uncertainty_s":%s}}'
    )
    return list(map(line.__mod__, zip(*columns, strict=True)))


def _text(word: str | None, limit: int) -> str:
    return _dumped(text.line(word or "", limit))


def _dumped(value: Any) -> str:
    return plain.harmless(plain.dump(value, order=False))
