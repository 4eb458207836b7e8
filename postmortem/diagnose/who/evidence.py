"""Facts that bind ranks to their traces in the logs, each with its strength and its line.

file     node-a/rank3.log                3   stated
pid      4201 on node-a                  1   joined     train.log:7
local    local rank 0 on node-b          4   joined     train.log:95
line     console.log:812                 2   listed     by elimination (elimination.py)
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal, NamedTuple

from postmortem.diagnose.same import same_host
from postmortem.model import Event, Where
from postmortem.model.grouped import only

_AGENT_PID = re.compile(r"elastic/|torch\.distributed\.(?:elastic|run)|torch/distributed/run\.py")
Kind = Literal["file", "pid", "local", "console", "gpu", "writer", "line", "rank"]
Home = tuple[str | None, str | None]  # run and host


class Strength(IntEnum):
    """How well the rank of a line is known."""

    GUESS = 0  # the local rank, on what seems to be one node
    LISTED = 1  # no other rank can have printed it
    NUMBERED = 2  # the file's number among those beside it
    FILE = 3  # other lines of the file, or of the other stream of its process
    JOINED = 4  # the pid or the launcher's local rank
    STATED = 5  # the line's prefix or record, or the file's name


class Subject(NamedTuple):
    """What belongs to a rank. Its name is a path, a pid, a local rank (on a console with the console's path), a bus id,
    a pod or process of a runner, a file and a line, or the rank itself, whose host this is."""

    kind: Kind
    name: Any
    host: str | None = None
    run: str | None = None


class Evidence(NamedTuple):
    """That a subject is of a rank. `assumed`: only because nothing speaks against it."""

    subject: Subject
    rank: int
    strength: Strength = Strength.JOINED
    line: Where | None = None
    assumed: bool = False
    why: str = ""  # other facts that show it, in words


@dataclass
class Registry:
    """All that is known of the ranks of one job. Built once (ways.py), then only read."""

    found: defaultdict[Kind, dict[Hashable, dict[Home, Evidence]]] = field(default_factory=lambda: defaultdict(dict))
    files: dict[str, Evidence] = field(default_factory=dict)
    ambiguous: set[Subject] = field(default_factory=set)  # of several nodes, or of several attempts
    host_of: dict[int, str] = field(default_factory=dict)
    pids: dict[int, list[int]] = field(default_factory=dict)
    claims: dict[int, set[str]] = field(default_factory=dict)  # rank -> file stems of the processes that claim it
    world: int | None = None
    limit: int | None = None  # the largest world that anything states: no file's number beyond it is a rank
    torch: str | None = None
    nccl: str | None = None
    ranks: tuple[int, ...] = ()

    def bind(self, e: Evidence) -> None:
        """Keep a fact; of two about one subject the first."""
        s = e.subject
        if s.kind == "file":
            self.files.setdefault(str(s.name), e)
        elif s.kind != "pid" or s.name not in (0, 1):  # containers number every rank's process 1
            own = self.found[s.kind].setdefault(s.name, {})
            if own.setdefault((s.run, s.host), e).rank != e.rank:
                self.ambiguous.add(s)
        if s.kind in ("file", "rank") and s.host:
            self.host_of.setdefault(e.rank, s.host)
        if isinstance(s.name, int) and s.kind == "pid" and s.name > 1 and s.name not in self.pids.get(e.rank, ()):
            self.pids.setdefault(e.rank, []).append(s.name)

    def all(self, kind: Kind) -> Iterator[Evidence]:
        """The facts about one kind of subject, in the order in which they were found."""
        for own in self.found[kind].values():
            yield from own.values()

    def rank_with(self, kind: Kind, name: Hashable, host: str | None = None, run: str | None = None) -> int | None:
        """The rank of a subject; without its host or run only where one rank alone has such a name."""
        own = self.found[kind].get(name, {})
        for home in ((run, host), (None, host)):
            if home in own:
                return own[home].rank
        return only(e.rank for (r, h), e in own.items() if _may_be(r, run) and (_may_be(h, host) or same_host(h, host)))

    def rank_of_pid(self, pid: int | None, host: str | None = None) -> int | None:
        return self.rank_with("pid", pid, host)

    def rank_of(self, e: Event) -> int | None:
        """The rank that an event is about, by its line's prefix, its file, its local rank or its pid."""
        return self.identify(e)[0]

    def identify(self, e: Event) -> tuple[int | None, Strength]:
        """The rank that an event is about, and how well that is known."""
        if e.rank is not None:
            return e.rank, Strength.STATED
        own = self.files.get(e.where.source)
        if own is not None and own.strength >= Strength.JOINED:
            return own.rank, own.strength
        joined = self._joined(e)
        if joined is not None and (own is None or self.rank_of_pid(e.pid, e.host) == joined):
            return joined, Strength.JOINED
        if own is not None:
            return own.rank, own.strength
        writer = self.rank_with("writer", e.fields.get("writer"))
        if writer is not None:
            return writer, Strength.NUMBERED
        line = self.found["line"].get(e.place, {}).get((None, None))
        return (None, Strength.LISTED) if line is None else (line.rank, line.strength)

    def _joined(self, e: Event) -> int | None:
        local = e.fields.get("local_rank")
        if local is not None:
            here = Subject("console", (e.where.source, local))
            rank = None if here in self.ambiguous else self.rank_with("console", here.name)
            rank = self.rank_with("local", local, e.host, e.run) if rank is None else rank
            if rank is not None:
                return rank
        of_launcher = e.source_kind == "agent" and _AGENT_PID.search(e.text)
        return None if of_launcher else self.rank_of_pid(e.pid, e.host)


def _may_be(a: str | None, b: str | None) -> bool:
    return a is None or b is None or a == b
