"""What Slurm reports of jobs and nodes: sacct in all its formats, `scontrol show job` and `show node`.

JobID|State|ExitCode|NodeList|End
4711|OUT_OF_MEMORY|0:125|gn[1-2]|2026-11-20T11:52:40      the allocation: its state is that of the job
4711.batch|FAILED|1:0|gn1|2026-11-20T11:52:40
4711.extern|COMPLETED|0:0|gn[1-2]|2026-11-20T11:52:40     ends when the allocation does: never the end of the job
4711.0|OUT_OF_MEMORY|0:125|gn[1-2]|2026-11-20T11:52:40    a step: has the reason where the allocation failed

A batch script without `set -e` completes although its step failed, so the last step of a completed job counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from postmortem.documents import outline
from postmortem.documents.facts import fact
from postmortem.formats import times
from postmortem.model import Event, Source, Stamp
from postmortem.model.details import Details
from postmortem.system import forms

MOST = 10_000  # rows of a table
_REGEXES = forms.regexes("documents/slurm")
_COLUMNS: dict[str, str] = forms.rows("documents/slurm")["columns"]["names"]
_PATHS: dict[str, str] = forms.rows("documents/slurm")["paths"]["names"]
_DOWN = re.compile("DOWN|DRAIN|FAIL|NOT_RESPONDING|ERROR")


class Row(NamedTuple):
    """A job, or a step of one. `step` is empty for the allocation."""

    line: int
    job: str
    step: str
    state: str
    code: str
    nodes: str = ""
    end: str = ""
    reason: str = ""

    @property
    def bad(self) -> bool:
        return not self.state.startswith(("COMPLETED", "RUNNING", "PENDING", "REQUEUED", "SUSPENDED", "COMPLETING"))


def parse(source: Source, content: bytes) -> Iterator[Event]:
    """The end of each job, and the state of each node that has a reason."""
    head = content[:4096].lstrip()
    lines, broken = outline.lines_of(source, content)
    if head.startswith((b"{", b"%YAML", b"meta:", b"---", b"jobs:")):
        leaves, broken = outline.read(source, content)
        rows = list(_records(leaves))
    elif _REGEXES["shown"].search(head.decode("latin-1")):
        yield from _nodes(source, lines)
        rows = list(_shown(lines))
    else:
        rows = list(_table(lines))
    yield from (_fact(source, lines, row) for row in _relevant(rows[:MOST]))
    yield from broken if len(rows) <= MOST else [outline.unread(source, f"it has more than {MOST:,} rows")]


def _fact(source: Source, lines: list[str], row: Row) -> Event:
    says = f"slurm {'step' if row.step else 'job'} {row.state} {row.code} {row.reason}".strip()
    fields: Details = {"job_id": row.job}
    if (m := _REGEXES["one-node"].match(row.nodes)) is not None:
        fields["node"] = m[1]
        says += f" on {m[1]}"
    stamp = times.find(row.end) if not row.end.isdecimal() else Stamp(float(row.end), "absolute", row.end, 0.5)
    at = min(row.line, len(lines) - 1)
    return fact(source, lines, at, says, stamp=stamp if row.end not in ("", "0") else None, fields=fields)


def _relevant(rows: Sequence[Row]) -> Iterator[Row]:
    """Every allocation, and the steps that have more than it: those that failed in a job that did, and the last step of
    a job that completed."""
    steps: dict[str, list[Row]] = {}
    jobs = {row.job: row for row in rows if not row.step}
    for row in rows:
        if row.step.isdecimal():
            steps.setdefault(row.job, []).append(row)
    for row in rows:
        if not row.step:
            yield row
        elif row.bad and row.step.isdecimal() and (row.state != "CANCELLED" or _REGEXES["crashed"].search(row.code)):
            job = jobs.get(row.job)
            if job is None or job.bad or steps[row.job][-1] is row:
                yield row
        elif row.bad and row.job not in jobs and row.step == "batch":
            yield row._replace(step="")


# ── sacct ───────────────────────────────────────────────────────────────────────────────────────────────────


def _table(lines: Sequence[str]) -> Iterator[Row]:
    """The rows of `sacct`, with -P, -p, a delimiter, in columns, or without a header."""
    split: Callable[[str], list[str]] | None = None
    names: list[str] = []
    for number, line in enumerate(lines):
        if _REGEXES["header"].search(line):
            below = lines[number + 1] if number + 1 < len(lines) else ""
            split = _columns(line, below)
            names = [_COLUMNS.get(cell.lower(), "") for cell in split(line)]
        elif split is not None and (cells := split(line)):
            yield from _row(number, line, dict(zip(names, cells, strict=False)))
        elif m := _REGEXES["bare"].match(line):
            yield from _row(number, line, {"job": m["job"], "state": m["state"], "code": m["code"]})


def _columns(header: str, below: str) -> Callable[[str], list[str]]:
    """What splits the rows of a table into cells."""
    if rule := [(m.start(), m.end()) for m in re.finditer("-+", below)] if below.startswith("---") else []:
        return lambda line: [line[start:end].strip() for start, end in rule]
    for mark in "|,;\t":
        if mark in header:
            return lambda line: [cell.strip() for cell in line.split(mark)]
    return lambda line: line.split()


def _row(number: int, line: str, cells: dict[str, str]) -> Iterator[Row]:
    m = _REGEXES["job"].match(cells.get("job", ""))
    state = _REGEXES["state"].search(cells.get("state", ""))
    names = _REGEXES["states"].pattern.split("|") if state else []
    name = next((full for full in names if state and full.startswith(state[1])), "")
    if m is None or not name:
        return
    end = cells.get("end") or ""
    yield Row(number, m["job"], m["step"] or "", name, cells.get("code", ""), cells.get("nodes", ""), end,
              cells.get("reason", ""))  # fmt: skip


def _records(leaves: Sequence[outline.Leaf]) -> Iterator[Row]:
    """The jobs and steps of `sacct --json` and `--yaml`, of the data parsers 0.0.37 to 0.0.43."""
    for path, job in outline.items(leaves, 2):
        if path[:1] != ("jobs",):
            continue
        own = [leaf for leaf in job if leaf.path[:1] != ("steps",)]
        number = next((leaf.value for leaf in own if leaf.path == ("job_id",)), "")
        yield from _record(number, "", own)
        for place, step in outline.items([leaf for leaf in job if leaf.path[:1] == ("steps",)], 2):
            name = next((leaf.value for leaf in step if leaf.dotted in ("step.id", "step.id.step_id")), str(place[1]))
            yield from _record(number, name.rpartition(".")[2], step)


def _record(number: str, step: str, leaves: Sequence[outline.Leaf]) -> Iterator[Row]:
    found: dict[str, outline.Leaf] = {}
    for leaf in leaves:
        if (name := _PATHS.get(leaf.dotted)) is not None:
            found.setdefault(name, leaf)
    values = {name: leaf.value for name, leaf in found.items()}
    if "state" in found:
        values |= {"job": f"{number}.{step}" if step else number}
        status, signal = (n if (n := values.get(name, "")).isdecimal() else "0" for name in ("status", "signal"))
        values["code"] = f"{status}:{signal}"
        yield from _row(found["state"].line, "", values)


# ── scontrol show ───────────────────────────────────────────────────────────────────────────────────────────


def _blocks(lines: Sequence[str], key: str) -> Iterator[dict[str, tuple[str, int]]]:
    """The records of `scontrol show`, each value with its line."""
    record: dict[str, tuple[str, int]] = {}
    for number, line in enumerate([*lines, f"{key}=end "]):
        if _REGEXES["shown"].match(line):
            if key in record:
                yield record
            record = {}
        keys = [*_REGEXES["key"].finditer(line[:8000])]
        for m, end in zip(keys, [*(key.start() for key in keys[1:]), 8000], strict=False):
            record.setdefault(m[1], (line[m.end() : end].strip(), number))


def _shown(lines: Sequence[str]) -> Iterator[Row]:
    for record in _blocks(lines, "JobId"):
        value = {name: text for name, (text, _) in record.items()}
        nodes = value.get("FailedNode") or value.get("NodeList", "")
        reason = value.get("Reason", "")
        cells = {"job": value["JobId"], "state": value.get("JobState", ""), "code": value.get("ExitCode", "")}
        cells |= {"nodes": nodes, "end": value.get("EndTime", ""), "reason": "" if reason == "None" else reason}
        yield from _row(record.get("JobState", ("", 0))[1], "", cells)


def _nodes(source: Source, lines: list[str]) -> Iterator[Event]:
    for record in _blocks(lines, "NodeName"):
        name, state = record["NodeName"][0], record.get("State", ("", 0))[0]
        reason, at = record.get("Reason", ("", record["NodeName"][1]))
        if _DOWN.search(state):
            stamp = times.find(reason.rpartition("@")[2]) if "@" in reason else None
            fields: Details = {"node": name, "reason": reason.partition(" [")[0] or state}
            yield fact(source, lines, at, f"slurm node {state} {reason}", stamp=stamp, fields=fields)
