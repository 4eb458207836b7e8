"""Which of the ranks that run on this host wrote the logs.

A rank did if a journal of `postmortem run` among the logs has its pid, or if its output goes into one of them.
Without such a rank, the only job with ranks here is taken: if they write into a pipe or a terminal, not
into other files, and the logs are not older than they are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from postmortem.live import proc
from postmortem.live.collect import here
from postmortem.live.collect.rank_search import Rank

LOOK_S, SHARE = 5.0, 50


class LocalRanks:
    """The ranks of the logs, searched for again from time to time."""

    def __init__(self, job: str = "") -> None:
        self.job = job
        self.found: list[Rank] = []
        self.gone_at: float | None = None  # when the last one ended
        self.several = False  # jobs, without a way to choose one
        self._seen = False
        self._due = 0.0

    def look(self, files: Collection[str], pids: Collection[int], now: float, soon: bool = False) -> None:
        """Search for them, if it is time. `pids` are those of a journal."""
        if soon or now >= self._due or not all(proc.alive(r.pid) for r in self.found):
            began = time.monotonic()
            self.found = self._search(set(files), pids)
            self._due = now + max(LOOK_S, SHARE * (time.monotonic() - began))
        self._seen = self._seen or bool(self.found)
        if self.found or not self._seen:
            self.gone_at = None
        elif self.gone_at is None:
            self.gone_at = now

    def _search(self, files: set[str], pids: Collection[int]) -> list[Rank]:
        alive = [r for r in here.live(self.job)[0] if r.state not in ("Z", "X")]
        named = [r for r in alive if r.pid in pids or outputs(r.pid) & files]
        jobs = {(r.job, r.kind) for r in named}
        if not named:
            written = newest(files)
            alive = [r for r in alive if r.start < written and not any(map(os.path.isfile, outputs(r.pid)))]
            jobs = {(r.job, r.kind) for r in alive}
            self.several = len(jobs) > 1
        return [r for r in alive if (r.job, r.kind) in jobs] if named or len(jobs) == 1 else []

    def owners(self, files: Iterable[str]) -> dict[str, int]:
        """Return the files into which only one rank writes, with that rank."""
        writers: dict[str, set[int]] = {path: set() for path in files}
        for r in self.found:
            for path in outputs(r.pid) & writers.keys():
                writers[path].add(r.number)
        return {path: numbers.pop() for path, numbers in writers.items() if len(numbers) == 1}


def outputs(pid: int) -> set[str]:
    """Return the destinations of a process's standard streams."""
    found = set()
    for descriptor in (1, 2):
        with suppress(OSError):
            found.add(str(Path(f"/proc/{pid}/fd/{descriptor}").readlink()))
    return found


def newest(files: Iterable[str]) -> float:
    """Return when any of them was last written; 0 without any."""
    times = [0.0]
    for path in files:
        with suppress(OSError):
            times.append(Path(path).lstat().st_mtime)
    return max(times)
