"""All events of an incident as CSV, NDJSON, Parquet, and as a trace for Perfetto; and the verdict for CI.

time                     uncertainty_s  rank  host    kind  severity  pattern       text   file     line
2026-11-20 21:13:48.704  0.004             3  node-b  kill  fatal     kernel-oom-…  … K …  dmesg…     81

::error file=train.py,line=412,title=Incident%3A host memory (established)::Rank 3 on node-b …%0A…

Rows are sorted by time, events without a time last. Times are ISO 8601 in UTC; `uncertainty_s` is one standard
deviation.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from postmortem.errors import PostmortemError
from postmortem.report import json as plain
from postmortem.report import lanes, summary, text, view
from postmortem.report.events import Row, frame, read_events
from postmortem.report.templates import environment

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("time", "uncertainty_s", "rank", "host", "kind", "severity", "pattern", "text", "file", "line")
TIMESKETCH = ("message", "datetime", "timestamp_desc")  # the columns that Timesketch imports
_CALENDAR = (-62_135_596_800, 253_402_300_800)  # the years 1 to 9999, which ISO 8601 can write
_FORMULA = ("=", "+", "-", "@")


# ── the table ───────────────────────────────────────────────────────────────────────────────────────────────────


def table(incident: view.Incident) -> pd.DataFrame:
    """Return COLUMNS: `time` as datetime64[us, UTC], `uncertainty_s` as float64, `rank` and `line` as Int64, the
    others as categories. Unknown values are missing."""
    rows = frame(incident).sort_values("time", kind="stable", ignore_index=True)
    rows["uncertainty_s"] = rows["sigma"].where(_in_calendar(rows["time"]))
    rows["time"] = moments(rows["time"])
    for name in ("host", "kind", "pattern"):
        rows[name] = rows[name].cat.remove_categories([""] if "" in rows[name].cat.categories else [])
    return rows.rename(columns={"source": "file"})[list(COLUMNS)]


def _in_calendar(time: pd.Series[float]) -> pd.Series[bool]:
    return time.between(*_CALENDAR, inclusive="left")


def moments(time: pd.Series[float]) -> pd.Series[pd.Timestamp]:
    """Convert epoch seconds to datetime64[us, UTC]; NaT without a time, or outside of the calendar."""
    import numpy as np
    import pandas as pd

    known = time.where(_in_calendar(time)).to_numpy()
    missing = np.isnan(known)
    whole = np.floor(np.where(missing, 0, known))
    # the whole seconds separately, so that a microsecond is rounded as `datetime` rounds it
    micro = np.rint((np.where(missing, 0, known) - whole) * 1e6)
    found = (whole.astype("int64") * 1_000_000 + micro.astype("int64")).view("datetime64[us]")
    found[missing] = np.datetime64("NaT")
    return pd.Series(found, index=time.index).dt.tz_localize("UTC")


def iso(time: pd.Series[pd.Timestamp]) -> list[str | None]:
    """Format moments as ISO 8601 in UTC, to the microsecond."""
    import numpy as np

    stamps = np.datetime_as_string(time.dt.tz_localize(None).to_numpy(), unit="us").tolist()
    return [None if stamp == "NaT" else f"{stamp}Z" for stamp in stamps]


def cells(column: pd.Series[Any], shown: Callable[[Any], Any]) -> list[Any]:
    """Apply `shown` to each value, once for each distinct one; to None for a missing value."""
    import pandas as pd

    codes, known = pd.factorize(column.array)  # of a Series the known are an Index, of Arrow strings
    found = [*map(shown, known.tolist()), shown(None)]  # a missing value has the code -1
    return [found[code] for code in codes.tolist()]


# ── the formats ─────────────────────────────────────────────────────────────────────────────────────────────────


def render_csv(incident: view.Incident) -> str:
    """Return CSV (RFC 4180).

    A spreadsheet treats a cell that begins with =, +, - or @ as a formula, and a log may have been written to be one
    (CWE-1236): such a cell gets an apostrophe in front.
    """
    rows = table(incident)
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(zip(iso(rows["time"]), *(cells(rows[name], _cell) for name in COLUMNS[1:]), strict=True))
    return file.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    shown = text.visible(value).replace("\n", " ")
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown


def render_ndjson(incident: view.Incident) -> str:
    """Return one JSON object a line, with the columns of the table and of TIMESKETCH.

    An event without a time has null: `jq -c 'select(.datetime)'` omits those.
    """
    rows = table(incident)
    shown = {name: cells(rows[name], _dumped) for name in COLUMNS[1:]}
    shown["time"] = shown["datetime"] = list(map(_dumped, iso(rows["time"])))
    shown["message"] = [
        pattern if line == '""' and pattern != "null" else line
        for line, pattern in zip(shown["text"], shown["pattern"], strict=True)
    ]
    shown["timestamp_desc"] = ['"line"' if kind == "null" else kind for kind in shown["kind"]]
    names = (*COLUMNS, *TIMESKETCH)
    line = "{" + ",".join(f'"{name}":%s' for name in names) + "}\n"
    return "".join(map(line.__mod__, zip(*(shown[name] for name in names), strict=True)))


def _dumped(value: Any) -> str:
    return plain.harmless(plain.dump(value, order=False))


def render_parquet(incident: view.Incident) -> bytes:
    """Return the table as a Parquet file. Raise PostmortemError where pyarrow is not installed."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        hint = "pip install pyarrow, or write --format csv or ndjson"
        raise PostmortemError("--format parquet needs pyarrow, which is not installed", hint) from None
    import pandas as pd

    rows = table(incident)
    for name in COLUMNS:
        if rows[name].dtype == "category":
            rows[name] = pd.Categorical(cells(rows[name], lambda word: None if word is None else text.visible(word)))
    file = io.BytesIO()
    rows.to_parquet(file, engine="pyarrow", index=False)
    return file.getvalue()


