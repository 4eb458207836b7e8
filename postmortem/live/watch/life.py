"""Signs of life of ranks that print nothing: CPU time, reads and writes, wake-ups, other lines of code.

    two looks, 5 s apart: rank 0 used 4.8 s of CPU time in other frames   ->   "rank 0 works (train.py:40)"

A rank that spins in a collective uses CPU time and does nothing; one that polls for a file every second goes
from line to line and does nothing. So CPU time counts where a rank does not wait in a collective, and other
lines count where CPU time does. No process is stopped or signalled for a look.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from postmortem import reading
from postmortem.library import Library
from postmortem.live.collect import here
from postmortem.live.collect.ranks import Rank
from postmortem.live.run.processes import read
from postmortem.live.watch import phases
from postmortem.live.watch.rhythm import Sign
from postmortem.model import Event, Source

BUSY, LITTLE = 0.2, 0.04  # of one processor
MOVED = 256 << 10  # bytes read or written per second
FAULTS, WAKES = 20.0, 4.0  # pages from disk, and wake-ups of the main thread, per second
TICK = os.sysconf("SC_CLK_TCK")
STOPPED = ("T", "t")


@dataclass(frozen=True, slots=True)
class Sight:
    """One process at one moment. `frames` are its main thread's, innermost first."""

    rank: int
    state: str
    cpu: float
    wanted: float  # by its main thread: where others have the processors too, it waits for one
    moved: int
    faults: int
    wakes: int
    child: bool = False
    frames: tuple[tuple[str, int, str], ...] = ()
    code: str = ""
    collective: str = ""


Look = dict[int, Sight]  # by pid


def look(found: Sequence[Rank], library: Library) -> Look:
    """See each rank and its children. Stacks only of the ranks."""
    stacks = here.stacks([r.pid for r in found])
    seen: Look = {}
    for r in found:
        for pid, child in ((r.pid, False), *((pid, True) for pid in r.children)):
            sight = _sight(r.number, pid, child, stacks.get(pid), library)
            if sight is not None:
                seen[pid] = sight
    return seen


def _sight(rank: int, pid: int, child: bool, stack: bytes | None, library: Library) -> Sight | None:
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) < 40:
        return None
    e = _main(rank, pid, stack, library) if stack else None
    frames = e.fields.get("frames") if e else ()
    return Sight(
        rank=rank,
        state=fields[0].decode(),
        cpu=sum(map(int, fields[11:15])) / TICK,  # with the children that it has waited for
        wanted=_wanted(pid),
        moved=_numbers(f"/proc/{pid}/io", (b"rchar", b"wchar")),
        faults=int(fields[9]),
        wakes=_numbers(f"/proc/{pid}/task/{pid}/status", (b"voluntary_ctxt_switches",)),
        child=child,
        frames=frames if isinstance(frames, tuple) else (),
        code=str(e.fields.get("code") or "") if e else "",
        collective=str(e.fields.get("collective") or "") if e else "",
    )


def _main(rank: int, pid: int, stack: bytes, library: Library) -> Event | None:
    source = Source(f"rank{rank}.pid{pid}.stack.txt", "stack", len(stack), rank=rank)
    events = reading.read_piece(source, stack, library)
    return next((e for e in events if e.kind == "stack" and not e.fields.get("child")), None)


def _wanted(pid: int) -> float:
    """Seconds that the main thread ran or could have run."""
    fields = read(f"/proc/{pid}/schedstat").split()
    return (int(fields[0]) + int(fields[1])) / 1e9 if len(fields) == 3 else 0.0


def _numbers(path: str, names: Iterable[bytes]) -> int:
    total = 0
    for line in read(path).splitlines():
        name, _, value = line.partition(b":")
        if name in names and value.strip().isdigit():
            total += int(value)
    return total


def phase(seen: Look) -> str:
    """The phase that any rank's code stands in."""
    return next((named for s in seen.values() if (named := phases.runs(s.frames))), "")


def compare(before: Look, after: Look, seconds: float) -> Sign | None:
    """The best sign of life between two looks."""
    signs = [s for pid, a in after.items() if (s := _sign(before.get(pid), a, max(seconds, 0.1)))]
    return max(signs, key=lambda sign: sign.strong, default=None)


def _sign(b: Sight | None, a: Sight, seconds: float) -> Sign | None:
    who = f"a child of rank {a.rank}" if a.child else f"rank {a.rank}"
    if b is None:
        return Sign(f"{who} has just started")
    if a.state in STOPPED:
        return None
    used = max(a.cpu - b.cpu, a.wanted - b.wanted) / seconds
    if (a.moved - b.moved) / seconds > MOVED or (a.faults - b.faults) / seconds > FAULTS:
        return Sign(f"{who} reads or writes")
    woken = not a.child and (a.wakes - b.wakes) / seconds > WAKES
    if a.frames and b.frames:
        return _by_frames(who, b, a, used, woken)
    if used > BUSY:
        return Sign(f"{who} uses CPU time", strong=a.child)
    return Sign(f"{who} is woken again and again", strong=False) if woken else None


def _by_frames(who: str, b: Sight, a: Sight, used: float, woken: bool) -> Sign | None:
    """Where both stacks are known."""
    where = f" ({a.code})" if a.code else ""
    if [(file, name) for file, _, name in a.frames] != [(file, name) for file, _, name in b.frames]:
        return Sign(f"{who} goes on to other code{where}")
    if a.frames != b.frames and used > LITTLE:
        return Sign(f"{who} works{where}")
    if a.collective:
        return None
    if used > BUSY:
        return Sign(f"{who} uses CPU time{where}", strong=False)
    return Sign(f"{who} is woken again and again{where}", strong=False) if woken else None
