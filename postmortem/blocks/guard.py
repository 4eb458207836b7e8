"""Runs the parsers of one source, so that an error of ours costs what one of them reads on one line.

    ValueError in `traceback.parse` on line 812 of rank3.log
        ->  a row of the ledger that names file, line and parser; everything else is read

Whoever passes no list for the rows gets the exception: tests want it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from postmortem.errors import PostmortemError, ours
from postmortem.model import Event, Skip

T = TypeVar("T")
MOST = 20  # rows of one source


class Guard:
    """What went wrong in one source."""

    def __init__(self, path: str, lost: list[Skip] | None) -> None:
        self._path, self._lost = path, lost
        self._told: set[str] = set()

    def events(self, line: int | None, parser: Callable[..., Iterable[Event]], *args: Any) -> list[Event]:
        """All events that a parser gives, or those that it gave until it failed."""
        found: list[Event] = []
        self.call(None, lambda: found.extend(parser(*args)), line)
        return found

    def call(self, default: T, step: Callable[[], T], line: int | None = None) -> T:
        """What a step returns, or `default` where it fails."""
        if self._lost is None:
            return step()
        try:
            return step()
        except PostmortemError:
            raise
        except Exception as error:  # logs are hostile, and no parser is without faults
            self.note(ours(error), line)
            return default

    def lose(self, reason: str) -> None:
        """Note what could not be read."""
        if self._lost is not None:
            self._lost.append(Skip(self._path, 0, reason))

    def note(self, what: str, line: int | None) -> None:
        """Tell of it once."""
        if what not in self._told and len(self._told) < MOST:
            self._told.add(what)
            self.lose(f"line {line}: {what}" if line else what)
