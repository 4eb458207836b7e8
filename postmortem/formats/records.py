r"""One record of a structured log -> its lines as a console would show them, and what its fields say of them.

    {"level": "error", "event": "step failed", "rank": 2, "exception": "Traceback ...\n  File ..."}
        ->  "ERROR step failed", "Traceback ...", "  File ..."     rank 2

Names of fields are those of python-json-logger, structlog, loguru (`serialize=True`), ECS, Cloud Logging,
CloudWatch, Loki, Docker's json-file, Splunk, GELF, OpenTelemetry and journald. The innermost word wins: a line that names its
rank knows better than a label.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from postmortem.formats import times
from postmortem.formats.marks import Facts
from postmortem.formats.plain_json import of_whole_letters
from postmortem.model import Stamp
from postmortem.model.digits import number as to_number
from postmortem.model.digits import whole

BODIES = (
    "MESSAGE", "textPayload", "text", "msg", "message", "log", "line", "event", "@message", "_raw", "body", "content", "short_message",
    "Message", "Line",
)  # fmt: skip
TRACES = (
    "exc_info", "exception", "exc_text", "stack_trace", "traceback", "stacktrace", "stack", "error.stack_trace", "error.stack",
    "exc", "exception.stacktrace", "full_message",
)  # fmt: skip
INSIDE = ("jsonPayload", "_source", "record")  # hold a record of the program in one of the collector
RANKS = (
    "global_rank",
    "rank",
    "RANK",
    "process_index",
    "world_rank",
    "_rank",
    "_global_rank",
)  # `_`: of GELF
LOCALS = ("local_rank", "LOCAL_RANK", "local_process_index", "_local_rank")
WORLDS = ("world_size", "WORLD_SIZE", "num_processes", "world", "nranks", "num_ranks", "_world_size")
NUMBERED = (
    "worker",
    "worker_id",
    "replica",
    "replica_id",
    "proc",
    "task",
    "task_id",
    "actor",
    "member",
)  # ranks, where all are there
HOSTS = (
    "_HOSTNAME",
    "host",
    "hostname",
    "host.name",
    "node",
    "nodename",
    "node_name",
    "HOSTNAME",
    "pod_name",
    "pod",
    "instance",
)
PIDS = ("pid", "process_id", "process.pid", "_PID", "process", "PID", "_pid")
WRITERS = (
    "pod_name",
    "pod",
    "logStreamName",
    "log_stream",
    "instance",
    "container_id",
    "service.instance.id",
    "filename",
    "job_completion_index",
)
TIMES = (
    "ts",
    "at",
    "time",
    "timestamp",
    "@timestamp",
    "asctime",
    "date",
    "datetime",
    "Time",
    "Date",
    "receiveTimestamp",
    "_time",
)
LEVELS = ("level", "levelname", "log_level", "log.level", "lvl", "Level", "severity_text")
MEASURED = ("step", "global_step", "iteration", "loss")  # what a structured trainer keeps beside its message
CODES = ("exitcode", "exit_code", "exitCode", "code", "returncode", "return_code", "rc", "status")
_ENDED = re.compile(
    r"(?:\S{1,40} )?(?:exit(?:ed)?|died|ended|terminated|stopped|killed|crashed|gone)\W*$", re.IGNORECASE
)
_SIGNAL = re.compile(r"SIG[A-Z]{3,4}")
MOST_LINES = 4000  # of one record
MOST_DICTS = 32
_LOUD = re.compile(r"(?:WARN(?:ING)?|ERR(?:OR)?|CRIT(?:ICAL)?|FATAL)$", re.IGNORECASE)
_CALM = re.compile(r"(?:WARN|INFO|DEBUG|TRACE|NOTSET)", re.IGNORECASE)
_LABELLED = re.compile(r"(?:^|[._/-])rank[._-]?(\d{1,6})(?=[._/-]|$)", re.IGNORECASE)

Record = Mapping[str, Any]


class Text(NamedTuple):
    """One line of a record, the field that it stands in, and what a console would have in front: its
    level, its step."""

    field: str
    text: str
    lead: str = ""


def load(text: str) -> dict[str, Any] | None:
    """One line as a JSON object; None where it is none."""
    if not text.lstrip().startswith("{") or not text.rstrip().endswith("}"):
        return None
    try:
        record = of_whole_letters(json.loads(text, strict=False), text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    if isinstance(blob := record.get("MESSAGE"), list):  # of journald: what is no plain text, as its bytes
        record["MESSAGE"] = _said_in(blob)
    return record


def _said_in(blob: list[object]) -> str:
    small = [one for one in blob if isinstance(one, int) and 0 <= one < 256]
    return bytes(small).decode("utf-8", "replace") if len(small) == len(blob) else ""


def body_of(record: Record) -> tuple[str, str] | None:
    """The field that holds what the program said, and its text."""
    for part in (record, *(record[k] for k in INSIDE if isinstance(record.get(k), dict))):
        for name in BODIES:
            if isinstance(part.get(name), str):
                return name, part[name]
    raised, reason = record.get("exception"), record.get("reason")  # eliot's actions that failed
    if isinstance(raised, str) and isinstance(reason, str):
        return "exception", f"{raised.removeprefix('builtins.')}: {reason}"
    return None


def texts(record: Record) -> Iterator[Text]:
    """The lines of a record, in the order in which a console has them."""
    yield from islice(_texts(record, 0), MOST_LINES)


def _texts(record: Record, depth: int) -> Iterator[Text]:
    found = body_of(record)
    name, body = found or ("", "")
    if depth < 2 and (inner := load(body)) is not None and body_of(inner) is not None:
        yield from _texts(inner, depth + 1)
        return
    first, *others = _lines(body)
    if name:  # those two hold a line as it was printed, which has all
        first += _ending(record, first)
        yield Text(name, first, "" if name in ("log", "textPayload") else _lead(record, first))
        yield from (Text(name, line) for line in others)
    if _CALM.match(_level(record)):  # `logger.warning(..., exc_info=True)`: whoever says that goes on
        return
    for part in _parts(record):
        for field in TRACES:
            trace = _trace(part.get(field))
            if trace and trace not in body:
                yield from (Text(field.rsplit(".", 1)[-1], line) for line in _lines(trace))
                return


def _lines(text: str) -> list[str]:
    return text.rstrip("\r\n").replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _lead(record: Record, line: str) -> str:
    level = _level(record).upper()
    if not _LOUD.match(level) or line.startswith("Traceback") or level in line:
        level = ""
    return f"{level}{measured(record)} ".lstrip() if level or any(name in record for name in MEASURED) else ""


def _level(record: Record) -> str:
    return next((record[k] for k in LEVELS if isinstance(record.get(k), str)), "")


def _ending(record: Record, line: str) -> str:
    """What a supervisor keeps beside a message of one word: `{"rank": 1, "signal": "SIGTERM", "msg": "exited"}`."""
    if not _ENDED.match(line):
        return ""
    signal = next((record[name] for name in ("signal", "sig") if record.get(name)), None)
    if isinstance(signal, int) or (isinstance(signal, str) and _SIGNAL.fullmatch(signal)):
        return f" by signal {signal}"
    code = next((record[name] for name in CODES if isinstance(record.get(name), int)), None)
    return "" if code is None else f" with code {code}"


def measured(record: Record) -> str:
    """What a structured trainer keeps beside its message, as words behind it."""
    return "".join(f" {name} {record[name]}" for name in MEASURED if isinstance(record.get(name), int | float))


def _trace(value: object) -> str:
    """A traceback as Python prints it; structlog's `dict_tracebacks` and ECS have its frames as data."""
    if isinstance(value, str):
        return value if "\n" in value or value.startswith("Traceback") else ""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return "\n".join(one.rstrip("\n") for one in value[:MOST_LINES])
    if isinstance(value, list):
        return "\n\nThe above exception was the direct cause of the following exception:\n\n".join(
            _rendered(one) for one in reversed(value[:8]) if isinstance(one, dict)
        )
    return ""


