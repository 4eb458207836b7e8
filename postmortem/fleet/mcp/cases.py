"""Analyses by child processes, cached for later questions within a bound of memory.

case = await cases.read([Path("/jobs/17")], True, progress)
case.document["verdict"]["headline"], case.rows[0].text
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from postmortem.errors import PostmortemError
from postmortem.fleet.mcp.roots import Roots
from postmortem.privacy import Redactor
from postmortem.report.events import Row

CACHED = 64 << 20  # bytes of the output of children, of all cases together
LARGEST = 256 << 20  # bytes of one child's output; a larger case than CACHED is answered, but not cached
AT_ONCE = 2  # analyses
ANALYZE, DIFF = "analyze", "diff"  # work of a child
Progress = Callable[[int, int, str], Awaitable[None]]
Key = tuple[str, tuple[Path, ...]]


@dataclass(frozen=True, slots=True)
class Case:
    """An analysis: the document, its events by time, and its secrets. Of a comparison only the document."""

    paths: tuple[Path, ...]
    stamp: str
    document: dict[str, Any]
    rows: tuple[Row, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    secrets: tuple[tuple[str, str, bool], ...] = field(default=(), repr=False)
    weight: int = 0
    timeline: None = None  # reports are rendered from the document alone

    def redactor(self) -> Redactor:
        """Return one that masks each secret of these logs by the same mark."""
        found = Redactor()
        found.recall(self.secrets)
        return found


class Cases:
    """The cases that were used last."""

    def __init__(self, roots: Roots, patterns: Sequence[Path] = ()) -> None:
        self.roots, self.patterns = roots, [str(path) for path in patterns]
        self._cached: OrderedDict[Key, Case] = OrderedDict()
        self._locks: dict[Key, anyio.Lock] = {}
        self._room = anyio.CapacityLimiter(AT_ONCE)

    async def read(self, paths: tuple[Path, ...], fresh: bool, progress: Progress, work: str = ANALYZE) -> Case:
        """Return the analysis of these paths, or the comparison of two. `fresh` reads again if a file has changed."""
        key = work, paths
        lock = self._locks.setdefault(key, anyio.Lock())
        try:
            async with lock:
                case = self._cached.get(key)
                if case is None or (fresh and case.stamp != await to_thread.run_sync(self.roots.stamp, paths)):
                    async with self._room:
                        case = await self._read(key, progress)
                    self._cached.pop(key, None)
                self._cache(key, case)
                return case
        finally:
            if not lock.statistics().tasks_waiting:
                self._locks.pop(key, None)

    def _cache(self, key: Key, case: Case) -> None:
        """Make the case the latest, and drop the oldest ones for it."""
        self._cached[key] = case
        self._cached.move_to_end(key)
        while sum(cached.weight for cached in self._cached.values()) > CACHED:
            self._cached.popitem(last=False)

    async def _read(self, key: Key, progress: Progress) -> Case:
        stamp = await to_thread.run_sync(self.roots.stamp, key[1])
        words = [sys.executable, "-P", "-m", "postmortem.fleet.mcp.child"]
        with anyio.CancelScope(shield=True):  # cancelled in its start, a child would be left to nobody
            process = await anyio.open_process(words, stderr=None, start_new_session=True)
        try:
            line = await self._output(process, key, progress)
        finally:  # whatever ends this call ends the child and its workers, which are one process group
            with anyio.CancelScope(shield=True):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return await to_thread.run_sync(_case, key[1], stamp, line)

    async def _output(self, process: Process, key: Key, progress: Progress) -> bytes:
        """Return the last line of a child, which has its result, and pass on the progress in the others."""
        assert process.stdin and process.stdout
        asked = {"work": key[0], "paths": [str(path) for path in key[1]], "patterns": self.patterns}
        await process.stdin.send(json.dumps(asked).encode() + b"\n")
        output = BufferedByteReceiveStream(process.stdout)
        try:
            while (line := await output.receive_until(b"\n", LARGEST)).startswith(b'{"done"'):
                await progress(*json.loads(line).values())
            return line
        except anyio.DelimiterNotFound:
            raise PostmortemError("these logs give more than can be held here", "name fewer of them") from None
        except anyio.IncompleteRead:
            pass
        code = await process.wait()
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"exit code {code}"
        raise PostmortemError(
            f"the process that read the logs ended early ({name})",
            "try again with fewer files, or run `postmortem analyze` in a terminal",
        )


def _case(paths: tuple[Path, ...], stamp: str, line: bytes) -> Case:
    result = json.loads(line)
    if "error" in result:
        raise PostmortemError(result["error"], result["hint"])
    rows: list[list[Any]] = [[sys.intern(v) if isinstance(v, str) else v for v in row] for row in result["rows"]]
    secrets = tuple((secret, mark, bare) for secret, mark, bare in result["secrets"])
    return Case(
        paths, stamp, result["document"], tuple(Row(*row) for row in rows), tuple(result["notes"]), secrets, len(line)
    )
