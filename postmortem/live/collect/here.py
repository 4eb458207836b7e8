"""Runs the items on this host, several at a time, and says of each what came.

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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from postmortem.live.collect import ranks, readers
from postmortem.live.collect.child import MOST, Child
from postmortem.live.collect.ranks import Rank
from postmortem.model import collected as items
from postmortem.model.collected import Item

if TYPE_CHECKING:
    from postmortem.model.collected import Way

    Row = dict[str, Any]

TOGETHER = 8
SOON = 4.0  # seconds of an item that somebody waits for
RANKS = 256  # of one host, whose stacks are taken
DUMPS = 256
DAY = 86400.0
EARLIER = 60.0  # seconds before the job's start: the kernel's clock drifts
HEADED = "# postmortem collect: "  # how a text begins that `analyze` knows for no log

SEARCH = Item("ranks", "the ranks that live on this host", (("read:ranks",),), limit=5, state=False)
LISTING = Item("dumps", "where flight-recorder dumps are", (("read:dumps",),), limit=5, state=False)


@dataclass(frozen=True)
class Task:
    """An item, filled in for this host."""

    item: Item
    file: str
    ways: tuple[Way, ...]


def collected(since: float | None = None, job: str = "", alone: bool = False) -> Iterator[tuple[Row, bytes]]:
    """What this host has, first what is lost first. `job` is the id of torchrun's run or of Slurm's job,
    whose ranks alone are wanted. Who is `alone` asks the scheduler too, which otherwise one asks for all."""
    found, row = live(job)
    if row:
        yield row, b""
    if since is None:
        since = min((r.start for r in found), default=time.time() - DAY) - EARLIER
    folders = _folders(found)
    yield from taken([task for r in found for task in _of_rank(r, folders[r.job])])
    yield from taken([*_recorders(found, since), *_of_host(found, since)])
    if alone:
        known = {r.ids[1] for r in found} | {os.environ.get("SLURM_JOB_ID", "")}
        yield from taken([task for number in sorted(known) if number.isdecimal() for task in of_slurm(number)])
    yield from taken([task for r in found for task in _settings(r, folders[r.job])] or [_own_settings()])


def live(job: str = "") -> tuple[list[Rank], Row | None]:
    """The live ranks, and a row if the search for them did not come to its end."""
    ((row, data),) = taken([Task(SEARCH, "", SEARCH.ways)])
    lines = data.split(b"\n")[:-1]
    found = ranks.chosen([ranks.told(line) for line in lines])
    wanted = [r for r in found if not job or job in r.ids]
    if len(wanted) > RANKS:
        row["why"] = f"{len(wanted)} ranks live here; stacks of the first {RANKS} are taken"
    return wanted[:RANKS], {**row, "file": None} if row["why"] and row["exit"] != 0 or len(wanted) > RANKS else None


def standing(found: Sequence[Rank]) -> Iterator[tuple[Row, bytes]]:
    """Where these ranks of one job stand: their stacks, and what the kernel says of their processes."""
    table = next(item for item in items.HOST if item.name == "ps.txt")
    yield from taken(map(_soon, [*(task for r in found for task in _of_rank(r, "")), _filled(table)]))


def stacks(pids: Iterable[int]) -> dict[int, bytes]:
    """The stack of each process, of which one was to be had."""
    tasks = [_filled(items.STACK, str(pid), PID=str(pid)) for pid in pids]
    return {int(row["file"]): data for row, data in taken(map(_soon, tasks)) if row["file"]}


def _soon(task: Task) -> Task:
    """Somebody waits for it."""
    return replace(task, item=replace(task.item, limit=min(task.item.limit, SOON)))


def _folders(found: Sequence[Rank]) -> dict[str, str]:
    """A folder for each job where several have ranks here, the same one on each of their hosts."""
    jobs = {r.job for r in found}
    return {job: f"job_{zlib.crc32(job.encode('utf-8', 'replace'))}/" if len(jobs) > 1 else "" for job in jobs}


def _of_rank(rank: Rank, folder: str) -> Iterator[Task]:
    for pid, name in ((rank.pid, ""), *((child, "child.") for child in rank.children)):
        yield _filled(items.STACK, f"{folder}rank{rank.number}.pid{pid}.{name}stack.txt", PID=str(pid))
    yield _per_rank(items.PROCESS, rank, folder)


def _settings(rank: Rank, folder: str) -> Iterator[Task]:
    for item in (items.LIBRARIES, items.ENVIRONMENT):
        yield _per_rank(item, rank, folder)


def _per_rank(item: Item, rank: Rank, folder: str) -> Task:
    file = folder + item.name.replace("RANK", str(rank.number)).replace("PID", str(rank.pid))
    return _filled(item, file, PID=str(rank.pid))


def _own_settings() -> Task:
    return Task(items.ENVIRONMENT, "environment.txt", (("read:environment", "self"),))


def _of_host(found: Sequence[Rank], since: float) -> Iterator[Task]:
    words = {
        "PIDS": ",".join(str(r.pid) for r in found),
        "EPOCH": str(since),
        "SINCE": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since)),
    }
    for item in items.HOST:
        yield _filled(item, **words)


def of_slurm(job: str) -> list[Task]:
    """What Slurm knows of a job."""
    return [_filled(item, JOB=job) for item in items.SLURM]


def of_pods(selector: str, pods: Sequence[str]) -> Iterator[Task]:
    """What Kubernetes knows of pods, those that have ended too."""
    for item in items.KUBERNETES:
        yield _filled(item, SELECTOR=selector)
    for pod in pods:
        for item in items.POD:
            yield _filled(item, f"host={pod}/{item.name}", POD=pod)


def _filled(item: Item, file: str = "", **words: str) -> Task:
    return Task(item, file or item.name, tuple(items.filled(way, **words) for way in item.ways))


def _recorders(found: Sequence[Rank], since: float) -> Iterator[Task]:
    """The dumps of these ranks; where none lives, those of this user."""
    prefixes = {(prefix, r.uid) for r in found for prefix in r.dumps}
    if not found:
        prefixes = {(prefix, os.getuid()) for prefix in ranks.dump_prefixes(dict(os.environ))}
    asked = [json.dumps([prefix, uid, since]) for prefix, uid in sorted(prefixes)]
    ((_, data),) = taken([Task(LISTING, "", (("read:dumps", *asked),))])
    taken_names: set[str] = set()
    for line in data.split(b"\n")[:-1][:DUMPS]:
        path, uid = json.loads(line)
        name = re.sub(r"[^\w.-]", "_", os.path.basename(path))
        while name in taken_names:
            name = f"other-{name}"
        taken_names.add(name)
        yield Task(items.RECORDER, f"recorder/{name}", (("read:copy", path, str(uid)),))


# ── running ─────────────────────────────────────────────────────────────────────────────────────────────────


class _Run:
    """A task on its way: the child that runs, and why the ways before it failed."""

    def __init__(self, task: Task) -> None:
        self.task, self.at = task, -1
        self.why: list[str] = []
        self.child: Child | None = None

    def next(self) -> bool:
        """Start the next way that can be started."""
        item = self.task.item
        self.child = None
        while self.at + 1 < len(self.task.ways):
            self.at += 1
            way = self.task.ways[self.at]
            most = readers.RECORDER_MAX if item is items.RECORDER else MOST
            try:
                self.child = Child(way, item.limit, most, item.end)
            except OSError as error:
                self.why.append(f"{way[0]}: {error.strerror}")
            else:
                return True
        return False

    @property
    def silent(self) -> bool:
        """Whether this way says that there was nothing."""
        child = self.child
        asked = child is not None and self.task.ways[self.at][0] in self.task.item.silent
        return bool(asked and child and child.code == 0 and not child.size and not child.said)

    def again(self) -> bool:
        """Whether this way yielded nothing, and another one runs now."""
        child = self.child
        if child is None or child.size or self.silent:
            return False
        self.why.append(f"{self.task.ways[self.at][0]}: {_failure(child) or 'printed nothing'}")
        return self.next()


def taken(tasks: Iterable[Task]) -> Iterator[tuple[Row, bytes]]:
    """Run the tasks in their order; yield what came of each when it ends."""
    waiting = deque(tasks)
    running: list[_Run] = []
    try:
        while waiting or running:
            while waiting and len(running) < TOGETHER:
                run = _Run(waiting.popleft())
                if run.next():
                    running.append(run)
                else:
                    yield _told(run)
            _wait([run.child for run in running if run.child])
            for run in [run for run in running if run.child and run.child.over()]:
                if run.child:
                    run.child.finish()
                if not run.again():
                    running.remove(run)
                    yield _told(run)
    finally:
        for run in running:
            if run.child:
                run.child.finish()


def _wait(children: Sequence[Child]) -> None:
    """Until one of them prints or ends, or a moment has passed."""
    poll = select.poll()
    by_pipe = {pipe: child for child in children for pipe in child.pipes}
    for pipe in by_pipe:
        poll.register(pipe, select.POLLIN)
    for pipe, _ in poll.poll(50 if by_pipe else 10):
        by_pipe[pipe].take(pipe)


def _failure(child: Child) -> str:
    """Why a way failed; empty where it did not."""
    if child.left:
        return f"no end after {child.limit:g} s: given up"
    if child.code:
        ended = f"killed by signal {-child.code}" if child.code < 0 else f"exit code {child.code}"
        return f"{ended}: {child.said}" if child.said else ended
    return ""


def _told(run: _Run) -> tuple[Row, bytes]:
    task, child = run.task, run.child
    if child is None:
        child_row: Row = {"started": time.time(), "seconds": 0.0, "exit": None, "cut": False}
        why, data = "; ".join(run.why), b""
    else:
        data = child.output
        own = _failure(child)
        why = own if data or run.silent else "; ".join(run.why)
        child_row = {
            "started": child.started,
            "seconds": round(child.seconds, 3),
            "exit": child.code,
            "cut": child.cut,
        }
    way = task.ways[max(run.at, 0)]
    row: Row = {
        "item": task.item.name,
        "file": task.file if data or run.silent else None,
        "command": list(way),
        **child_row,
        "bytes": len(data),
        "why": why,
        "tried": [list(w) for w in task.ways[: run.at]],
    }
    if data and task.item.state:
        data = _head(row) + data
    return row, data


def _head(row: Row) -> bytes:
    """What stands above a text that is no log, for who reads it."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(row["started"]))
    how = "given up" if row["exit"] is None else f"exit code {row['exit']}"
    text = f"{HEADED}{' '.join(row['command'])}\n# {when}, {row['seconds']} s, {how}\n"
    return text.encode("utf-8", "replace")
