"""The numbered list of the lines of claims, each once."""

from __future__ import annotations

import re
from collections.abc import Sequence

from postmortem.diagnose.case import Case
from postmortem.diagnose.wording import INHERITED, iso
from postmortem.library import regexes
from postmortem.model import Event, Pattern
from postmortem.model.contract import verdict as contract

MOST_ITEMS = 40
AROUND = 5  # lines shown on each side of a frame


class Evidence:
    """Grows while the document is written. `items` are rows of `verdict.evidence`."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.items: list[contract.Evidence] = []
        self.index: dict[tuple[str, int | None, str], int] = {}

    def add(self, e: Event, pattern: str | None, about: Sequence[int] = ()) -> int | None:
        """The number of this line in the list; None where the list is full."""
        e = own_frame(e)
        key = (*e.place, e.text[:200])
        if key in self.index:
            return self.index[key]
        if len(self.items) >= MOST_ITEMS:
            return None
        self.index[key] = len(self.items)
        self.items.append(self._row(e, pattern, about))
        return self.index[key]

    def _row(self, e: Event, pattern: str | None, about: Sequence[int]) -> contract.Evidence:
        rank = self.case.rank_of(e)
        if rank is None and len(about) == 1:
            rank = about[0]
        part = _match(self.case.library.get(pattern), e.text) if pattern else ""
        row: contract.Evidence = {
            "source": e.where.source,
            "line": e.where.shown,
            "end_line": e.where.shown_end,
            "text": e.text,
            "time": iso(e.at) if e.at_sigma <= INHERITED else None,
            "uncertainty_s": round(e.at_sigma, 6) if iso(e.at) else None,
            "rank": rank,
            "host": e.host or (self.case.registry.host_of.get(rank) if rank is not None else None),
            "pattern": pattern,
            "attempt": e.attempt,
            "context": list(e.context),
            "context_before": e.before,
        }
        return {**row, "match": part} if part else row


def _match(pattern: Pattern | None, text: str) -> str:
    """The part of a line that a pattern matches; empty where that is the whole line, or not known."""
    found = (m[0] for v in (pattern.variants if pattern else ()) if v.regex and (m := regexes.search(v.regex, text)))
    part = next(found, "").strip()
    return part if len(part) < len(text.strip()) else ""


def own_frame(e: Event) -> Event:
    """The line of the user's code in a stack: `Thread 21965 (idle)` by itself shows nothing."""
    if e.kind != "stack":
        return e
    place = _frame(e)
    if place is None:
        return e._replace(context=e.context[: e.before + AROUND + 1])
    where = e.where._replace(line=e.line + place - e.before, file_line=None)
    low = max(0, place - AROUND)
    shown = e.context[low : place + AROUND + 1]
    return e._replace(where=where, text=e.context[place], context=shown, before=place - low)


def _frame(e: Event) -> int | None:
    """The index of the user's own frame in its context."""
    if not (code := e.fields.get("code")) or e.where.line is None:
        return None
    file, _, number = code.rpartition(":")
    frame = re.compile(rf"{re.escape(file)}(?::|\", line ){number}\b")
    return next((i for i in range(e.before + 1, len(e.context)) if frame.search(e.context[i])), None)
