"""Reports of schedulers on jobs and nodes, in any shape: tables, `Key=Value` and `key: value`, JSON and YAML.

JobID|State|ExitCode|NodeList|End
4711|OUT_OF_MEMORY|0:125|gn[1-2]|2026-11-20T11:52:40      the allocation: its state is that of the job
4711.batch|FAILED|1:0|gn1|2026-11-20T11:52:40
4711.extern|COMPLETED|0:0|gn[1-2]|2026-11-20T11:52:40     ends when the allocation does: never the end of the job
4711.0|OUT_OF_MEMORY|0:125|gn[1-2]|2026-11-20T11:52:40    a step: has the reason where the allocation failed

Job Id: 4711.pbs01                                        PBS, Grid Engine, HTCondor, Docker, systemd, and the
    job_state = F                                         batch services of clouds
    Exit_status = 265

A record is a row or a block with a job or a node, and a state. `schedulers.yaml` has the names of the fields, and the
words of the states. A batch script without `set -e` completes although its step failed, so the last step of a completed
job counts.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from postmortem.documents import outline
from postmortem.formats import times
from postmortem.formats.excerpt import fact
from postmortem.model import Event, Source, Stamp
from postmortem.model.details import Details
from postmortem.system import forms

MOST_ROWS = 10_000  # records
_REGEXES = forms.regexes("documents/schedulers")
_NAMES, _WORDS, _SLURM, _PBS = (
    forms.rows("documents/schedulers")[name]["names"] for name in ("fields", "words", "words of squeue", "codes of PBS")
)
_REASONS = {name: _REGEXES[name] for name in ("OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "CANCELLED")}
_SIGNAL = 256  # PBS adds it to the number of a signal
Record = dict[str, tuple[str, int]]  # field -> value, line


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
    slurm, head = source.kind == "slurm", content[:4096].lstrip()
    lines, broken = outline.lines_of(source, content)
    records: Iterator[Record]
    if head[:1] in b"{[" or head.startswith((b"%YAML", b"meta:", b"---", b"jobs:")):
        leaves, broken = outline.read(source, content)
        records = _nested(leaves)
    elif _REGEXES["shown"].search(head.decode("latin-1")):
        records = _blocks(lines, _REGEXES["pair"])
    else:
        records = _table(lines, slurm) if slurm or any(map(_is_header, lines[:20])) else _blocks(lines, _REGEXES["row"])
    rows: list[Row] = []
    for record in records:
        if "job" in record or {"state", "code"} <= {*record} or (not slurm and {"name", "state"} & {*record}):
            rows += _row(record, slurm)
        elif "node" in record or "nodes" in record:
            yield from _node(source, lines, record)
        if len(rows) > MOST_ROWS:
            broken = [outline.unread(source, f"it has more than {MOST_ROWS:,} rows")]
            break
    yield from (_fact(source, lines, row) for row in _relevant(rows[:MOST_ROWS]))
    yield from broken


def _fact(source: Source, lines: list[str], row: Row) -> Event:
    system = "slurm" if source.kind == "slurm" else "batch"
    signature = f"{system} {'step' if row.step else 'job'} {row.state} {row.code} {row.reason}".strip()
    fields: Details = {"job_id": row.job}
    if (m := _REGEXES["one-node"].match(row.nodes)) is not None:
        fields["node"] = m[1]
        signature += f" on {m[1]}"
    at = min(row.line, len(lines) - 1)
    return fact(source, lines, at, signature, stamp=_stamp(row.end), fields=fields)


def _stamp(text: str) -> Stamp | None:
    """Of a date, or of seconds or milliseconds since 1970."""
    whole, _, rest = text.partition(".")
    if not whole.isdecimal() or not (rest or "0").isdecimal():
        return times.find(text)
    seconds = float(text) / (1000 if len(whole) == 13 else 1)
    return Stamp(seconds, "absolute", text, 0.5) if 1e9 < seconds < 1e10 else None


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


def _row(record: Record, slurm: bool) -> Iterator[Row]:
    value = {name: text for name, (text, _) in record.items()}
    name = value.get("job") or value.get("name", "")
    m = _REGEXES["job"].match(name)
    reason = "" if value.get("reason") in ("None", None) else value["reason"]
    if "(" in (
        words := value.get("state", "")
    ):  # `failed (Result: oom-kill) since Fri 2026-11-20 11:52:40 UTC; 3min ago`
        reason = f"{words.partition('(')[2].partition(')')[0]} {reason}".strip()
    code = _code(value.get("code", ""), value.get("signal", ""))
    state = _state(value.get("state", ""), code, reason, slurm)
    if value.get("oom", "").lower() == "true":
        state = "OUT_OF_MEMORY"
    if state and (m or not (slurm and name)):
        line = next(record[key][1] for key in ("state", "code", "job", "name") if key in record)
        job, step = (m["job"], m["step"] or "") if m and slurm else (name, "")
        end = value.get("end") or words.partition(" since ")[2].partition(";")[0]
        nodes = value.get("failed node") or value.get("nodes") or value.get("node", "")
        yield Row(line, job, step, state, code, nodes, end, reason)


def _state(text: str, code: str, reason: str, slurm: bool) -> str:
    """The full name of a state: `OUT_OF_MEMORY` for `OUT_OF_ME+`, `TO` for squeue, `Failed` with `OOMKilled`."""
    word = text.split(" ")[0].strip('+*"').lower().removeprefix("job_state_")
    known = {**_WORDS, **_SLURM} if slurm else _WORDS
    name: str = known.get(word, "" if word or slurm else "ENDED")
    if not name and len(word) > len("TIME"):
        name = next((full for start, full in known.items() if start.startswith(word)), "")
    if name == "ENDED":
        name = "" if not code else "COMPLETED" if code == "0:0" else "FAILED"
    if name in ("FAILED", "CANCELLED"):
        name = next((refined for refined, form in _REASONS.items() if form.search(reason)), name)
    return name


def _code(text: str, signal: str) -> str:
    """`STATUS:SIGNAL` as Slurm has it."""
    if ":" in text:
        return text
    m = _REGEXES["number"].search(text)
    number = int(m[0]) if m else 0
    if (s := _REGEXES["signal"].search(signal)) and s[0] != "0":
        return f"{number}:{s[1] or getattr(signals, 'SIG' + s[2], 0)}"
    if number > _SIGNAL:
        return f"0:{number - _SIGNAL}"
    return _PBS.get(str(number), f"{number}:0") if m else ""


def _node(source: Source, lines: list[str], record: Record) -> Iterator[Event]:
    """A node that is down or drained. A dump of all nodes has many without a reason."""
    value = {name: text for name, (text, _) in record.items()}
    state, reason = value.get("state", ""), value.get("reason", "")
    if _REGEXES["down"].search(state) or (not state and reason.lower() not in ("", "none")):
        when = value.get("end") or reason.rpartition("@")[2]
        node = value.get("node") or value["nodes"]
        fields: Details = {"node": node, "reason": reason.partition(" [")[0] or state}
        at = min(record.get("reason", next(iter(record.values())))[1], len(lines) - 1)
        yield fact(source, lines, at, f"slurm node {state} {reason}", stamp=_stamp(when), fields=fields)


# ── the shapes ──────────────────────────────────────────────────────────────────────────────────────────────


def _is_header(line: str) -> bool:
    return bool(_REGEXES["header"].search(line[:2000]))


def _table(lines: Sequence[str], slurm: bool) -> Iterator[Record]:
    """The rows of a table with a delimiter, in columns, or without a header."""
    split: Callable[[str], list[str]] | None = None
    names: list[str] = []
    for number, line in enumerate(lines):
        if _is_header(line):
            below = lines[number + 1] if number + 1 < len(lines) else ""
            split = _columns(line, below)
            names = [_NAMES.get(cell.lower(), "") for cell in split(line)]
        elif m := _REGEXES["drained"].match(line):
            yield {name: (text, number) for name, text in m.groupdict().items()}
        elif split is not None and (cells := split(line)):
            yield {name: (cell, number) for name, cell in zip(names, cells, strict=False) if name and cell}
        elif slurm and (m := _REGEXES["bare"].match(line)):
            yield {name: (text, number) for name, text in m.groupdict().items() if text}


def _columns(header: str, below: str) -> Callable[[str], list[str]]:
    """The function for the cells of a row."""
    if rule := [(m.start(), m.end()) for m in re.finditer("-+", below)] if below.startswith("---") else []:
        return lambda line: [line[start:end].strip() for start, end in rule]
    for mark in "|,;\t":
        if mark in header:
            return lambda line: [cell.strip() for cell in line.split(mark)]
    return lambda line: line.split()


def _blocks(lines: Sequence[str], form: re.Pattern[str]) -> Iterator[Record]:
    """The records of a text with keys: the first of them begins each record. Continuation lines are indented."""
    record: Record = {}
    first, last = "", ""
    for number, line in enumerate(lines):
        keys = [*form.finditer(line[:8000])]
        if not keys and last and line.startswith((" ", "\t")):
            record[last] = (f"{record[last][0]} {line.strip()}"[:1000], record[last][1])
        for m, end in zip(keys, [*(key.start() for key in keys[1:]), 8000], strict=False):
            first = first or m[1]
            if m[1] == first:
                yield record
                record = {}
            name = last = _NAMES.get(m[1].strip().lower(), "")
            if name and line[m.end() : end].strip() not in ("", "(null)"):
                record.setdefault(name, (line[m.end() : end].strip().strip('"'), number))
            last = name if name in record else ""
    yield record


def _nested(leaves: Sequence[outline.Leaf]) -> Iterator[Record]:
    """The objects of JSON or YAML: those of a list at its top, the steps of each, or the one at the top."""
    found: dict[tuple[str | int, ...], Record] = {}
    for leaf in leaves:
        at = next((n + 1 for n, key in enumerate(leaf.path[:2]) if isinstance(key, int)), 0)
        at = at + 2 if leaf.path[at : at + 1] == ("steps",) else at
        name = ".".join(key for key in leaf.path[at:] if isinstance(key, str)).lower()
        if field := _NAMES.get(name):
            found.setdefault(leaf.path[:at], {}).setdefault(field, (leaf.value, leaf.line))
    whole = found.get((), {})
    for path, record in {(): whole}.items() if "state" in whole else found.items():
        if "steps" in path and "job" in (of := found.get(path[:-2], {})):
            step = record.get("step", (str(path[-1]), 0))[0].rpartition(".")[2]
            record["job"] = (f"{of['job'][0]}.{step}", 0)
        yield record
