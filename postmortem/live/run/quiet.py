"""Whether a job stood still when somebody ended it: how long it has printed nothing, against its own rhythm.

quiet.look(now); quiet.told(now)
    ->  "the job had printed nothing for 312 s, and before that never for more than 4 s"
"""

from __future__ import annotations

from pathlib import Path

LEAST_S = 60.0
FACTOR = 10  # as often its longest silence before
GROWN = 5  # times that output came, at least: else nobody knows its rhythm


class Quiet:
    """The sizes of what the job has printed, as they were at each look."""

    def __init__(self, folder: Path | None, now: float) -> None:
        self._files = [] if folder is None else [folder / f"{name}.log" for name in ("stdout", "stderr")]
        self._size = 0
        self._since = now
        self._longest = 0.0
        self._grown = 0

    def look(self, now: float) -> None:
        """Before its first line a job may take any time."""
        size = sum(map(_size, self._files))
        if size == self._size:
            return
        if self._grown:
            self._longest = max(self._longest, now - self._since)
        self._size, self._since, self._grown = size, now, self._grown + 1

    def told(self, now: float) -> str:
        """In words, where it has been silent for much longer than ever before; else empty."""
        self.look(now)
        silence = now - self._since
        if self._grown < GROWN or silence < max(LEAST_S, FACTOR * self._longest):
            return ""
        before = f"and before that never for more than {self._longest:.0f} s"
        return f"the job had printed nothing for {silence:.0f} s, {before}"


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