# ── the trace ───────────────────────────────────────────────────────────────────────────────────────────────────


def render_trace(incident: view.Incident) -> str:
    """Return the JSON object form of the trace event format, for ui.perfetto.dev, chrome://tracing or speedscope.

    Hosts are processes, ranks are threads (0: the host's own, or the launcher's). Times are microseconds from the first
    event. The lifetime of each rank, first line to last, is a slice; each event is an instant, the decisive one across
    all lanes.
    """
    document = incident.document
    decisive, culprit = lanes.decisive(document)
    rows = [
        row._replace(rank=culprit) if row.rank is None and row.place == decisive else row
        for row in read_events(incident)
        if math.isfinite(row.time)
    ]
    rows.sort(key=lambda row: (row.host, _thread(row), row.time, row.address))
    begin = min((row.time for row in rows), default=0.0)
    processes = {host: number for number, host in enumerate(dict.fromkeys(row.host for row in rows), 1)}
    times: dict[tuple[int, int], list[int]] = {}
    instants = []
    dumped = cache(_dumped)  # most values are those of many events
    for row in rows:
        process, thread, time = processes[row.host], _thread(row), round((row.time - begin) * 1e6)
        times.setdefault((process, thread), []).append(time)
        name = text.line(text.line(row.pattern or text.line(row.text, 60) or row.kind or "line", 80), 80)
        severity = dumped(row.severity)
        instants.append(
            f'{{"ph":"i","pid":{process},"tid":{thread},"ts":{time},"s":"{"g" if row.place == decisive else "t"}",'
            f'"name":{dumped(name)},"cat":{severity},"args":{{"text":{dumped(text.line(row.text, 400))},'
            f'"where":{dumped(row.address)},"severity":{severity},"uncertainty_s":{dumped(row.sigma)}}}}}'
        )
    states = {rank: view.known(item.get("state")) for rank, item in view.by_rank(document)}
    nameless = lanes.nameless(document, rows)
    own = {pid: "host" if host else nameless for host, pid in processes.items()}
    several = {pid for pid, tid in times if tid}
    unnamed = {pid: "ranks" if pid in several else own[pid] for pid in processes.values()}
    slices = [
        *(_meta("process_name", pid, 0, text.line(host, 120) or unnamed[pid]) for host, pid in processes.items()),
        *(_meta("thread_name", pid, tid, f"rank {tid - 1}" if tid else own[pid]) for pid, tid in times),
        *(
            {
                **{"ph": "X", "pid": pid, "tid": tid, "ts": found[0], "dur": max(found[-1] - found[0], 1)},
                **{"name": f"rank {tid - 1}", "cat": "life"},
                "args": {"state": states.get(tid - 1) or "unknown"},
            }
            for (pid, tid), found in times.items()
            if tid
        ),
    ]
    start = min((row.time for row in rows if _CALENDAR[0] <= row.time < _CALENDAR[1]), default=None)
    head = {
        "tool": "postmortem",
        "headline": text.sentence(view.headline(document)),
        "start": None if start is None else f"{text.utc(start, '%Y-%m-%dT%H:%M:%S.%f')}Z",
    }
    listed = ",\n".join([*map(_dumped, slices), *instants])
    return f'{{"displayTimeUnit":"ms","otherData":{plain.dump(head, order=False)},"traceEvents":[\n{listed}\n]}}\n'


