"""Runs the items on this host, several at a time, and reports the result of each.

    for row, data in collected(since=None): archive.add(row["file"], data)

A row has the item's command, start, duration, exit code, and the reason if it failed.
"""

from __future__ import annotations

import json
import os
import re
import select
import time
import zlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from postmortem.live.collect import rank_search, readers
from postmortem.live.collect.rank_search import Rank
from postmortem.live.collect.subprocesses import MOST_BYTES, Child
from postmortem.model import collected as items
from postmortem.model.collected import Item

if TYPE_CHECKING:
    from postmortem.model.collected import Way

    Row = dict[str, Any]

TOGETHER = 8
SOON = 4.0  # seconds for an item that `watch` waits for
RANKS = 256  # of one host
DUMPS = 256
CORES = 16
DAY = 86400.0
EARLIER = 60.0  # seconds before the job's start: the kernel's clock drifts
HEADED = "# postmortem collect: "  # first line of a text in which `analyze` searches for no failure

SEARCH = Item("ranks", "the ranks that run on this host", (), limit=5, state=False)
LISTING = Item("dumps", "paths of flight-recorder dumps", (), limit=5, state=False)
CORE_LISTING = Item("cores", "paths of core files", (), limit=20, state=False)


@dataclass(frozen=True)
class Task:
    """An item with its commands filled in."""

    item: Item
    file: str
    ways: tuple[Way, ...]


def collected(since: float | None = None, job: str = "", alone: bool = False) -> Iterator[tuple[Row, bytes]]:
    """Yield the items of this host, in the order in which they are lost. `job`, the id of a run of torchrun or of a
    Slurm job, restricts the ranks. `alone` includes the scheduler, which otherwise one host asks for all."""
    found, row = live(job)
    if row:
        yield row, b""
    if since is None:
        since = min((r.start for r in found), default=time.time() - DAY) - EARLIER
    jobs = {r.job for r in found}  # several get a folder each, the same on all of their hosts
    folder = {job: f"job_{zlib.crc32(job.encode('utf-8', 'replace'))}/" if len(jobs) > 1 else "" for job in jobs}
    yield from taken([task for r in found for task in _of_rank(r, folder[r.job])])
    words = {
        "PIDS": ",".join(str(r.pid) for r in found),
        "EPOCH": str(since),
        "SINCE": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since)),
    }
    cores = _cores(found, since, job)
    yield from taken([*_recorder_dumps(found, since), *cores, *(_filled(item, **words) for item in items.HOST)])
    if alone:
        known = {r.ids[1] for r in found} | {os.environ.get("SLURM_JOB_ID", "")}
        yield from taken([task for number in sorted(known) if number.isdecimal() for task in of_slurm(number)])
    settings = [_per_rank(item, r, folder[r.job]) for r in found for item in (items.LIBRARIES, items.ENVIRONMENT)]
    yield from taken(settings or [Task(items.ENVIRONMENT, "environment.txt", (("read:environment", "self"),))])


def live(job: str = "") -> tuple[list[Rank], Row | None]:
    """Return the ranks that run here, and a row if the search for them is incomplete."""
    ((row, data),) = taken([Task(SEARCH, "", (("read:ranks",),))])
    found = rank_search.chosen([rank_search.from_json(line) for line in data.split(b"\n")[:-1]])
    wanted = [r for r in found if not job or job in r.ids]
    if len(wanted) > RANKS:
        row["why"] = f"{len(wanted)} ranks run here; stacks of the first {RANKS} are taken"
    incomplete = len(wanted) > RANKS or (row["why"] and row["exit"] != 0)
    return wanted[:RANKS], {**row, "file": None} if incomplete else None


def stacks_and_processes(found: Sequence[Rank]) -> Iterator[tuple[Row, bytes]]:
    """Yield the stacks and process files of these ranks of one job, and the process table."""
    table = next(item for item in items.HOST if item.name == "ps.txt")
    yield from _taken_soon([*(task for r in found for task in _of_rank(r, "")), _filled(table)])


def stacks(pids: Iterable[int]) -> dict[int, bytes]:
    tasks = [_filled(items.STACK, str(pid), PID=str(pid)) for pid in pids]
    return {int(row["file"]): data for row, data in _taken_soon(tasks) if row["file"]}


def _taken_soon(tasks: Iterable[Task]) -> Iterator[tuple[Row, bytes]]:
    return taken(replace(task, item=replace(task.item, limit=min(task.item.limit, SOON))) for task in tasks)


def _of_rank(rank: Rank, folder: str) -> Iterator[Task]:
    for pid, name in ((rank.pid, ""), *((child, "child.") for child in rank.children)):
        yield _filled(items.STACK, f"{folder}rank{rank.number}.pid{pid}.{name}stack.txt", PID=str(pid))
    yield _per_rank(items.PROCESS, rank, folder)


def _per_rank(item: Item, rank: Rank, folder: str) -> Task:
    file = folder + item.name.replace("RANK", str(rank.number)).replace("PID", str(rank.pid))
    return _filled(item, file, PID=str(rank.pid))


def of_slurm(job: str) -> list[Task]:
    return [_filled(item, JOB=job) for item in items.SLURM]


