"""The forms that collectors, schedulers and terminals give to a console: functions from its lines to a file's text."""

from __future__ import annotations

import csv
import io
import json
import re
import textwrap
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from conftest import table

START = datetime(2026, 11, 20, 21, 20, tzinfo=UTC)
APART = timedelta(microseconds=10)  # at least, between two lines that arrive
_OWN = re.compile(r"\b(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?")
_GLOG = re.compile(r"(?:^|[\[ ])[IWEF](\d\d)(\d\d) (\d\d:\d\d:\d\d)\.(\d{6,9})")


class Line(str):
    """A line of a console, when it came to the collector, and on which host."""

    at: datetime
    host: str


Lines = Sequence[Line]
Wrap = Callable[[Lines], str]


def arrived(lines: Sequence[str], host: str = "node-a") -> list[Line]:
    """The lines with the times of their own stamps; one without has come right after the one above it."""
    own = [_stamp(line) for line in lines]
    now = next((at for at in own if at is not None), START) - APART
    out = []
    for text, at in zip(lines, own, strict=True):
        now = max(at or START, now + APART) if at is not None else now + APART
        out.append(_line(text, now, host))
    return out


def _stamp(line: str) -> datetime | None:
    if m := _GLOG.search(line[:80]):
        return datetime.fromisoformat(f"{START.year}-{m[1]}-{m[2]}T{m[3]}.{m[4][:6]}+00:00")
    m = _OWN.search(line[:80])
    if m is None:
        return None
    return datetime.fromisoformat(f"{m[1]}T{m[2]}.{(m[3] or '0'):0<6}+00:00")


def _line(text: str, at: datetime, host: str) -> Line:
    line = Line(text)
    line.at, line.host = at, host
    return line


def _z(line: Line) -> str:
    return f"{line.at:%Y-%m-%dT%H:%M:%S.%f}123Z"


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _each(form: Callable[[Line], str]) -> Wrap:
    return lambda lines: _joined([form(line) for line in lines])


def _form(form: str) -> Wrap:
    return _each(lambda x: form.format(line=x, at=x.at, seconds=x.at.timestamp(), host=x.host, z=_z(x)))


def _records(lines: Lines) -> list[Line]:
    """A logger's records: what a traceback is goes into one with the line above it, as `exc_info` does."""
    out: list[Line] = []
    inside = False
    for line in lines:
        bare = line.rpartition("]: ")[2] if line.startswith("[") else line
        starts = bare.startswith("Traceback (most recent call last)")
        if inside and out and not starts:
            out[-1] = _line(f"{out[-1]}\n{line}", out[-1].at, out[-1].host)
            inside = bare[:1] in (" ", "") or line.startswith("[rank")
        else:
            out.append(line)
            inside = inside or starts
    return out


def _json_array(lines: Lines) -> str:
    """gcloud logging read --format=json"""
    return json.dumps(
        [
            {"insertId": f"k{line.at:%H%M%S%f}", "resource": {"type": "k8s_container", "labels": {"namespace": "ml"}},
             "severity": "DEFAULT", "textPayload": line, "timestamp": _z(line)}
            for line in lines
        ],
        indent=2,
    )  # fmt: skip


def _cloudwatch(lines: Lines) -> str:
    """aws logs get-log-events"""
    events = [{"timestamp": int(line.at.timestamp() * 1000), "message": line, "ingestionTime": 1} for line in lines]
    return json.dumps({"events": events, "nextForwardToken": "f/1"}, indent=4)


def _csv(lines: Lines) -> str:
    """A table from a log viewer; a record of several lines is one quoted field."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["@timestamp", "level", "message"])
    rows.writerows([_z(line), "info", line] for line in _records(lines))
    return out.getvalue()


def _logfmt(lines: Lines) -> str:
    return _joined([f"time={_z(line)} level=info msg={json.dumps(line)}" for line in _records(lines)])


def _structlog(lines: Lines) -> str:
    return _joined([json.dumps({"event": line, "timestamp": _z(line), "pod": line.host}) for line in _records(lines)])


def _loguru(lines: Lines) -> str:
    """loguru with serialize=True"""
    out = []
    for line in _records(lines):
        time = {"repr": f"{line.at:%Y-%m-%d %H:%M:%S.%f}+00:00", "timestamp": line.at.timestamp()}
        record = {"message": line.split("\n")[0], "time": time, "level": {"name": "INFO", "no": 20}, "extra": {}}
        out.append(json.dumps({"text": line + "\n", "record": record}))
    return _joined(out)


def _cri_cut(lines: Lines) -> str:
    """containerd cuts long lines into pieces with the flag P; here at 100 characters."""
    out = []
    for line in lines:
        *pieces, rest = [line[at : at + 100] for at in range(0, len(line), 100)] or [""]
        out += [*(f"{_z(line)} stderr P {piece}" for piece in pieces), f"{_z(line)} stderr F {rest}"]
    return _joined(out)


def _docker_cut(lines: Lines) -> str:
    out = []
    for line in lines:
        *pieces, rest = textwrap.wrap(line, 120, drop_whitespace=False, replace_whitespace=False) or [""]
        out += [json.dumps({"log": log, "stream": "stderr", "time": _z(line)}) for log in (*pieces, rest + "\n")]
    return _joined(out)


def _typescript(lines: Lines) -> str:
    """script(1)"""
    head = 'Script started on 2026-11-20 21:19:00+00:00 [TERM="xterm-256color" COLUMNS="200" LINES="50"]\n'
    return head + "".join(f"\x1b[0m{line}\r\n" for line in lines) + '\nScript done [COMMAND_EXIT_CODE="1"]\n'


def _journal_json(lines: Lines) -> str:
    """journalctl -o json-pretty"""
    return "".join(
        json.dumps(
            {"__CURSOR": "s=4d83", "__REALTIME_TIMESTAMP": str(int(line.at.timestamp() * 1e6)), "_PID": "123",
             "SYSLOG_IDENTIFIER": "train.sh", "MESSAGE": line, "_HOSTNAME": line.host},
            indent="\t",
        ) + "\n"
        for line in lines
    )  # fmt: skip


def _colored(escape: str) -> Callable[[Line], str]:
    """A color for the line's first word, in a console that lost or spells the ESC byte."""

    def colored(line: Line) -> str:
        word, blank, rest = line.partition(" ")
        return f"{escape}[1;36m{word}{escape}[0m{blank}{rest}" if word else line

    return colored


OWN: dict[str, Wrap] = {
    "containerd, lines cut": _cri_cut,
    "docker's json-file": _each(lambda line: json.dumps({"log": line + "\n", "stream": "stderr", "time": _z(line)})),
    "docker's json-file, lines cut": _docker_cut,
    "journalctl -o json-pretty": _journal_json,
    "script(1)": _typescript,
    "Cloud Logging, pretty": _json_array,
    "Cloud Logging, newest first": lambda lines: json.dumps(json.loads(_json_array(lines))[::-1], indent=2),
    "CloudWatch": _cloudwatch,
    "Loki, lines newest first": lambda lines: _joined([f"{_z(line)}\t{line.host}\t{line}" for line in lines][::-1]),
    "a table": _csv,
    "logfmt": _logfmt,
    "structlog": _structlog,
    "loguru": _loguru,
    "colors of a paste": _each(_colored("")),
    "colors in rsyslog": _each(_colored("#033")),
    "colors in less": _each(_colored("^[")),
    "a code block": _each(lambda line: f"    {line}" if line.strip() else ""),
}
ENVELOPES = {name: _form(form) if form else OWN[name] for name, form in table("envelopes")["forms"].items()}
