"""What `watch` prints: rows that are drawn again on a terminal, plain lines, or JSON lines for programs.

    rank 1   step 41     64 s   waiting for batch 42
    rank 0   step 42     63 s   all_reduce   step 42 loss 0.3312
    6 more ranks: steps 42 to 43, last lines 61 s to 63 s ago

Where there are more ranks than rows, the oddest stand first: the lowest step, then the longest silence.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from postmortem.live.run.record import stamp
from postmortem.live.watch.state import Row, age
from postmortem.report.text import line
from postmortem.system import output

PLAIN_ROWS = 8
NAME, STEP = 24, 12


def oddest(rows: Sequence[Row]) -> list[Row]:
    """Those that are behind first, then those that are silent for longest; who is done comes last."""
    return sorted(
        rows,
        key=lambda r: (
            r.finished,
            r.step is None,
            r.step if r.step is not None else 0,
            r.line_at if r.line_at is not None else 0.0,
            r.rank if r.rank is not None else 1 << 30,
            r.name,
        ),
    )


def table(rows: Sequence[Row], now: float, most: int, width: int) -> list[str]:
    """Rows as text, and one line for those that do not fit."""
    ordered = oddest(rows)
    if len(ordered) <= most:
        ordered = sorted(ordered, key=lambda r: (r.rank is None, r.rank or 0, r.name))
    shown, rest = ordered[:most], ordered[most:]
    lines = [_one(row, now, width) for row in shown]
    if rest:
        lines.append(line(_rest(rest, now), width))
    return lines


def _one(row: Row, now: float, width: int) -> str:
    step = f"step {row.step}" if row.step is not None else "-"
    silent = span(age(row.line_at, now))
    who = row.name if len(row.name) <= NAME else f"…{row.name[1 - NAME :]}"
    more = " · ".join(filter(None, ["gone" if row.gone else "", row.collective, row.line or "no line yet"]))
    text = f"{line(who):{min(NAME, 10)}} {step:{STEP}} {silent:>7}  {line(more)}"
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _rest(rows: Sequence[Row], now: float) -> str:
    steps = sorted(r.step for r in rows if r.step is not None)
    ages = sorted(a for r in rows if (a := age(r.line_at, now)) is not None)
    told = [f"{len(rows)} more"]
    if steps:
        told.append(f"step {steps[0]}" if steps[0] == steps[-1] else f"steps {steps[0]} to {steps[-1]}")
    if ages:
        told.append(f"last lines {span(ages[0])} to {span(ages[-1])} ago")
    return told[0] + ": " + ", ".join(told[1:]) if len(told) > 1 else told[0]


def span(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class Screen:
    """Where rounds are shown."""

    def __init__(self, form: str, interval: float) -> None:
        self.form, self.interval = form, interval
        self._due = 0.0
        self._live: Any = None
        if form == "text" and sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            # drawn by us alone: no thread
            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()

    def round(self, rows: Sequence[Row], now: float, head: str, facts: dict[str, Any], force: bool = False) -> None:
        """One round: on a terminal it replaces the last; else it is told once in an interval."""
        if self._live is not None:
            self._draw(rows, now, head)
        elif force or now >= self._due:
            self._due = now + self.interval
            if self.form == "json":
                self.tell("state", facts | {"ranks": [_facts(row, now) for row in rows]})
            else:
                output.say("\n".join([line(head), *(f"  {text}" for text in table(rows, now, PLAIN_ROWS, 160))]))

    def _draw(self, rows: Sequence[Row], now: float, head: str) -> None:
        from rich.text import Text

        size = self._live.console.size
        lines = [line(head, size.width), *table(rows, now, max(3, size.height - 4), size.width)]
        self._live.update(Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True)

    def tell(self, event: str, facts: dict[str, Any], text: str = "") -> None:
        """Something that happened: a line that stays."""
        if self.form == "json":
            from time import time

            output.data(json.dumps({"time": stamp(time()), "event": event, **facts}))
            if sys.stdout is not None:
                sys.stdout.flush()
        elif text:
            shown = "\n".join(line(part) for part in text.split("\n"))
            if self._live is not None:
                self._live.console.print(shown, markup=False, highlight=False, soft_wrap=True)
            else:
                output.say(shown)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()


def _facts(row: Row, now: float) -> dict[str, Any]:
    return {
        "name": row.name,
        "rank": row.rank,
        "host": row.host or None,
        "pid": row.pid,
        "step": row.step,
        "step_age_s": _short(age(row.step_at, now)),
        "line": row.line,
        "line_age_s": _short(age(row.line_at, now)),
        "collective": row.collective or None,
        "finished": row.finished,
    }


def _short(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
