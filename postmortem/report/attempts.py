"""The document's `attempts` as rows of a small table, where there was more than one.

attempt 0, 22:40:30 to 22:40:33: Rank 2 raised OSError: … in train.py:23; exit code 1
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from postmortem.report import labels, text, view

SHOWN = 12  # the last ones


@dataclass(frozen=True, slots=True)
class Attempt:
    """One life of the job. `why` names who failed, and is empty where nothing did."""

    number: str
    begin: str
    end: str
    category: str
    why: str
    ended: str

    @property
    def line(self) -> str:
        """All in one line, for a terminal."""
        span = f"{self.begin} to {self.end}" if self.begin and self.end else self.end and f"until {self.end}"
        told = "; ".join(part.rstrip(".") for part in (self.why, self.ended) if part)
        return f"attempt {self.number}{f', {span}' if span else ''}: {told or 'not known how it ended'}"


def attempts(document: view.Document) -> list[Attempt]:
    """The last of them, oldest first; empty where there was only one."""
    found = view.rows(document.get("attempts"))
    lives = [_attempt(row) for row in found[-SHOWN:]] if len(found) > 1 else []
    first: dict[str, str] = {}
    for life in lives:
        first.setdefault(life.why, life.number)
    return [_shorter(life, first[life.why]) for life in lives]


def _shorter(life: Attempt, first: str) -> Attempt:
    """What an attempt before it failed of in the very same words is not told again."""
    again = life.why and first != life.number
    return replace(life, why=f"The same as attempt {first}.") if again else life


def _attempt(row: dict[str, Any]) -> Attempt:
    category = view.known(row.get("category"))
    failed = row.get("outcome") != "healthy"
    return Attempt(
        view.known(row.get("number")) or "?",
        _second(row.get("begin")),
        _second(row.get("end")),
        labels.CATEGORIES.get(category, category),
        view.known(row.get("why")) if failed else "",
        view.known(row.get("ended")),
    )


def _second(moment: object) -> str:
    """To the second: when an attempt began is not known better."""
    return text.day_and_time(moment)[1].partition(".")[0]
