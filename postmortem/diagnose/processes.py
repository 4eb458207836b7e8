"""One row for each process of one attempt: who it is and how that is known, what it did, and how it ended.

    launcher            gpu-3   4100                                     Sending process 4201 closing signal SIGTERM
    rank 1   local 1    gpu-3   4201   steps 0 to 39   SIGTERM, requested by the launcher
    rank 2   local 2    gpu-3   4202   steps 0 to 39   exit code 1, error at train.log:87
    dataloader-worker   gpu-3   4377   of rank 2       SIGKILL

In: the events of one attempt, copies merged, and the joins of its job. Out: `Process` rows, those of ranks first. Each
pass below fills some cells; `Case` and the document only read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from postmortem.align.place import moment
from postmortem.diagnose.who.evidence import Registry, Strength
from postmortem.formats import endings
from postmortem.formats.endings import Ending
from postmortem.library import Library
from postmortem.model import Event
from postmortem.model.digits import whole

Role = Literal["rank", "launcher", "dataloader-worker", "child"]
_CHILD_PID = re.compile(r"\(pid\(?s?\)? ?(?P<pid>\d{1,9})\)")
WRITTEN = ("line", "progress", "finished")
RAISED = ("exception", "crash")
Words = Mapping[str, Sequence[Event]]  # events by what their pattern reports (TELLS of vocabulary.py)


class Known(NamedTuple):
    """How an identity cell is known: how well, and by which event."""

    strength: Strength
    event: Event


class Stop(NamedTuple):
    """A request to stop: `by` is launcher, scheduler, user or unknown."""

    by: str
    event: Event


@dataclass(frozen=True, slots=True)
class Process:
    """One process. Unknown is None; times are seconds since the epoch on the job's clock."""

    role: Role
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    parent: int | None = None  # rank
    gpu: str | None = None
    first_seen: float | None = None
    first_step: int | None = None
    last_step: int | None = None
    last_line: Event | None = None
    stack: Event | None = None
    stop: Stop | None = None
    end: Ending | None = None
    error: Event | None = None
    finished: Event | None = None
    lines: Sequence[Event] = ()  # its ordinary lines and counts
    known: Mapping[str, Known] = field(default_factory=dict)  # by the name of the cell

    @property
    def ended_at(self) -> float | None:
        report = self.end.reported_by if self.end is not None else None
        return moment(report) if report is not None else None


def table(by_rank: Mapping[int, Sequence[Event]], words: Words, ends: Mapping[int, Ending], registry: Registry,
          library: Library) -> tuple[Process, ...]:  # fmt: skip
    """The rows of all ranks of a job, then those of their launchers and children."""
    locals_ = {e.rank: e.subject.name for e in registry.all("local")}
    gpus = {e.rank: e.subject.name for e in registry.all("gpu")}
    stops = list(_stops(words, library))
    rows = []
    for rank in registry.ranks:
        pid = next(iter(registry.pids.get(rank, ())), None)
        row = Process("rank", rank, locals_.get(rank), registry.host_of.get(rank), pid, None, gpus.get(rank))
        row = _with_events(replace(row, end=ends.get(rank)), by_rank.get(rank, ()), registry)
        rows.append(_with_stop(row, stops))
    return (*rows, *_launchers(words), *_children(words, registry))


def _with_events(row: Process, events: Sequence[Event], registry: Registry) -> Process:
    """The row with what the events of its process show."""
    return replace(
        row,
        **_written([e for e in events if e.kind in WRITTEN]),
        known=_known(row, events, registry),
        first_seen=min(filter(None, map(moment, events)), default=None),
        stack=next((e for e in reversed(events) if e.kind == "stack" and not e.fields.get("child")), None),
        error=next((e for e in events if e.kind in RAISED and not e.fields.get("wrapper")), None),
    )


