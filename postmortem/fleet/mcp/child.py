"""One analysis, or comparison, in a process of its own: it can be stopped in the middle, a source that takes
too long is ended by a signal, its memory goes back to the system, and what it prints is not the protocol's.

    stdin:  {"work": "analyze", "paths": ["/jobs/17"], "patterns": []}, then nothing until it ends
    stdout: {"done": 1048576, "total": 7340032, "what": "rank0.log"}, …, {"document": {…}, "rows": […], …}

Where stdin ends, whoever asked is gone, and this process with its workers ends too.
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
END = 60  # characters by which a line and its copy, behind a prefix, are the same
EVERY = 0.5  # seconds between two words on how far it is


def main() -> None:
    line = sys.stdin.buffer.readline()
    if not line:  # the server was ended before it asked
        return
    asked = json.loads(line)
    threading.Thread(target=_watch, daemon=True).start()
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        _tell(out, _answer(asked, _Progress(out)))


def _watch() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os.killpg(0, signal.SIGKILL)


class _Progress:
    def __init__(self, out: BinaryIO) -> None:
        self.out, self.told = out, time.monotonic()

    def __call__(self, done: int, total: int, what: str) -> None:
        now = time.monotonic()
        if now - self.told >= EVERY:
            self.told = now
            _tell(self.out, {"done": done, "total": total, "what": what})


def _tell(out: BinaryIO, value: object) -> None:
    out.write(json.dumps(value).encode() + b"\n")
    out.flush()


def _answer(asked: dict[str, Any], progress: _Progress) -> dict[str, Any]:
    pool.tune()
    patterns = tuple(map(Path, asked["patterns"]))
    try:
        if asked["work"] == "diff":
            from postmortem.fleet.diff.comparison import compare

            a, b = asked["paths"]
            return {"document": compare(a, b, patterns, progress)}
        incident = analyze(asked["paths"], Options(patterns=patterns, progress=progress))
    except Exception as error:
        known = refusal(error) or error
        if isinstance(known, PostmortemError):
            return {"error": known.message, "hint": known.hint}
        return {"error": ours(error), "hint": ""}
    rows, notes = _rows(incident)
    texts: dict[str, int] = {}
    return {
        "document": incident.document,
        "notes": notes,
        "secrets": incident.redactor.memory() if incident.redactor else [],
        # a word is told once: thousands of rows have the same host, pattern and file
        "rows": [[_numbered(value, texts) for value in row] for row in rows],
        "texts": list(texts),
    }


def _rows(incident: Incident) -> tuple[list[Row], list[str]]:
    """The events by time, those without one last; of very many the worst, and a share of each rank."""
    kept, notes = thinned(_single(once(read_events(incident))), ROWS, frozenset())
    return sorted(kept, key=_place), notes


def _single(rows: list[Row]) -> list[Row]:
    """One row for each line: it may be an exit of one rank and a pattern of the launcher at once. And one for
    the copies of a line: with --tee a rank's own file and the launcher's console have it."""
    best: dict[tuple[object, ...], Row] = {}
    for row in sorted(rows, key=_place):
        other = best.setdefault((row.place, row.text), row)
        if other is not row and (row.rank is None or other.rank is None or row.rank == other.rank):
            best[row.place, row.text] = _both(other, row)
    copies: dict[tuple[object, ...], Row] = {}
    for row in best.values():
        copies.setdefault((row.time, row.rank, row.host, row.pattern, row.text[-END:]), row)
    return list(copies.values())


def _both(one: Row, other: Row) -> Row:
    return one._replace(
        rank=other.rank if one.rank is None else one.rank,
        pattern=one.pattern or other.pattern,
        kind=other.kind if one.kind in ("pattern", "line") else one.kind,
        severity=max(one.severity, other.severity, key=SEVERITIES.index),
    )


def _place(row: Row) -> tuple[bool, float, str, int]:
    unknown = row.time != row.time
    return unknown, 0.0 if unknown else row.time, row.source, row.line or 0


def _numbered(value: object, texts: dict[str, int]) -> object:
    """Texts as lists of one number, numbers as they are."""
    if isinstance(value, str):
        return [texts.setdefault(value, len(texts))]
    return None if value != value else value


if __name__ == "__main__":
    main()
