"""One row for each rank: its last step and line, with their times; and whether a line is progress.

    board.read(piece, now, wall)  ->  True if a rank made progress

A new step is progress, and so is a count that grows. If there are steps, any other line is progress only if no
similar one was printed since the last step: repetitions of `still waiting for batch 41` are not. If no line ever
names a step, every line is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from postmortem import reading
from postmortem.formats import envelope
from postmortem.library import Library
from postmortem.live.watch.follow import Piece
from postmortem.live.watch.rhythm import START, Rhythm, phase_of_line
from postmortem.model import Event
from postmortem.privacy import Redactor

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
