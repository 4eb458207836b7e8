"""Whether a job had stopped making progress when it was ended: its silence against its own rhythm.

quiet.look(now); quiet.report(now)
    ->  "the job had printed nothing for 312 s, and before that never for more than 4 s"
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

LEAST_S = 60.0
FACTOR = 10  # times its longest earlier silence
GROWN = 5  # growths of the output from which on its rhythm is known


class Quiet:
    """When the job's output last grew, at each look."""

    def __init__(self, folder: Path | None, now: float) -> None:
        self._files = [folder / "stdout.log", folder / "stderr.log"] if folder else []
        self._grew = 0
        self._since = now
        self._longest = 0.0
        self._grown = 0

    def look(self, now: float) -> None:
        grew = 0
        for file in self._files:
            with suppress(OSError):
                grew += file.stat().st_mtime_ns
        if grew != self._grew:
            if self._grown:  # before its first line a job may take any time
                self._longest = max(self._longest, now - self._since)
            self._grew, self._since, self._grown = grew, now, self._grown + 1

    def report(self, now: float) -> str:
        """Return a sentence if it has been silent for much longer than ever before; else empty."""
        self.look(now)
        silence = now - self._since
        if self._grown < GROWN or silence < max(LEAST_S, FACTOR * self._longest):
            return ""
        before = f"and before that never for more than {self._longest:.0f} s"
        return f"the job had printed nothing for {silence:.0f} s, {before}"
