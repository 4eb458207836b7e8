"""Runs the parsers of one source: an error of a parser costs the events of one line, and a row of the ledger.

Without a list for the rows the exception is raised, as tests want it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from postmortem.errors import PostmortemError, ours
from postmortem.model import Event, Skip

T = TypeVar("T")
MOST_ROWS = 20  # rows of one source


class Guard:
    """The errors of one source."""

    def __init__(self, path: str, lost: list[Skip] | None) -> None:
        self._path, self._lost = path, lost
        self._noted: set[str] = set()

    def events(self, line: int | None, parser: Callable[..., Iterable[Event]], *args: Any) -> list[Event]:
        """All events of a parser, or those before its error."""
        found: list[Event] = []
        self.call(None, lambda: found.extend(parser(*args)), line)
        return found

    def call(self, default: T, step: Callable[[], T], line: int | None = None) -> T:
        """The result of a step, or `default` where it fails."""
        try:
            return step()
        except Exception as error:  # logs are hostile, and no parser is without defects
            if self._lost is None or isinstance(error, PostmortemError):
                raise
            self.note(ours(error), line)
            return default

    def note(self, reason: str, line: int | None = None) -> None:
        """Add a row, once for each reason."""
        if self._lost is not None and reason not in self._noted and len(self._noted) < MOST_ROWS:
            self._noted.add(reason)
            self._lost.append(Skip(self._path, 0, f"line {line}: {reason}" if line else reason))
