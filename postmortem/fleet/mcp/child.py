"""An analysis or a comparison in a process of its own: it can be stopped at any time, a source that takes too long
is ended by a signal, its memory is returned to the system, and its prints stay out of the protocol.

    stdin:  {"work": "analyze", "paths": ["/jobs/17"], "patterns": []}, then nothing until it ends
    stdout: {"done": 1048576, "total": 7340032, "what": "rank0.log"}, …, {"document": {…}, "rows": […], …}

At the end of stdin the server is gone: this process and its workers end too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

from postmortem.analyze import Incident, Options, analyze
from postmortem.errors import PostmortemError, ours, refusal
from postmortem.report.columns import once, thinned
from postmortem.report.events import SEVERITIES, Row, read_events
from postmortem.system import pool

ROWS = 100_000
END = 60  # characters at the end that a line shares with its copy behind a prefix
EVERY = 0.5  # seconds between two lines of progress


def main() -> None:
    line = sys.stdin.buffer.readline()
    if not line:  # the server ended before it asked
        return
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        _send(out, _result(json.loads(line), _Progress(out)))


def _end_with_stdin() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os.killpg(0, signal.SIGKILL)


class _Progress:
    def __init__(self, out: BinaryIO) -> None:
        self.out, self.sent = out, time.monotonic()

    def __call__(self, done: int, total: int, what: str) -> None:
        now = time.monotonic()
        if now - self.sent >= EVERY:
            self.sent = now
            _send(self.out, {"done": done, "total": total, "what": what})


def _send(out: BinaryIO, value: object) -> None:
    out.write(json.dumps(value).encode() + b"\n")
    out.flush()


def _result(asked: dict[str, Any], progress: _Progress) -> dict[str, Any]:
    pool.tune()
    patterns = tuple(map(Path, asked["patterns"]))
    try:
        if asked["work"] == "diff":
            from postmortem.fleet.diff.comparison import compare

            a, b = asked["paths"]
            return {"document": compare(a, b, patterns, progress), "rows": [], "notes": [], "secrets": []}
        incident = analyze(asked["paths"], Options(patterns=patterns, progress=progress))
    except Exception as error:
        known = refusal(error) or error
        if isinstance(known, PostmortemError):
            return {"error": known.message, "hint": known.hint}
        return {"error": ours(error), "hint": ""}
    rows, notes = _rows(incident)
    secrets = incident.redactor.memory() if incident.redactor else []
    return {"document": incident.document, "rows": rows, "notes": notes, "secrets": secrets}


def _rows(incident: Incident) -> tuple[list[Row], list[str]]:
    """Return the events by time, those without one last; of very many the worst, and a share of each rank."""
    # one row per line (it may be the exit of a rank and a pattern of the launcher at once), and one for the copies of a
    # line: with --tee both the rank's own file and the launcher's console have it
    best: dict[tuple[object, ...], Row] = {}
    for row in sorted(once(read_events(incident)), key=_place):
        other = best.setdefault((row.place, row.text), row)
        if other is not row and (row.rank is None or other.rank is None or row.rank == other.rank):
            best[row.place, row.text] = other._replace(
                rank=row.rank if other.rank is None else other.rank,
                pattern=other.pattern or row.pattern,
                kind=row.kind if other.kind in ("pattern", "line") else other.kind,
                severity=max(other.severity, row.severity, key=SEVERITIES.index),
            )
    copies: dict[tuple[object, ...], Row] = {}
    for row in best.values():
        copies.setdefault((row.time, row.rank, row.host, row.pattern, row.text[-END:]), row)
    rows, notes = thinned(list(copies.values()), ROWS, frozenset())
    return sorted(rows, key=_place), notes


def _place(row: Row) -> tuple[bool, float, str, int]:
    unknown = row.time != row.time
    return unknown, 0.0 if unknown else row.time, row.source, row.line or 0


if __name__ == "__main__":
    main()
