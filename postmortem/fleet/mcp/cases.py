"""What was read, kept for the questions that follow: the last few incidents, within a bound of memory.

case = await cases.read([Path("/jobs/17")], fresh=True)
case.document["verdict"]["headline"], case.rows[0].text
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread
from anyio.abc import Process

from postmortem.errors import PostmortemError
from postmortem.fleet.mcp.roots import Roots
from postmortem.privacy import Redactor
from postmortem.report.events import Row

KEPT = 64 << 20  # bytes of what children told, of all cases together
LARGEST = 256 << 20  # and of one child, which is read and shown, but may not stay
AT_ONCE = 2  # analyses
ANALYZE, DIFF = "analyze", "diff"  # what a child does with its paths
Told = Callable[[int, int, str], Awaitable[None]]
Key = tuple[str, tuple[Path, ...]]


@dataclass(frozen=True, slots=True)
class Case:
    """One analysis: the document, its events by time, and what is secret in them. Of two runs that are
    compared, the document is the comparison, and the rest is empty."""

    paths: tuple[Path, ...]
    stamp: str
    document: dict[str, Any]
    rows: tuple[Row, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    secrets: tuple[tuple[str, str, bool], ...] = field(default=(), repr=False)
    work: str = ANALYZE
    weight: int = 0

    @property
    def timeline(self) -> None:
        """What renders the document needs no more than it holds."""
        return None

    def redactor(self) -> Redactor:
        """One that knows each secret of these logs by its mark."""
        found = Redactor()
        found.recall(self.secrets)
        return found


class Cases:
    """The incidents that were asked for last."""

    def __init__(self, roots: Roots, patterns: Sequence[Path] = ()) -> None:
        self.roots, self.patterns = roots, [str(path) for path in patterns]
        self._kept: OrderedDict[Key, Case] = OrderedDict()
        self._locks: dict[Key, anyio.Lock] = {}
        self._room = anyio.CapacityLimiter(AT_ONCE)

    async def read(self, paths: tuple[Path, ...], fresh: bool, told: Told, work: str = ANALYZE) -> Case:
        """The analysis of these paths, or what differs between two; `fresh` reads again where a file has
        changed since."""
        key = work, paths
        lock = self._locks.setdefault(key, anyio.Lock())
        try:
            return await self._locked(lock, key, fresh, told)
        finally:
            if not lock.statistics().tasks_waiting:
                self._locks.pop(key, None)

    async def _locked(self, lock: anyio.Lock, key: Key, fresh: bool, told: Told) -> Case:
        async with lock:
            case = self._kept.get(key)
            if case is None or (fresh and case.stamp != await to_thread.run_sync(self.roots.stamp, key[1])):
                async with self._room:
                    case = await self._read(key, told)
                self._keep(case)
            if key in self._kept:  # one that is too large does not stay
                self._kept.move_to_end(key)
            return case

    def _keep(self, case: Case) -> None:
        key = case.work, case.paths
        self._kept.pop(key, None)
        self._kept[key] = case
        while sum(kept.weight for kept in self._kept.values()) > KEPT:
            self._kept.popitem(last=False)

    async def _read(self, key: Key, told: Told) -> Case:
        work, paths = key
        stamp = await to_thread.run_sync(self.roots.stamp, paths)
        answer = await self._ask(key, told)
        if "error" in answer:
            raise PostmortemError(answer["error"], answer["hint"])
        if work == DIFF:
            return Case(paths, stamp, answer["document"], work=work, weight=answer["weight"])
        return await to_thread.run_sync(_case, paths, stamp, answer)

    async def _ask(self, key: Key, told: Told) -> dict[str, Any]:
        """Let a child read. Whatever ends this call ends the child and its workers."""
        words = [sys.executable, "-P", "-m", "postmortem.fleet.mcp.child"]
        process = await anyio.open_process(words, stderr=None, start_new_session=True)
        try:
            return await self._listen(process, key, told)
        finally:
            with anyio.CancelScope(shield=True):
                _end(process)
                await process.wait()

    async def _listen(self, process: Process, key: Key, told: Told) -> dict[str, Any]:
        assert process.stdin and process.stdout
        asked = {"work": key[0], "paths": [str(path) for path in key[1]], "patterns": self.patterns}
        await process.stdin.send(json.dumps(asked).encode() + b"\n")
        held = bytearray()
        async for piece in process.stdout:
            held += piece
            if len(held) > LARGEST:
                raise PostmortemError("these logs give more than can be held here", "name fewer of them")
            while b"\n" in piece and (end := held.find(b"\n")) >= 0:
                line = bytes(held[:end])
                del held[: end + 1]
                answer: dict[str, Any] = await to_thread.run_sync(json.loads, line)
                if "done" not in answer:
                    return answer | {"weight": len(line)}
                await told(answer["done"], answer["total"], answer["what"])
        code = await process.wait()
        raise PostmortemError(
            f"the process that read the logs ended early ({_ending(code)})",
            "try again with fewer files, or run `postmortem analyze` in a terminal",
        )


def _end(process: Process) -> None:
    """The child and the workers that it started are one group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _ending(code: int) -> str:
    known = -code in set(signal.Signals)
    return signal.Signals(-code).name if known else f"exit code {code}"


def _case(paths: tuple[Path, ...], stamp: str, answer: dict[str, Any]) -> Case:
    texts = [sys.intern(said) for said in answer["texts"]]
    rows = (Row(*(_value(item, texts) for item in row)) for row in answer["rows"])
    return Case(
        paths,
        stamp,
        answer["document"],
        tuple(row._replace(time=float("nan")) if row.time is None else row for row in rows),
        tuple(answer["notes"]),
        tuple((secret, mark, bare) for secret, mark, bare in answer["secrets"]),
        weight=answer["weight"],
    )


def _value(item: Any, texts: Sequence[str]) -> Any:
    return texts[item[0]] if isinstance(item, list) else item