def of_pods(selector: str, pods: Sequence[str]) -> Iterator[Task]:
    """Yield the records of Kubernetes on pods, also of those that have ended."""
    for item in items.KUBERNETES:
        yield _filled(item, SELECTOR=selector)
    for pod in pods:
        for item in items.POD:
            yield _filled(item, f"host={pod}/{item.name}", POD=pod)


def _filled(item: Item, file: str = "", **words: str) -> Task:
    return Task(item, file or item.name, tuple(items.filled(way, **words) for way in item.ways))


def _recorder_dumps(found: Sequence[Rank], since: float) -> Iterator[Task]:
    """Yield the dumps of these ranks; without ranks, those of this user."""
    prefixes = {(prefix, r.uid) for r in found for prefix in r.dumps}
    if not found:
        prefixes = {(prefix, os.getuid()) for prefix in rank_search.dump_prefixes(dict(os.environ))}
    searches = [json.dumps([prefix, uid, since]) for prefix, uid in sorted(prefixes)]
    ((_, data),) = taken([Task(LISTING, "", (("read:dumps", *searches),))])
    names: set[str] = set()
    for line in data.split(b"\n")[:-1][:DUMPS]:
        path, uid = json.loads(line)
        yield _filled(items.RECORDER, f"recorder/{_named(path, names)}", FILE=path, UID=str(uid))


def _cores(found: Sequence[Rank], since: float, job: str) -> Iterator[Task]:
    """Yield what to take of the cores of these ranks; without ranks, of those that this user's ranks left."""
    folders = {(r.folder, r.uid) for r in found} or {(os.getcwd(), os.getuid())}
    jobs = sorted({r.job for r in found})
    searches = [json.dumps([folder, uid, since, jobs, job]) for folder, uid in sorted(folders)]
    ((_, data),) = taken([Task(CORE_LISTING, "", (("read:cores", *searches),))])
    names: set[str] = set()
    for line in data.split(b"\n")[:-1][:CORES]:
        path, uid, pid, program = json.loads(line)
        name = _named(path, names)
        yield _filled(items.CORE, f"core/{name}.json", FILE=path, UID=str(uid))
        if program and not path.endswith((".xz", ".zst", ".lz4")):
            yield _filled(items.CORE_STACK, f"core/{name}.pid{pid}.stack.txt", FILE=path, PROGRAM=program)


def _named(path: str, names: set[str]) -> str:
    """Return the name of a file in the archive that no other has."""
    name = re.sub(r"[^\w.-]", "_", os.path.basename(path))
    while name in names:
        name = f"other-{name}"
    names.add(name)
    return name


def _run(task: Task) -> Generator[Child, None, tuple[Row, bytes]]:
    """Yield the child of one way after the other, each until it is over; return the result."""
    item, data = task.item, b""
    reasons: list[str] = []
    row: Row = {"item": item.name, "file": None, "started": time.time(), "seconds": 0.0, "exit": None, "cut": False}
    for at, way in enumerate(task.ways):
        row.update(command=list(way), tried=[list(tried) for tried in task.ways[:at]])
        try:
            child = Child(way, item.limit, readers.RECORDER_MAX if item is items.RECORDER else MOST_BYTES, item.end)
        except OSError as error:
            reasons.append(f"{way[0]}: {error.strerror}")
            continue
        try:
            yield child
        finally:
            child.finish()
        # the silence of some programs means that there was nothing
        silent = way[0] in item.silent and child.code == 0 and not child.size and not child.error
        if child.size or silent:
            row.update(started=child.started, seconds=round(child.seconds, 3), exit=child.code, cut=child.cut)
            row["file"], reasons, data = task.file, [_failure(child)], child.output
            break
        reasons.append(f"{way[0]}: {_failure(child) or 'printed nothing'}")
    row.update(bytes=len(data), why="; ".join(reasons))
    if data and item.state:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(row["started"]))
        end = "given up" if row["exit"] is None else f"exit code {row['exit']}"
        head = f"{HEADED}{' '.join(row['command'])}\n# {when}, {row['seconds']} s, {end}\n"
        data = head.encode("utf-8", "replace") + data
    return row, data


def taken(tasks: Iterable[Task]) -> Iterator[tuple[Row, bytes]]:
    """Run the tasks in their order; yield the result of each when it ends."""
    waiting = deque(map(_run, tasks))
    running: dict[Generator[Child, None, tuple[Row, bytes]], Child] = {}
    try:
        while waiting or running:
            while waiting and len(running) < TOGETHER:
                run = waiting.popleft()
                try:
                    running[run] = next(run)
                except StopIteration as end:
                    yield end.value
            by_pipe = {pipe: child for child in running.values() for pipe in child.pipes}
            poll = select.poll()
            for pipe in by_pipe:
                poll.register(pipe, select.POLLIN)
            for pipe, _ in poll.poll(50 if by_pipe else 10):
                by_pipe[pipe].take(pipe)
            for run in [run for run, child in running.items() if child.over()]:
                del running[run]
                waiting.appendleft(run)  # to try its next way, or to return
    finally:
        for run in (*running, *waiting):
            run.close()


def _failure(child: Child) -> str:
    """Return why a way failed; empty if it did not."""
    if child.timed_out:
        return f"no end after {child.limit:g} s: given up"
    if not child.code:
        return ""
    end = f"killed by signal {-child.code}" if child.code < 0 else f"exit code {child.code}"
    return f"{end}: {child.error}" if child.error else end
