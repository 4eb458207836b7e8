"""The joins of one job: whose line an event is, which rank has this pid, local rank or GPU, and how well
that is known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from postmortem.diagnose.same import bus_key, same_host
from postmortem.model import Event
from postmortem.model.digits import number

Local = tuple[str | None, str | None, int]  # run, host, local rank
_AGENT_PID = re.compile(r"elastic/|torch\.distributed\.(?:elastic|run)|torch/distributed/run\.py")


class Strength(IntEnum):
    """How well it is known whose line it is. A weaker word gives way to a stronger one."""

    GUESS = 0  # the local rank, on what seems to be one node
    FAILED = 1  # the launcher's list names one rank that failed by itself, and one traceback is nobody's
    NUMBERED = 2  # the file's number among those beside it
    OWN = 3  # what else the file, or the other stream of its process, says of itself
    JOINED = 4  # the pid or the launcher's local rank
    TOLD = 5  # the line's prefix or record, or the file's name


Place = tuple[str, int | None]


@dataclass
class Registry:
    """The joins of one job. Built once, then only read."""

    by_pid: dict[int, dict[str | None, int]] = field(default_factory=dict)  # pid -> host -> rank
    by_local: dict[Local, int] = field(default_factory=dict)
    by_console: dict[tuple[str, int], int | None] = field(default_factory=dict)  # a node's own: file, local rank
    by_source: dict[str, int] = field(default_factory=dict)
    by_writer: dict[str, int] = field(default_factory=dict)  # a pod or a process of a runner, by its number
    by_place: Mapping[Place, int] = field(default_factory=dict)  # of lines that are nobody's by themselves
    strength: dict[str, Strength] = field(default_factory=dict)  # of what `by_source` says; TOLD where nothing stands
    by_bus: dict[tuple[str | None, str], int] = field(default_factory=dict)
    by_address: dict[str, str] = field(default_factory=dict)
    host_of: dict[int, str] = field(default_factory=dict)
    pids: dict[int, list[int]] = field(default_factory=dict)
    claims: dict[int, set[str]] = field(
        default_factory=dict
    )  # rank -> the separate processes (file stems) that say they are it
    world: int | None = None
    limit: int | None = None  # the largest world that anything states: a file's number is no rank beyond it
    torch: str | None = None
    nccl: str | None = None
    ranks: tuple[int, ...] = ()
    assumed: set[str] = field(
        default_factory=set
    )  # sources whose rank is their local rank only because nothing says otherwise

    def rank_of_pid(self, pid: int | None, host: str | None = None) -> int | None:
        """The rank with this pid; across hosts only if the pid is not ambiguous."""
        if pid is None:
            return None
        hosts = self.by_pid.get(pid, {})
        if host in hosts:
            return hosts[host]
        found = {rank for h, rank in hosts.items() if host is None or h is None}
        return found.pop() if len(found) == 1 else None

    def rank_of(self, e: Event) -> int | None:
        """The rank that an event speaks for: its line's prefix, its file, its local rank, its pid."""
        return self.told(e)[0]

    def told(self, e: Event) -> tuple[int | None, Strength]:
        """The rank that an event speaks for, and how well that is known."""
        if e.rank is not None:
            return e.rank, Strength.TOLD
        own = self.by_source.get(e.where.source)
        strength = self.strength.get(e.where.source, Strength.TOLD)
        if own is not None and strength >= Strength.JOINED:
            return own, strength
        joined = self._joined(e)
        if joined is not None and (own is None or self.rank_of_pid(e.pid, e.host) == joined):
            return joined, Strength.JOINED
        if own is not None:
            return own, strength
        writer = self.by_writer.get(str(e.fields.get("writer") or ""))
        if writer is not None:
            return writer, Strength.NUMBERED
        return self.by_place.get((e.where.source, e.where.line)), Strength.FAILED

    def _joined(self, e: Event) -> int | None:
        """The rank with the event's local rank or pid."""
        local = number(e.fields.get("local_rank"))
        if local is not None and (here := self.by_console.get((e.where.source, local))) is not None:
            return here
        if local is not None and (rank := self.rank_of_local(e.run, e.host, local)) is not None:
            return rank
        launchers = e.source_kind == "agent" and _AGENT_PID.search(e.text)
        return None if launchers else self.rank_of_pid(e.pid, e.host)

    def rank_of_local(self, run: str | None, host: str | None, local: int) -> int | None:
        for key in ((run, host, local), (None, host, local)):
            if key in self.by_local:
                return self.by_local[key]
        found = {
            rank
            for (r, h, n), rank in self.by_local.items()
            if n == local and (run is None or r is None or r == run) and (host is None or h is None or h == host)
        }
        return found.pop() if len(found) == 1 else None

    def rank_of_bus(self, bus: str, host: str | None) -> int | None:
        """The rank on this GPU; without a host only if one host alone has such a bus id."""
        found = {
            rank
            for (h, b), rank in self.by_bus.items()
            if b == bus_key(bus) and (host is None or h is None or same_host(h, host))
        }
        return found.pop() if len(found) == 1 else None
