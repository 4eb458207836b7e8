"""Which of the ranks that live on this host are those of the logs.

A rank is ours if a journal of `postmortem run` among the logs names its pid, or if its output goes into one
of them. Where that tells of none, the one job whose ranks live here is taken for it: if they write into a
pipe or a terminal, not into other files, and the logs are not older than they are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from postmortem.live.collect import here, ranks
from postmortem.live.collect.ranks import Rank

LOOK_S, SHARE = 5.0, 50


class Ours:
    """The ranks of the logs, looked for again from time to time."""

    def __init__(self, job: str = "") -> None:
        self.job = job
        self.found: list[Rank] = []
        self.seen = False  # any, ever
        self.gone_at: float | None = None  # since when none lives, where some did
        self.several = False  # jobs, and nothing tells which
        self._due = 0.0

    def look(self, files: Iterable[str], pids: Iterable[int], written: float, now: float, soon: bool = False) -> None:
        """Look for them, if it is time. A journal names `pids`; the logs were `written` then."""
        alive = [r for r in self.found if _lives(r)]
        if len(alive) < len(self.found) or soon or now >= self._due:
            began = time.monotonic()
            self.found = self._ours(here.live(self.job)[0], set(files), set(pids), written)
            self._due = now + max(LOOK_S, SHARE * (time.monotonic() - began))
        self.seen = self.seen or bool(self.found)
        if self.found or not self.seen:
            self.gone_at = None
        elif self.gone_at is None:
            self.gone_at = now

    def _ours(self, live: Sequence[Rank], files: set[str], pids: set[int], written: float) -> list[Rank]:
        alive = [r for r in live if r.state not in ("Z", "X")]
        named = [r for r in alive if r.pid in pids or outputs(r.pid) & files]
        if named:
            jobs = {(r.job, r.kind) for r in named}
            return [r for r in alive if (r.job, r.kind) in jobs]
        alive = [r for r in alive if r.start < written and not any(map(os.path.isfile, outputs(r.pid)))]
        jobs = {(r.job, r.kind) for r in alive}
        self.several = len(jobs) > 1
        return [r for r in alive if (r.job, r.kind) in jobs] if len(jobs) == 1 else []

    def owners(self, files: Iterable[str]) -> dict[str, int]:
        """The files into which one rank alone writes."""
        writers: dict[str, set[int]] = {}
        wanted = set(files)
        for r in self.found:
            for path in outputs(r.pid) & wanted:
                writers.setdefault(path, set()).add(r.number)
        return {path: numbers.pop() for path, numbers in writers.items() if len(numbers) == 1}


def outputs(pid: int) -> set[str]:
    """Where a process writes its standard streams."""
    found = set()
    for descriptor in (1, 2):
        with suppress(OSError):
            found.add(str(Path(f"/proc/{pid}/fd/{descriptor}").readlink()))
    return found


def _lives(rank: Rank) -> bool:
    try:
        return ranks.status(rank.pid)[0] not in ("Z", "X")
    except (OSError, ValueError, IndexError):
        return False


def newest(files: Iterable[str]) -> float:
    """When any of them was last written; 0 where there is none."""
    latest = 0.0
    for path in files:
        with suppress(OSError):
            latest = max(latest, Path(path).lstat().st_mtime)
    return latest
