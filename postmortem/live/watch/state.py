"""One row for each rank: its last step, its last line, when they came; and whether a line is progress.

    board.read(piece, now)  ->  True where a rank got on

A step that no line named before is progress, and so is a count that grows. Where steps are known, any other
line is progress only if its like was not printed since the last step: `still waiting for batch 41` again and
again is none. Where no line ever names a step, every line is.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from postmortem import reading
from postmortem.formats import envelope
from postmortem.library import Library
from postmortem.live.watch import phases
from postmortem.live.watch.follow import Piece
from postmortem.live.watch.rhythm import Rhythm
from postmortem.model import Event
from postmortem.model.digits import number
from postmortem.privacy import Redactor

_NUMBERS = re.compile(r"\d+")
SHAPES = 256  # kinds of line that are told apart between two steps
ROWS = 65536
SAID = 300  # characters of a line
HISTORY = 20_000  # lines of what was there before whose times are looked at
END = "end"  # all have said goodbye
LONG = 7 * 86400.0  # a longer gap between two lines is none of one run


@dataclass(slots=True)
class Row:
    """What is known of one rank, or of a log of nobody's."""

    name: str
    rank: int | None = None
    host: str = ""
    step: int | None = None
    step_at: float | None = None
    line: str = ""
    line_at: float | None = None
    collective: str = ""
    phase: str = ""
    finished: bool = False
    pid: int | None = None
    gone: bool = False


@dataclass
class Board:
    """All rows."""

    library: Library
    rows: dict[str, Row] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)  # the rank whose output a file is, by its process
    steps: bool = False  # some line named a step
    ended: str = ""  # what a journal of `postmortem run` says of the command's end
    world: int = 0
    pids: set[int] = field(default_factory=set)  # of ranks, as that journal names them
    _redactor: Redactor = field(default_factory=Redactor)
    _shapes: set[str] = field(default_factory=set)
    _told: dict[str, int] = field(default_factory=dict)  # rank that a source's own lines name
    _counts: dict[tuple[str, str], str] = field(default_factory=dict)

    def read(self, piece: Piece, now: float, wall: float) -> bool:
        """Take in what a file has said; whether a rank got on."""
        above = piece.head.count(b"\n")
        events = reading.read_piece(piece.source, piece.head + piece.text, self.library)
        if piece.source.kind == "run":
            self._journal(piece.text)
            return False
        self._introduced(piece, events)
        came = now - max(0.0, wall - piece.changed) if piece.old else now
        moved = False
        for e in events:
            if (e.where.line or 0) > above or e.kind == "identity":
                moved |= self._take(self._row(piece, e), e, came)
        return moved

    def _introduced(self, piece: Piece, events: Sequence[Event]) -> None:
        for e in events:
            if e.kind == "identity":
                rank = e.rank if e.rank is not None else number(e.fields.get("said_rank"))
                if rank is not None and e.rank is None:
                    self._told[piece.path] = rank
                self.world = max(self.world, number(e.fields.get("world")) or 0)

    def _row(self, piece: Piece, e: Event) -> Row:
        rank = e.rank if e.rank is not None else self.owners.get(piece.path, self._told.get(piece.path))
        row = self.of_rank(rank) if rank is not None else self._of_log(piece, e)
        row.host = row.host or e.host or ""
        return row

    def of_rank(self, rank: int) -> Row:
        name = f"rank {rank}"
        if name not in self.rows and len(self.rows) < ROWS:
            self.rows[name] = Row(name, rank)
        return self.rows.get(name) or Row(name, rank)

    def _of_log(self, piece: Piece, e: Event) -> Row:
        name = str(e.fields.get("writer") or piece.source.path)
        if name not in self.rows and len(self.rows) < ROWS:
            self.rows[name] = Row(name)
        return self.rows.get(name) or Row(name)

    def _take(self, row: Row, e: Event, now: float) -> bool:
        if e.kind == "progress" and (step := number(e.fields.get("step"))) is not None:
            return self._step(row, step, e, now)
        if e.kind == "worked":
            key = (row.name, str(e.fields.get("by")))
            if self._counts.get(key) == e.text:
                return False
            self._counts[key] = e.text
            return self._line(row, e, now) or e.fields.get("by") in ("count", "loss", "answer", "result")
        if e.kind == "finished":
            row.finished = True
        if op := e.fields.get("collective") or e.fields.get("op"):
            row.collective = str(op)[:40]
        return e.kind in ("line", "finished", "notice", "exception", "pattern") and self._line(row, e, now)

    def _step(self, row: Row, step: int, e: Event, now: float) -> bool:
        self.steps = True
        self._line(row, e, now)
        if step == row.step:
            return False
        row.step, row.step_at, row.finished = step, now, False
        self._shapes.clear()
        return True

    def _line(self, row: Row, e: Event, now: float) -> bool:
        text = self._redactor.text((e.text.rsplit("\r", 1)[-1] or e.text)[:SAID])
        row.line, row.line_at, row.phase = text, now, phases.said(text)
        if not self.steps:
            return True
        shape = _NUMBERS.sub("N", text)
        if shape in self._shapes or len(self._shapes) >= SHAPES:
            return False
        self._shapes.add(shape)
        return True

    def _journal(self, text: bytes) -> None:
        """What `postmortem run` saw of the job: pids of ranks, and the command's end."""
        for line in text.splitlines():
            try:
                record = json.loads(line)
                if record["event"] == "done":
                    self.ended = str(record["message"])[:SAID]
                elif record["event"] == "start":
                    self.pids.add(int(record["pid"]))
            except (ValueError, KeyError, TypeError):
                continue

    def phase(self) -> str:
        """What the latest lines name. Before the first step: the start."""
        spoken = [r for r in self.rows.values() if r.line_at is not None]
        latest = max((r.line_at or 0.0 for r in spoken), default=0.0)
        if spoken and all(r.finished for r in spoken):
            return END
        named = [r.phase for r in spoken if r.phase and (r.line_at or 0.0) >= latest - 60.0]
        return named[-1] if named else ("" if self.steps else phases.START)


def learn(rhythm: Rhythm, piece: Piece) -> None:
    """The rhythm of what was there before we came: the times between its lines, by their own stamps."""
    style = envelope.learn(line for _, line in zip(range(200), _texts(piece.head or piece.text), strict=False))
    before, phase = None, phases.START
    for text in list(_texts(piece.text))[-HISTORY:]:
        found = envelope.peel(text, style)
        if found.stamp is None:
            continue
        if before is not None and 0.0 <= found.stamp.time - before < LONG:
            rhythm.learn(found.stamp.time - before, phase)
        before, phase = found.stamp.time, phases.said(text)


def _texts(data: bytes) -> Iterator[str]:
    for line in data.split(b"\n"):
        if line.strip():
            yield line[-4096:].decode("utf-8", "replace")


def age(moment: float | None, now: float) -> float | None:
    return None if moment is None else max(0.0, now - moment)


def clock() -> tuple[float, float]:
    """Now, by the clock that never jumps, and by the one that files have."""
    return time.monotonic(), time.time()
