"""Output of `watch`: rows that are redrawn on a terminal, plain lines, or JSON lines for programs.

    rank 1   step 41     64 s   waiting for batch 42
    rank 0   step 42     63 s   all_reduce   step 42 loss 0.3312
    6 more: steps 42 to 43, last lines 61 s to 63 s ago

If there are more ranks than rows, those with the lowest step, then with the longest silence come first.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from postmortem.live.run.journal import stamp
from postmortem.live.watch.board import Row
from postmortem.report.text import line
from postmortem.system import output

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
        lines.append(line(": ".join(filter(None, [f"{len(rest)} more", ", ".join(parts)])), width))
    return lines


def _one(row: Row, now: float, width: int) -> str:
    step = "-" if row.step is None else f"step {row.step}"
    silent = "-" if row.line_at is None else span(max(0.0, now - row.line_at))
    name = row.name if len(row.name) <= NAME else f"…{row.name[1 - NAME :]}"
    more = " · ".join(filter(None, ["gone" if row.gone else "", row.collective or "", row.line or "no line yet"]))
    text = f"{line(name):{min(NAME, 10)}} {step:{STEP}} {silent:>7}  {line(more)}"
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
            lines = [line(head, size.width), *table(rows, now, max(3, size.height - 4), size.width)]
            self._live.update(Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True)
        elif force or now >= self._due:
            self._due = now + self.interval
            if self.form == "json":
                self.show_event("state", facts | {"ranks": [_facts(row, now) for row in rows]})
            else:
                output.say("\n".join([line(head), *(f"  {text}" for text in table(rows, now, PLAIN_ROWS, 160))]))

    def show_event(self, event: str, facts: dict[str, Any], text: str = "") -> None:
        """Show an event in lines that remain."""
        if self.form == "json":
            output.data(json.dumps({"time": stamp(time.time()), "event": event, **facts}))
            if sys.stdout is not None:
                sys.stdout.flush()
        elif text:
            shown = "\n".join(map(line, text.split("\n")))
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
