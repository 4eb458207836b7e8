"""The parts of an output, each made by itself: an error of ours in one costs that one, and is named.

parts = Parts()
parts.get("the timeline", lambda: lanes.picture(document, events), None)
parts.failed  ->  ["the timeline: an internal error in report/lanes.py:198 (...), please report it"]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from postmortem.errors import ours

T = TypeVar("T")


class Parts:
    """What failed so far, a sentence each."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def get(self, name: str, make: Callable[[], T], default: T) -> T:
        try:
            return make()
        except Exception as error:  # the verdict is worth more than the section
            self.failed.append(f"{name}: {ours(error)}")
            return default

    def rows(self, name: str, make: Callable[[], list[T]]) -> list[T]:
        empty: list[T] = []
        return self.get(name, make, empty)
