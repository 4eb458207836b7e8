"""The document's `attempts` as rows of a small table, where there was more than one.

attempt 0, 22:40:30 to 22:40:33: Rank 2 raised OSError: … in train.py:23; exit code 1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from postmortem.report import labels, text, view

SHOWN = 12  # the last ones


@dataclass(frozen=True, slots=True)
class Attempt:
    """One life of the job. `why` is empty where nothing failed."""

    number: str
    begin: str
    end: str
    who: str
    category: str
    why: str
    ended: str

    @property
    def line(self) -> str:
        """All in one line, for a terminal."""
        span = f"{self.begin} to {self.end}" if self.begin and self.end else self.end and f"until {self.end}"
        told = "; ".join(part.rstrip(".") for part in (self.why, self.ended) if part)
        return f"attempt {self.number}{f', {span}' if span else ''}: {told or 'nothing tells how it ended'}"


def attempts(document: view.Document) -> list[Attempt]:
    """The last of them, oldest first; empty where there was but one."""
    found = view.rows(document.get("attempts"))
    return [_attempt(row) for row in found[-SHOWN:]] if len(found) > 1 else []


def _attempt(row: dict[str, Any]) -> Attempt:
    category = view.known(row.get("category"))
    failed = row.get("outcome") != "healthy"
    return Attempt(
        view.known(row.get("number")) or "?",
        _second(row.get("begin")),
        _second(row.get("end")),
        view.entity({"ranks": row.get("ranks"), "hosts": row.get("hosts")}),
        labels.CATEGORIES.get(category, category),
        view.known(row.get("why")) if failed else "",
        view.known(row.get("ended")),
    )


def _second(moment: object) -> str:
    """To the second: when an attempt began is not known better."""
    return text.day_and_time(moment)[1].partition(".")[0]