def _rendered(one: Record) -> str:
    frames = one.get("frames")
    lines = ["Traceback (most recent call last):"]
    for frame in frames[:200] if isinstance(frames, list) else ():
        if isinstance(frame, dict):
            lines.append(f'  File "{frame.get("filename")}", line {frame.get("lineno")}, in {frame.get("name")}')
    return "\n".join([*lines, f"{one.get('exc_type')}: {one.get('exc_value')}"])


# ── what the fields say ─────────────────────────────────────────────────────────────────────────────────


def facts(record: Record) -> Facts:
    """Who wrote a record and when."""
    parts = list(_parts(record))
    host = _text(parts, HOSTS)
    writer = _text(parts, WRITERS) or _replica(parts) or _numbered(parts)
    program = program_of(record)
    rank = _whole(parts, RANKS)
    if rank is None and (label := _LABELLED.search(writer or program or host or "")):
        rank = whole(label[1])
    local, world = _whole(parts, LOCALS), _whole(parts, WORLDS)
    return Facts(rank, local, world, host, _pid(parts), writer, _stamp(parts), program)


def program_of(record: Record) -> str:
    """Who wrote a record of a journal; the kernel by that name."""
    if record.get("_TRANSPORT") == "kernel":
        return "kernel"
    name = record.get("SYSLOG_IDENTIFIER") or record.get("_COMM")
    return name if isinstance(name, str) and len(name) <= 253 and name.isprintable() else ""


