"""Documents: sources that are read as a whole, with one subject and one time. One module per kind.

A row of `input/kinds.yaml` recognizes a kind by its first bytes, a head, or a name; its reader makes events from it:

    def parse(source: Source, content: bytes) -> Iterator[Event]

What a document states becomes an event of a kind that the diagnosis knows (`crash`, `stack`, `exit`, `process`, ...),
or a `fact` (see `formats.excerpt.fact`), which patterns with `on: fact` read. Where patterns read the lines
themselves, `PLACED` adds to their events what other lines of the document state. A document that cannot be read is an
event `unreadable`; a reader never raises on content. Binary formats are read in parts. A document shows a failure or a
state, and never that a job went well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from postmortem.documents import (
    core,
    crash_reports,
    debug_server,
    error_file,
    flight_recorder,
    gpus,
    inspector,
    kubernetes,
    memory_snapshot,
    ras,
    schedulers,
    tables,
)
from postmortem.documents.parts import Parts, Stream
from postmortem.model import Event, Source

Reader = Callable[[Source, bytes], Iterator[Event]]

READERS: dict[str, Reader] = {
    "error-file": error_file.parse,
    "flight-recorder": flight_recorder.parse,
    "stack": debug_server.stacks,
    "core-head": core.head,
    "coredumpctl": crash_reports.coredumpctl,
    "abrt": crash_reports.abrt,
    "process-table": tables.processes,
    "cgroup": tables.counters,
    "slurm": schedulers.parse,
    "job-report": schedulers.parse,
    "unit-status": schedulers.parse,
    "gpu-report": gpus.parse,
    "ras": ras.parse,
    "debug-server": debug_server.parse,
    "inspector": inspector.parse,
}
IN_PARTS: dict[str, Callable[[Source, Parts, str], Iterator[Event]]] = {
    "core": core.parse,
    "apport": crash_reports.apport,
    "memory-snapshot": memory_snapshot.parse,
    "minidump": core.minidump,
}  # of what is not read as a whole
UNREAD = "memory and tables that tell nothing about the crash"
PLACED: dict[str, Callable[[Source, bytes, Sequence[Event]], list[Event]]] = {"kubernetes": kubernetes.placed}
KINDS = frozenset({*READERS, *PLACED})  # sources that are read whole
# patterns do not read the lines of these,
UNSEARCHED = frozenset({"abrt", "core-head", "flight-recorder", "inspector", "debug-server"})
STATED = frozenset(
    {"slurm", "job-report", "ras", "stack", "coredumpctl"}
)  # nor those of these unless the reader finds nothing

__all__ = ["IN_PARTS", "KINDS", "PLACED", "READERS", "STATED", "UNREAD", "UNSEARCHED", "Parts", "Reader", "Stream"]