def _written(events: Sequence[Event]) -> dict[str, Any]:
    """The cells that the ordinary lines of a process, its counts and its final messages fill."""
    steps = [e.fields["step"] for e in events if e.kind == "progress" and "step" in e.fields]
    return {
        "first_step": min(steps, default=None),
        "last_step": max(steps, default=None),
        "last_line": max(reversed(events), key=lambda e: (e.at or 0.0, e.line), default=None),
        "finished": next((e for e in reversed(events) if e.kind == "finished"), None),
        "lines": [e for e in events if e.kind != "finished"],
    }


def _known(row: Process, events: Sequence[Event], registry: Registry) -> dict[str, Known]:
    """The best event for each identity cell."""
    known: dict[str, Known] = {}
    best = {cell: -1 for cell in ("rank", "host", "pid") if getattr(row, cell) is not None}
    for e in events:
        strength = registry.identify(e)[1]
        for cell, least in best.items():
            of_pid = cell != "pid" or row.pid in (e.pid, e.fields.get("pid"))
            if strength > least and of_pid and (cell != "host" or e.host == row.host):
                best[cell], known[cell] = strength, Known(strength, e)
    return known


def ends(exits: Iterable[Event], reports: Iterable[Event], registry: Registry) -> dict[int, Ending]:
    """How each rank ended: by the launcher's failure block or a script, else by its launcher's one-line report."""
    found: dict[int, Ending] = {}
    for e in exits:
        code = e.fields.get("exitcode")
        if e.rank is not None and code is not None:
            found.setdefault(e.rank, endings.of(code, e))
    for e in reports:
        pid, code = e.fields.get("pid"), e.fields.get("exitcode")
        rank = registry.rank_of_pid(pid, e.host)
        rank = registry.rank_of(e) if rank is None else rank
        if rank is not None and code is not None and rank not in found:
            report = e._replace(kind="exit", rank=rank, pid=pid, fields={**e.fields, "exitcode": code})
            found[rank] = endings.of(code, report)
    return found


def _stops(words: Words, library: Library) -> Iterator[tuple[int | None, Stop]]:
    """Each request to stop with the pid that it is for; None: for the whole job."""
    for e in (*words.get("asks", ()), *words.get("forces", ())):
        yield e.fields.get("pid"), Stop("launcher", e)
    for e in words.get("stop", ()):
        pattern = library.get(e.pattern)
        yield None, Stop("scheduler" if pattern and pattern.category == "scheduler" else "unknown", e)


def _with_stop(row: Process, stops: Sequence[tuple[int | None, Stop]]) -> Process:
    """The row with the request that names its pid, else with that for the whole job."""
    own = next((stop for pid, stop in stops if pid is not None and pid == row.pid), None)
    return replace(row, stop=own or next((stop for pid, stop in stops if pid is None), None))


def _launchers(words: Words) -> list[Process]:
    """A row for each launcher that reports an end or requests a stop under its own pid."""
    found: dict[int, Process] = {}
    for e in (e for word in ("asks", "forces", "exit", "death") for e in words.get(word, ())):
        if e.pid is not None and e.speaker == "launcher":
            found.setdefault(e.pid, Process("launcher", host=e.host, pid=e.pid, first_seen=moment(e), last_line=e))
    return list(found.values())


def _children(words: Words, registry: Registry) -> Iterator[Process]:
    """A row for each process that a rank reports as its own child."""
    seen = set()
    for e in words.get("child", ()):
        if (pid := child_of(e)) is not None and pid not in seen:
            seen.add(pid)
            role: Role = "dataloader-worker" if "DataLoader" in e.text else "child"
            row = Process(role, None, None, e.host, pid, registry.rank_of(e), end=endings.reported(e))
            yield replace(row, known={"pid": Known(Strength.STATED, e)})


def child_of(e: Event) -> int | None:
    """The pid of the child that an event is about: `DataLoader worker (pid 4377) is killed by signal: Killed`."""
    named = _CHILD_PID.search(e.text)
    return whole(named["pid"]) if named else None