def _parts(record: Record) -> list[Record]:
    """The record and what is nested in it, the nearer first."""
    found: list[Record] = [record]
    for part in found:
        if len(found) >= MOST_DICTS:
            break
        found += [value for value in part.values() if isinstance(value, dict)][: MOST_DICTS - len(found)]
        if (inner := body_of(part)) and (said := load(inner[1])) is not None:
            found.append(said)
    return found


def _whole(parts: list[Record], names: tuple[str, ...]) -> int | None:
    for part in parts:
        for name in names:
            value = part.get(name)
            if isinstance(value, str) and value.isascii() and value.isdecimal():
                value = to_number(value)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1_000_000:
                return value
    return None


def _text(parts: list[Record], names: tuple[str, ...]) -> str | None:
    for name in names:
        for part in parts:
            value = part.get(name)
            if isinstance(value, dict):
                value = value.get("name")
            if isinstance(value, str) and 0 < len(value) <= 253 and value.isprintable():
                return value
    return None


def _replica(parts: list[Record]) -> str:
    """Kubernetes numbers the pods of a Job and the replicas of a PyTorchJob in a label."""
    for part in parts:
        for name, value in part.items():
            if name.endswith(("completion-index", "replica-index")) and str(value).isdecimal():
                return f"replica-{str(value)[:6]}"
    return ""


def _numbered(parts: list[Record]) -> str:
    """Who wrote it, where the program numbers its processes by another word than rank."""
    for name in NUMBERED:
        if (number := _whole(parts, (name,))) is not None:
            return f"{name}-{number}"
    return ""


def _pid(parts: list[Record]) -> int | None:
    for part in parts:
        process = part.get("process")
        if isinstance(process, dict):
            part = {"pid": process.get("pid", process.get("id"))}
        if (pid := _whole_pid(part)) is not None:
            return pid
    return None


def _whole_pid(part: Record) -> int | None:
    for name in PIDS:
        value = part.get(name)
        if isinstance(value, str) and value.isascii() and value.isdecimal():
            value = to_number(value)
        if isinstance(value, int) and not isinstance(value, bool) and 1 < value < 1 << 31:
            return value
    return None


def _stamp(parts: list[Record]) -> Stamp | None:
    micro = parts[0].get("__REALTIME_TIMESTAMP")
    if isinstance(micro, str) and micro.isascii() and micro.isdecimal() and len(micro) < 20:
        return Stamp(whole(micro) / 1e6, "absolute", micro, 1e-4)
    for part in parts:
        for name in TIMES:
            value = part.get(name)
            if isinstance(value, dict):  # loguru: {"repr": ..., "timestamp": 1795327248.24}
                value = value.get("timestamp")
            if (stamp := _time(value)) is not None:
                return stamp
    return None


def _time(value: object) -> Stamp | None:
    """A time as text, or as seconds, milliseconds, microseconds or nanoseconds since the epoch."""
    if isinstance(value, str):
        if not re.fullmatch(r"\d{10,19}(?:\.\d{1,9})?", value, re.ASCII):
            return times.find(value)
        value = float(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    for unit in (1.0, 1e3, 1e6, 1e9) if 0 < value < 1 << 63 else ():  # an integer of JSON has any number of digits
        if 1e9 < value / unit < 4e9:
            return Stamp(value / unit, "absolute", str(value), 1e-3)
    return None
