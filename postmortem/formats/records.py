r"""One record of a structured log: its lines as a console would show them, and its fields.

    {"level": "error", "event": "step failed", "rank": 2, "exception": "Traceback ...\n  File ..."}
        ->  "ERROR step failed", "Traceback ...", "  File ..."     rank 2

records.yaml lists the names of fields. The innermost value counts: the rank in a line before that of a label.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from postmortem.formats import times
from postmortem.formats.marks import Facts
from postmortem.formats.plain_json import without_surrogates
from postmortem.formats.style import rank_in
from postmortem.model import Stamp
from postmortem.model.digits import number as to_number
from postmortem.model.digits import whole
from postmortem.system import forms

_ROWS, _REGEXES = forms.rows("formats/records"), forms.regexes("formats/records")
NAMES: dict[str, tuple[str, ...]] = {key: tuple(row["names"]) for key, row in _ROWS.items() if "names" in row}
_OBJECT = re.compile(r"\s*\{\s*[\"}]")  # of JSON: not the dict that Python prints
MOST_LINES = 4000  # of one record
MOST_DICTS = 32
MOST_NUMBER = 1_000_000

Record = Mapping[str, Any]


class Text(NamedTuple):
    """One line of a record, its field, and the level and step that a console would show before it."""

    field: str
    text: str
    prefix: str = ""


def load(text: str) -> dict[str, Any] | None:
    """One line as a JSON object, or None."""
    if not _OBJECT.match(text) or not text.rstrip().endswith("}"):
        return None
    try:
        record = without_surrogates(json.loads(text, strict=False), text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    if isinstance(blob := record.get("MESSAGE"), list):  # journald: bytes that are not plain text
        small = [one for one in blob if isinstance(one, int) and 0 <= one < 256]
        record["MESSAGE"] = bytes(small).decode("utf-8", "replace") if len(small) == len(blob) else ""
    return record


def body_of(record: Record) -> tuple[str, str] | None:
    """The field of the message, and the message."""
    for part in (record, *(record[k] for k in NAMES["inside"] if isinstance(record.get(k), dict))):
        for name in NAMES["bodies"]:
            if isinstance(part.get(name), str):
                return name, part[name]
    return None


def texts(record: Record) -> Iterator[Text]:
    """The lines of a record, in the order in which a console has them."""
    yield from islice(_texts(record, 0), MOST_LINES)


def _texts(record: Record, depth: int) -> Iterator[Text]:
    name, body = body_of(record) or ("", "")
    if depth < 2 and (inner := load(body)) is not None and body_of(inner) is not None:
        yield from _texts(inner, depth + 1)
        return
    first, *others = _lines(body)
    if name:
        first += _ending(record, first)
        yield Text(name, first, "" if name in ("log", "textPayload") else _prefix(record, first))
        yield from (Text(name, line) for line in others)
    if _REGEXES["calm"].match(_level(record)):  # `logger.warning(..., exc_info=True)`: the program continues
        return
    traces = ((field, _trace(part.get(field))) for part in _parts(record) for field in NAMES["traces"])
    field, trace = next(((field, trace) for field, trace in traces if trace and trace not in body), ("", ""))
    if trace:
        yield from (Text(field.rsplit(".", 1)[-1], line) for line in _lines(trace))


def _lines(text: str) -> list[str]:
    return text.rstrip("\r\n").replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _prefix(record: Record, line: str) -> str:
    level = _level(record).upper()
    if not _REGEXES["loud"].match(level) or line.startswith("Traceback") or level in line:
        level = ""
    shown = level or any(name in record for name in NAMES["measured"])
    return f"{level}{measured(record)} ".lstrip() if shown else ""


def _level(record: Record) -> str:
    return next((record[k] for k in NAMES["levels"] if isinstance(record.get(k), str)), "")


def _ending(record: Record, line: str) -> str:
    """The signal or code beside a short message: `{"rank": 1, "signal": "SIGTERM", "msg": "exited"}`."""
    if not _REGEXES["ended"].match(line):
        return ""
    signal = record.get("signal") or record.get("sig")
    if isinstance(signal, int) or (isinstance(signal, str) and _REGEXES["signal"].fullmatch(signal)):
        return f" by signal {signal}"
    code = next((record[name] for name in NAMES["codes"] if isinstance(record.get(name), int)), None)
    return "" if code is None else f" with code {code}"


def measured(record: Record) -> str:
    """Step and loss beside the message, as words: ` step 20 loss 0.5`."""
    names = (name for name in NAMES["measured"] if isinstance(record.get(name), int | float))
    return "".join(f" {name} {record[name]}" for name in names)


def _trace(value: object) -> str:
    """A traceback as Python prints it, or as a list of its lines."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return "\n".join(one.rstrip("\n") for one in value[:MOST_LINES])
    return value if isinstance(value, str) and ("\n" in value or value.startswith("Traceback")) else ""


