"""What collectors, schedulers and terminals make of a console: functions from its lines to the text of a file."""

from __future__ import annotations

import csv
import io
import json
import textwrap
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

START = datetime(2026, 11, 20, 21, 20, tzinfo=UTC)
Lines = Sequence[str]
Wrap = Callable[[Lines], str]


def _at(i: int) -> datetime:
    return START + timedelta(milliseconds=7 * i)


def _z(i: int) -> str:
    return f"{_at(i):%Y-%m-%dT%H:%M:%S.%f}123Z"


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _each(form: Callable[[int, str], str]) -> Wrap:
    return lambda lines: _joined([form(i, line) for i, line in enumerate(lines)])


def _records(lines: Lines) -> list[str]:
    """A logger's records: what a traceback is goes into one with the line above it, as `exc_info` does."""
    out: list[str] = []
    inside = False
    for line in lines:
        bare = line.rpartition("]: ")[2] if line.startswith("[") else line
        if bare.startswith("Traceback (most recent call last)"):
            inside = True
            out.append(line)
        elif inside and out and (bare[:1] in (" ", "") or line.startswith("[rank")):
            out[-1] += "\n" + line
        elif inside and out:
            out[-1] += "\n" + line
            inside = False
        else:
            out.append(line)
    return out


def _json_array(lines: Lines) -> str:
    """gcloud logging read --format=json"""
    return json.dumps(
        [
            {"insertId": f"k{i:05}", "resource": {"type": "k8s_container", "labels": {"namespace": "ml"}},
             "severity": "DEFAULT", "textPayload": line, "timestamp": _z(i)}
            for i, line in enumerate(lines)
        ],
        indent=2,
    )  # fmt: skip


def _json_array_newest_first(lines: Lines) -> str:
    records = json.loads(_json_array(lines))
    return json.dumps(records[::-1], indent=2)


def _cloudwatch(lines: Lines) -> str:
    """aws logs get-log-events"""
    events = [
        {"timestamp": int(_at(i).timestamp() * 1000), "message": line, "ingestionTime": 1}
        for i, line in enumerate(lines)
    ]
    return json.dumps({"events": events, "nextForwardToken": "f/1"}, indent=4)


def _loki_query(lines: Lines) -> str:
    """The answer of Loki's query_range: one stream, nanoseconds and a line, newest first."""
    values = [[str(int(_at(i).timestamp() * 1e9)), line] for i, line in enumerate(lines)]
    stream = {"stream": {"namespace": "ml", "job": "ml/train"}, "values": values}
    return json.dumps({"status": "success", "data": {"resultType": "streams", "result": [stream]}})


def _csv(lines: Lines) -> str:
    """A table from a log viewer; a record of several lines is one quoted field."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["@timestamp", "level", "message"])
    for i, record in enumerate(_records(lines)):
        rows.writerow([_z(i), "info", record])
    return out.getvalue()


def _logfmt(lines: Lines) -> str:
    return _joined(
        [f"time={_z(i)} level=info msg={json.dumps(record)}" for i, record in enumerate(_records(lines))]
    )


def _structlog(lines: Lines) -> str:
    return _joined(
        [
            json.dumps({"event": r, "timestamp": _z(i), "pod": "train-0"})
            for i, r in enumerate(_records(lines))
        ]
    )


def _loguru(lines: Lines) -> str:
    """loguru with serialize=True"""
    out = []
    for i, record in enumerate(_records(lines)):
        time = {"repr": f"{_at(i):%Y-%m-%d %H:%M:%S.%f}+00:00", "timestamp": _at(i).timestamp()}
        said = {
            "message": record.split("\n")[0],
            "time": time,
            "level": {"name": "INFO", "no": 20},
            "extra": {},
        }
        out.append(json.dumps({"text": record + "\n", "record": said}))
    return _joined(out)


def _cri_partial(lines: Lines) -> str:
    """containerd cuts long lines into pieces with the tag P; here at 100 characters"""
    out = []
    for i, line in enumerate(lines):
        pieces = [line[at : at + 100] for at in range(0, len(line), 100)] or [""]
        out += [f"{_z(i)} stderr P {piece}" for piece in pieces[:-1]]
        out.append(f"{_z(i)} stderr F {pieces[-1]}")
    return _joined(out)


def _docker_partial(lines: Lines) -> str:
    out = []
    for i, line in enumerate(lines):
        for piece in textwrap.wrap(line, 120, drop_whitespace=False, replace_whitespace=False)[:-1]:
            out.append(json.dumps({"log": piece, "stream": "stderr", "time": _z(i)}))
        rest = (textwrap.wrap(line, 120, drop_whitespace=False, replace_whitespace=False) or [""])[-1]
        out.append(json.dumps({"log": rest + "\n", "stream": "stderr", "time": _z(i)}))
    return _joined(out)


def _folded(lines: Lines) -> str:
    """A terminal of 80 columns, copied: long lines are broken where they reach the edge."""
    return _joined([line[at : at + 80] for line in lines for at in range(0, max(1, len(line)), 80)])


def _typescript(lines: Lines) -> str:
    """script(1)"""
    head = 'Script started on 2026-11-20 21:19:00+00:00 [TERM="xterm-256color" COLUMNS="200" LINES="50"]\n'
    return head + "".join(f"\x1b[0m{line}\r\n" for line in lines) + '\nScript done [COMMAND_EXIT_CODE="1"]\n'


def _tai64n(i: int, line: str) -> str:
    at = _at(i)
    return f"@{(1 << 62) + int(at.timestamp()) + 10:016x}{at.microsecond * 1000:08x} {line}"


ENVELOPES: dict[str, Wrap] = {
    "kubectl logs --timestamps": _each(lambda i, line: f"{_z(i)} {line}"),
    "kubectl logs --prefix": _each(lambda i, line: f"[pod/train-worker/pytorch] {line}"),
    "/var/log/pods of containerd": _each(lambda i, line: f"{_z(i)} stderr F {line}"),
    "containerd, lines cut": _cri_partial,
    "docker's json-file": _each(
        lambda i, line: json.dumps({"log": line + "\n", "stream": "stderr", "time": _z(i)})
    ),
    "docker's json-file, lines cut": _docker_partial,
    "docker compose logs": _each(lambda i, line: f"trainer-1  | {line}"),
    "honcho": _each(lambda i, line: f"{_at(i):%H:%M:%S} train.1 | {line}"),
    "GNU parallel --tag": _each(lambda i, line: f"config-a.yaml\t{line}"),
    "journalctl": _each(lambda i, line: f"{_at(i):%b %d %H:%M:%S} node-a train.sh[123]: {line}"),
    "syslog of RFC 5424": _each(lambda i, line: f"<14>1 {_at(i):%Y-%m-%dT%H:%M:%S.%f}+00:00 node-a train 123 - - {line}"),
    "ts of moreutils": _each(lambda i, line: f"{_at(i):%b %d %H:%M:%S} {line}"),
    "tai64n": _each(_tai64n),
    "copied through Windows": _each(lambda i, line: f"{line}\r"),
    "script(1)": _typescript,
    "a terminal's edge": _folded,
    "Cloud Logging, pretty": _json_array,
    "Cloud Logging, newest first": _json_array_newest_first,
    "CloudWatch": _cloudwatch,
    "Loki's query_range": _loki_query,
    "Loki, lines newest first": lambda lines: _each(lambda i, line: line)(
        [f"{_z(i)}\ttrain-0\t{line}" for i, line in enumerate(lines)][::-1]
    ),
    "a table": _csv,
    "logfmt": _logfmt,
    "structlog": _structlog,
    "loguru": _loguru,
}  # fmt: skip
