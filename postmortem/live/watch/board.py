"""One row for each rank: its last step and line, with their times; and whether a line is progress.

    board.read(piece, now, wall)  ->  True if a rank made progress

A new step is progress, and so is a count that grows. If there are steps, any other line is progress only if no
similar one was printed since the last step: repetitions of `still waiting for batch 41` are not. If no line ever
names a step, every line is.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from postmortem import reading
from postmortem.formats import envelope
from postmortem.library import Library
from postmortem.live.run.journal import stamp
from postmortem.live.watch.follow import Piece
from postmortem.live.watch.rhythm import START, Rhythm, phase_of_line
from postmortem.model import Event
from postmortem.privacy import Redactor
from postmortem.report.text import line as one_line
from postmortem.system import output

_NUMBERS = re.compile(r"\d+")
SHAPES = 256  # kinds of line between two steps
ROWS = 65536
LIMIT = 300  # characters of a line
HISTORY = 20_000  # existing lines whose times are learned
END = "end"  # phase in which every rank has reported its end
COPIED_S = 5.0  # between the times of files that were copied together
LONG = 7 * 86400.0  # a longer gap separates two runs
LINES = ("line", "finished", "notice", "exception", "pattern")  # kinds of event
RESULTS = ("count", "loss", "answer", "result")


@dataclass(slots=True)
class Row:
    """The state of one rank, or of a log without one."""

    name: str
    rank: int | None = None
    host: str | None = None
    pid: int | None = None
    step: int | None = None
    step_at: float | None = None
    line: str = ""
    line_at: float | None = None
    collective: str | None = None
    finished: bool = False
    phase: str = ""
    gone: bool = False


@dataclass
class Board:
    library: Library
    rows: dict[str, Row] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)  # file -> the only rank that writes into it
    steps: bool = False  # some line named a step
    exit_at: float | None = None  # when a launcher last reported the end of a process
    ended: str = ""  # the end of the command in a journal of `postmortem run`
    world: int = 0
    pids: set[int] = field(default_factory=set)  # of ranks in that journal
    _redactor: Redactor = field(default_factory=Redactor)
    _shapes: set[str] = field(default_factory=set)
    _introduced: dict[str, int] = field(default_factory=dict)  # file -> the rank that its own lines name
    _counts: dict[tuple[str, str], str] = field(default_factory=dict)

    def read(self, piece: Piece, now: float, wall: float) -> bool:
        """Take new lines; return whether a rank made progress."""
        if piece.source.kind == "run":
            self._read_journal(piece.text)
            return False
        above = piece.head.count(b"\n")
        events = reading.read_piece(piece.source, piece.head + piece.text, self.library)
        for e in events:
            if e.kind == "identity":
                rank = e.fields.get("stated_rank")
                if rank is not None and e.rank is None:
                    self._introduced[piece.path] = rank
                self.world = max(self.world, e.fields.get("world") or 0)
        time = now - max(0.0, wall - piece.changed) if piece.old else now
        moved = False
        for e in events:
            if (e.where.line or 0) > above or e.kind == "identity":
                rank = e.rank if e.rank is not None else self.owners.get(piece.path, self._introduced.get(piece.path))
                row = self._row(e.fields.get("writer") or piece.source.path) if rank is None else self.of_rank(rank)
                row.host = row.host or e.host
                moved |= self._take(row, e, time)
        return moved

    def of_rank(self, rank: int) -> Row:
        return self._row(f"rank {rank}", rank)

    def _row(self, name: str, rank: int | None = None) -> Row:
        if name in self.rows or len(self.rows) >= ROWS:
            return self.rows.get(name) or Row(name, rank)
        self.rows[name] = Row(name, rank)
        return self.rows[name]

    def _take(self, row: Row, e: Event, now: float) -> bool:
        if e.kind == "progress" and (step := e.fields.get("step")) is not None:
            self.steps = True
            self._take_line(row, e, now)
            moved = step != row.step
            if moved:
                row.step, row.step_at, row.finished = step, now, False
                self._shapes.clear()
            return moved
        if e.kind == "worked":
            by = str(e.fields.get("by"))
            if self._counts.get((row.name, by)) == e.text:
                return False
            self._counts[row.name, by] = e.text
            return self._take_line(row, e, now) or by in RESULTS
        if e.kind == "exit":
            self.exit_at = max(self.exit_at or now, now)
        row.finished |= e.kind == "finished"
        if op := e.fields.get("collective") or e.fields.get("op"):
            row.collective = str(op)[:40]
        return e.kind in LINES and self._take_line(row, e, now)

    def _take_line(self, row: Row, e: Event, now: float) -> bool:
        text = self._redactor.text((e.text.rsplit("\r", 1)[-1] or e.text)[:LIMIT])
        row.line, row.line_at, row.phase = text, now, phase_of_line(text)
        if not self.steps:
            return True
        shape = _NUMBERS.sub("N", text)
        if shape in self._shapes or len(self._shapes) >= SHAPES:
            return False
        self._shapes.add(shape)
        return True

    def _read_journal(self, text: bytes) -> None:
        for line in text.splitlines():
            try:
                record = json.loads(line)
                if record["event"] == "done":
                    self.ended = str(record["message"])[:LIMIT]
                elif record["event"] == "start":
                    self.pids.add(int(record["pid"]))
            except (ValueError, KeyError, TypeError):
                continue

    @property
    def exited(self) -> bool:
        """Whether a launcher reported the end of a process, and no rank made progress after it."""
        steps = [row.step_at for row in self.rows.values() if row.step_at is not None]
        return self.exit_at is not None and self.exit_at + COPIED_S >= max(steps, default=self.exit_at)

    def phase(self) -> str:
        """Return the phase that the latest lines name; before the first step, the start."""
        times = {row.name: row.line_at for row in self.rows.values() if row.line_at is not None}
        if times and all(self.rows[name].finished for name in times):
            return END
        latest = max(times.values(), default=0.0)
        named = [phase for name, at in times.items() if (phase := self.rows[name].phase) and at >= latest - 60.0]
        return named[-1] if named else ("" if self.steps else START)


def learn(rhythm: Rhythm, piece: Piece) -> None:
    """Learn the rhythm of existing lines from their timestamps."""
    texts = list(_texts(piece.head or piece.text))[:200]
    style, before, phase = envelope.learn(texts), None, START
    for text in list(_texts(piece.text))[-HISTORY:]:
        found = envelope.peel(text, style)
        if found.stamp is None:
            continue
        if before is not None and 0.0 <= found.stamp.time - before < LONG:
            rhythm.learn(found.stamp.time - before, phase)
        before, phase = found.stamp.time, phase_of_line(text)


def _texts(data: bytes) -> Iterator[str]:
    for line in data.split(b"\n"):
        if line.strip():
            yield line[-4096:].decode("utf-8", "replace")


# ── output of watch: rows that are redrawn on a terminal, plain lines, or JSON lines ────────────────────────

PLAIN_ROWS = 8
NAME, STEP = 24, 12


def table(rows: Sequence[Row], now: float, most: int, width: int) -> list[str]:
    """Return rows as text, and one line for those that do not fit."""
    ordered = sorted(rows, key=lambda r: (r.rank is None, r.rank or 0, r.name))
    if len(ordered) > most:
        ordered.sort(key=lambda r: (r.finished, r.step is None, r.step or 0, r.line_at or 0.0))
    lines = [_one(row, now, width) for row in ordered[:most]]
    if rest := ordered[most:]:
        steps = sorted(r.step for r in rest if r.step is not None)
        ages = sorted(max(0.0, now - r.line_at) for r in rest if r.line_at is not None)
        parts = []
        if steps:
            parts.append(f"step {steps[0]}" if steps[0] == steps[-1] else f"steps {steps[0]} to {steps[-1]}")
        if ages:
            parts.append(f"last lines {span(ages[0])} to {span(ages[-1])} ago")
        lines.append(one_line(": ".join(filter(None, [f"{len(rest)} more", ", ".join(parts)])), width))
    return lines


def _one(row: Row, now: float, width: int) -> str:
    step = "-" if row.step is None else f"step {row.step}"
    silent = "-" if row.line_at is None else span(max(0.0, now - row.line_at))
    name = row.name if len(row.name) <= NAME else f"…{row.name[1 - NAME :]}"
    more = " · ".join(filter(None, ["gone" if row.gone else "", row.collective or "", row.line or "no line yet"]))
    text = f"{one_line(name):{min(NAME, 10)}} {step:{STEP}} {silent:>7}  {one_line(more)}"
    return text if len(text) <= width else f"{text[: width - 1]}…"


def span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class Screen:
    """Where rounds and events are shown."""

    def __init__(self, form: str, interval: float) -> None:
        self.form, self.interval = form, interval
        self._due = 0.0
        self._live: Any = None
        if form == "text" and sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)  # without a thread
            self._live.start()

    def show_round(
        self, rows: Sequence[Row], now: float, head: str, facts: dict[str, Any], force: bool = False
    ) -> None:
        """Show one round: on a terminal in place of the last one; else once in an interval."""
        if self._live is not None:
            from rich.text import Text

            size = self._live.console.size
            lines = [one_line(head, size.width), *table(rows, now, max(3, size.height - 4), size.width)]
            self._live.update(Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True)
        elif force or now >= self._due:
            self._due = now + self.interval
            if self.form == "json":
                self.show_event("state", facts | {"ranks": [_facts(row, now) for row in rows]})
            else:
                output.say("\n".join([one_line(head), *(f"  {text}" for text in table(rows, now, PLAIN_ROWS, 160))]))

    def show_event(self, event: str, facts: dict[str, Any], text: str = "") -> None:
        """Show an event in lines that remain."""
        if self.form == "json":
            output.data(json.dumps({"time": stamp(time.time()), "event": event, **facts}))
            if sys.stdout is not None:
                sys.stdout.flush()
        elif text:
            shown = "\n".join(map(one_line, text.split("\n")))
            if self._live is not None:
                self._live.console.print(shown, markup=False, highlight=False, soft_wrap=True)
            else:
                output.say(shown)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()


def _facts(row: Row, now: float) -> dict[str, Any]:
    facts = asdict(row)
    for name in ("step", "line"):
        moment = facts.pop(f"{name}_at")
        facts[f"{name}_age_s"] = None if moment is None else round(max(0.0, now - moment), 1)
    del facts["phase"], facts["gone"]
    return facts
