"""Activity of ranks that print nothing: CPU time, reads and writes, wake-ups, other lines of code.

    two looks, 5 s apart: rank 0 used 4.8 s of CPU time in other frames   ->   "rank 0 works (train.py:40)"

A rank that spins in a collective uses CPU time and does nothing; one that polls for a file every second goes
from line to line and does nothing. So CPU time counts where a rank does not wait in a collective, and other
lines count where CPU time does. No process is stopped or signalled for a look.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from postmortem import reading
from postmortem.library import Library
from postmortem.live import proc
from postmortem.live.collect import here
from postmortem.live.collect.rank_search import Rank
from postmortem.live.watch import rhythm
from postmortem.live.watch.rhythm import Activity
from postmortem.model import Source

BUSY, LITTLE = 0.2, 0.04  # of one processor
MOVED = 256 << 10  # bytes read or written per second
FAULTS, WAKES = 20.0, 4.0  # pages from disk, and wake-ups of the main thread, per second
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One process at one moment. `frames` are its main thread's, innermost first."""

    rank: int
    state: str
    cpu: float  # seconds
    wanted: float  # seconds that the main thread ran or waited for a processor
    moved: int  # bytes
    faults: int
    wakes: int
    child: bool = False
    frames: tuple[tuple[str, int, str], ...] = ()
    code: str = ""
    collective: str = ""


Look = dict[int, Snapshot]  # by pid


def look(found: Sequence[Rank], library: Library) -> Look:
    """Return each rank and its children; only ranks have frames."""
    stacks = here.stacks([r.pid for r in found])
    pids = [(r.number, pid, pid != r.pid) for r in found for pid in (r.pid, *r.children)]
    snapshots = {pid: _snapshot(rank, pid, child, stacks.get(pid), library) for rank, pid, child in pids}
    return {pid: snapshot for pid, snapshot in snapshots.items() if snapshot}


def _snapshot(rank: int, pid: int, child: bool, stack: bytes | None, library: Library) -> Snapshot | None:
    fields = proc.stat(pid)
    if len(fields) < 40:
        return None
    main: Mapping[str, object] = {}
    if stack:
        source = Source(f"rank{rank}.pid{pid}.stack.txt", "stack", len(stack), rank=rank)
        events = reading.read_piece(source, stack, library)
        main = next((e.fields for e in events if e.kind == "stack" and not e.fields.get("child")), {})
    frames = main.get("frames")
    ran, waited, _ = (*map(int, proc.read(f"/proc/{pid}/schedstat").split()), 0, 0, 0)[:3]
    io, status = _numbers(f"/proc/{pid}/io"), _numbers(f"/proc/{pid}/task/{pid}/status")
    return Snapshot(
        rank=rank,
        state=fields[0].decode(),
        cpu=sum(map(int, fields[11:15])) / TICK,  # with the children that it has reaped
        wanted=(ran + waited) / 1e9,
        moved=io.get("rchar", 0) + io.get("wchar", 0),
        faults=int(fields[9]),
        wakes=status.get("voluntary_ctxt_switches", 0),
        child=child,
        frames=frames if isinstance(frames, tuple) else (),
        code=str(main.get("code") or ""),
        collective=str(main.get("collective") or ""),
    )


def _numbers(path: str) -> dict[str, int]:
    pairs = (line.partition(":") for line in proc.text(path).splitlines())
    return {name: int(value) for name, _, value in pairs if value.strip().isdecimal()}


def phase(seen: Look) -> str:
    """Return the phase of any rank's code."""
    return next((name for s in seen.values() if (name := rhythm.phase_of_frames(s.frames))), "")


def compare(before: Look, after: Look, seconds: float) -> Activity | None:
    """Return the strongest activity between two looks."""
    found = [a for pid, snapshot in after.items() if (a := _activity(before.get(pid), snapshot, max(seconds, 0.1)))]
    return max(found, key=lambda activity: activity.strong, default=None)


def _activity(b: Snapshot | None, a: Snapshot, seconds: float) -> Activity | None:
    who = f"a child of rank {a.rank}" if a.child else f"rank {a.rank}"
    if b is None:
        return Activity(f"{who} has just started")
    if a.state in ("T", "t"):  # stopped
        return None
    used = max(a.cpu - b.cpu, a.wanted - b.wanted) / seconds
    if (a.moved - b.moved) / seconds > MOVED or (a.faults - b.faults) / seconds > FAULTS:
        return Activity(f"{who} reads or writes")
    where = f" ({a.code})" if a.code else ""
    known = bool(a.frames and b.frames)
    if known:
        if [(file, name) for file, _, name in a.frames] != [(file, name) for file, _, name in b.frames]:
            return Activity(f"{who} goes on to other code{where}")
        if a.frames != b.frames and used > LITTLE:
            return Activity(f"{who} works{where}")
        if a.collective:
            return None
    if used > BUSY:
        return Activity(f"{who} uses CPU time{where}", strong=a.child and not known)
    woken = not a.child and (a.wakes - b.wakes) / seconds > WAKES
    return Activity(f"{who} is woken again and again{where}", strong=False) if woken else None


# ── which of the ranks on this host wrote the logs ──────────────────────────────────────────────────────────

# A rank did if a journal of `postmortem run` among the logs has its pid, or if its output goes into one of them.
# Without such a rank, the only job with ranks here is taken: if they write into a pipe or a terminal, not into other
# files, and the logs are not older than they are.

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