# ── the fields ──────────────────────────────────────────────────────────────────────────────────────────────


def facts(record: Record) -> Facts:
    """Writer and time of a record."""
    parts = _parts(record)
    host = _text(parts, "hosts")
    writer = _text(parts, "writers") or _numbered(parts)
    program = _program(record)
    rank = _number(parts, NAMES["ranks"])
    if rank is None:
        rank = rank_in(writer or program or host or "")
    local, world = _number(parts, NAMES["locals"]), _number(parts, NAMES["worlds"])
    return Facts(rank, local, world, host, _pid(parts), writer, _stamp(parts), program)


def _program(record: Record) -> str:
    """The program of a journal's record; the kernel as `kernel`."""
    if record.get("_TRANSPORT") == "kernel":
        return "kernel"
    name = record.get("SYSLOG_IDENTIFIER") or record.get("_COMM")
    return str(name) if _is_name(name) else ""


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 253 and value.isprintable()


def _parts(record: Record) -> list[Record]:
    """The record and the records nested in it, the nearer first."""
    found: list[Record] = [record]
    for part in found:
        if len(found) >= MOST_DICTS:
            break
        found += [value for value in part.values() if isinstance(value, dict)][: MOST_DICTS - len(found)]
        if (inner := body_of(part)) and (nested := load(inner[1])) is not None:
            found.append(nested)
    return found


def _integer(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        return to_number(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(parts: list[Record], names: tuple[str, ...]) -> int | None:
    values = (_integer(part.get(name)) for part in parts for name in names)
    return next((value for value in values if value is not None and 0 <= value < MOST_NUMBER), None)


def _text(parts: list[Record], names: str) -> str | None:
    values = (part.get(name) for name in NAMES[names] for part in parts)
    flat = (value.get("name") if isinstance(value, dict) else value for value in values)
    return next((str(value) for value in flat if _is_name(value)), None)


def _numbered(parts: list[Record]) -> str:
    """The writer, where processes are numbered by another word than rank: a label of a Kubernetes Job or
    PyTorchJob, or a field."""
    for part in parts:
        for name, value in part.items():
            if name.endswith(("completion-index", "replica-index")) and str(value).isdecimal():
                return f"replica-{str(value)[:6]}"
    found = ((name, _number(parts, (name,))) for name in NAMES["numbered"])
    return next((f"{name}-{number}" for name, number in found if number is not None), "")


def _pid(parts: list[Record]) -> int | None:
    for part in parts:
        process = part.get("process")
        if isinstance(process, dict):
            part = {"pid": process.get("pid", process.get("id"))}
        for name in NAMES["pids"]:
            if (value := _integer(part.get(name))) is not None and 1 < value < 1 << 31:
                return value
    return None


def _stamp(parts: list[Record]) -> Stamp | None:
    micro = parts[0].get("__REALTIME_TIMESTAMP")
    if isinstance(micro, str) and micro.isascii() and micro.isdecimal() and len(micro) < 20:
        return Stamp(whole(micro) / 1e6, "absolute", micro, 1e-4)
    values = (part.get(name) for part in parts for name in NAMES["times"])
    # loguru: {"repr": ..., "timestamp": 1795327248.24}
    stamps = (_time(value.get("timestamp") if isinstance(value, dict) else value) for value in values)
    return next((stamp for stamp in stamps if stamp is not None), None)


def _time(value: object) -> Stamp | None:
    """A time as text, or as seconds, milliseconds, microseconds or nanoseconds since 1970."""
    if isinstance(value, str):
        if not _REGEXES["seconds"].match(value):
            return times.find(value)
        value = float(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    for unit in (1.0, 1e3, 1e6, 1e9) if 0 < value < 1 << 63 else ():
        if 1e9 < value / unit < 4e9:
            return Stamp(value / unit, "absolute", str(value), 1e-3)
    return None