def _thread(row: Row) -> int:
    return 0 if row.rank is None else row.rank + 1


def _meta(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": {"name": name}}


# ── for CI: annotations of GitHub Actions, and JUnit XML for GitLab and Jenkins ─────────────────────────────

LEVELS = {"incident": "error", "undetermined": "error", "recovered": "warning", "healthy": "notice"}
MAX_MESSAGE = 4000


def render_github(incident: view.Incident) -> str:
    """Return one annotation with the verdict and its proof, and one with the actions.

    The runner reads each line of a step's output that begins with `::` as a command (actions/runner,
    ActionCommand.cs), so a line of a log must never be at the beginning of one of ours; line ends and percent signs
    are escaped as the toolkit does. The command line appends the Markdown output to $GITHUB_STEP_SUMMARY.
    """
    document = incident.document
    verdict = view.part(document, "verdict")
    outcome = view.known(verdict.get("outcome"))
    word = summary.confidence(document)[0]
    title = ": ".join(bit for bit in (view.outcome(document), view.category(document)) if bit)
    title += f" ({word})" if word else ""
    lines = [
        *filter(None, view.lead(document)),
        " · ".join(summary.facts(document)),
        *(f"{p.address}  {text.line(p.text, 400)}" for p in view.proofs(document)[:1]),
    ]
    lines += view.words(verdict.get("because"))[:4]
    code = view.known(view.part(verdict, "culprit").get("code"))
    commands = [_command(LEVELS.get(outcome, "error"), lines, title, code)]
    actions = [f"{place}. {action}" for place, action in enumerate(view.action_lines(document), 1)]
    if actions:
        commands.append(_command("notice", actions, "What to do now"))
    return "\n".join(commands) + "\n"


def _command(level: str, lines: list[str], title: str, code: str = "") -> str:
    message = "\n".join(text.line(line, 800) for line in lines if line)[:MAX_MESSAGE]
    place = re.fullmatch(r"(.{1,300}):([0-9]{1,9})", code, re.DOTALL)
    properties = [f"file={_property(place[1])}", f"line={place[2]}"] if place else []
    return f"::{level} {','.join([*properties, f'title={_property(title)}'])}::{_escaped(message)}"


def _escaped(words: str) -> str:
    return words.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(words: str) -> str:
    return _escaped(text.line(words, 300)).replace(":", "%3A").replace(",", "%2C")


def render_junit(incident: view.Incident) -> str:
    """Return an XML document with one test case."""
    document = incident.document
    template = environment().get_template("junit.xml")
    return template.render(document=document, verdict=view.part(document, "verdict"))
