"""Who is who: pid <-> rank, local rank <-> rank, GPU <-> rank, address <-> host, and which ranks there are
at all.

The launcher's lines, error files, NCCL's communicator lines, file names and the ranks' own words each know a
part of the map. What a file's place says weighs more than what a line in it says about another rank.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import IntEnum

from postmortem.diagnose import failures, numbering
from postmortem.diagnose.same import bus_key, same_host, stem
from postmortem.digits import number
from postmortem.library import Library
from postmortem.model import Event, Source

Local = tuple[str | None, str | None, int]  # run, host, local rank
_RAY_PID = re.compile(r"worker-[0-9a-f]+-\w+-(\d+)\.(?:out|err)$")
_JOB_WIDE = frozenset(("world", "torch", "nccl"))
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
    by_console: dict[tuple[str, int], int | None] = field(
        default_factory=dict
    )  # a node's own: file, local rank
    by_source: dict[str, int] = field(default_factory=dict)
    by_writer: dict[str, int] = field(default_factory=dict)  # a pod or a process of a runner, by its number
    by_place: Mapping[Place, int] = field(default_factory=dict)  # of lines that are nobody's by themselves
    strength: dict[str, Strength] = field(
        default_factory=dict
    )  # of what `by_source` says; TOLD where nothing stands
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
            if n == local
            and (run is None or r is None or r == run)
            and (host is None or h is None or h == host)
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

    def ranks_on(self, host: str) -> tuple[int, ...]:
        return tuple(sorted(r for r, h in self.host_of.items() if same_host(h, host)))


def build(events: Sequence[Event], sources: Iterable[Source], library: Library) -> Registry:
    """Read the joins out of a job's events."""
    reg = Registry()
    sources = list(sources)
    _job_wide(reg, events)
    _from_sources(reg, sources)
    maps = library.telling("communicator")
    for e in events:
        if e.pattern in maps:
            _learn_comm(reg, e)
        _learn(reg, e, maps)
    _siblings(reg, events, sources)
    _numbers(reg, events, sources)
    _writers(reg, events)
    _single_host_locals(reg, sources)
    by_ray = {path for path in {e.where.source for e in events} if _RAY_PID.search(path)}
    ends, proxies = library.telling("exit") | library.telling("end"), library.telling("proxy")
    for e in events:
        if e.pattern in ends:
            _learn_end(reg, e)
        elif e.pattern in proxies:
            _learn_proxy(reg, e)
        if e.where.source in by_ray:
            _learn_ray(reg, e)
    _claims(reg, events)
    reg.by_place = failures.owners(events, reg.told, library)
    spoke = {e.rank for e in events} | {reg.rank_of(e) for e in events if e.rank is None}
    seen = {r for r in spoke if r is not None} | set(reg.pids)
    if reg.world is not None and all(r < reg.world for r in seen):
        reg.ranks = tuple(range(reg.world)) if reg.world <= 65536 else tuple(sorted(seen))
    else:
        reg.ranks = tuple(sorted(seen))
    return reg


def _job_wide(reg: Registry, events: Sequence[Event]) -> None:
    """How large the job is and what it runs on: what most lines say."""
    told = [e.fields for e in events if not e.fields.keys().isdisjoint(_JOB_WIDE)]
    worlds = Counter(w for said in told if isinstance(w := said.get("world"), int) and 0 < w <= 1_000_000)
    joined = [w for said in told if isinstance(said.get("world"), str) and (w := number(said["world"]))]
    reg.world = worlds.most_common(1)[0][0] if worlds else max(joined, default=None)
    reg.limit = max((w for w in (*worlds, *joined) if 0 < w <= 1_000_000), default=None)
    for name in ("torch", "nccl"):
        versions = Counter(str(said[name]) for said in told if said.get(name))
        if versions:
            setattr(reg, name, versions.most_common(1)[0][0])


def _from_sources(reg: Registry, sources: Sequence[Source]) -> None:
    for s in sources:
        if s.rank is not None and (reg.limit is None or s.rank < reg.limit):
            reg.by_source[s.path] = s.rank
            if s.host:
                reg.host_of.setdefault(s.rank, s.host)


def _bind_pid(reg: Registry, host: str | None, pid: object, rank: int) -> None:
    if isinstance(pid, str) and pid.isdigit():
        pid = int(pid)
    if isinstance(pid, int) and pid > 1:
        reg.by_pid.setdefault(pid, {}).setdefault(host, rank)
        if pid not in reg.pids.setdefault(rank, []):
            reg.pids[rank].append(pid)


def _learn(reg: Registry, e: Event, maps: Set[str]) -> None:
    """Facts that name a rank together with something else."""
    rank = e.rank
    if rank is None and e.kind == "identity" and isinstance(e.fields.get("said_rank"), int):
        rank = int(str(e.fields["said_rank"]))
    if rank is None or e.fields.get("quoted"):
        return
    if e.host and e.speaker != "kernel":
        reg.host_of.setdefault(rank, e.host)
    local = e.fields.get("local_rank")
    if isinstance(local, int):
        if reg.by_console.setdefault((e.where.source, local), rank) != rank:
            reg.by_console[e.where.source, local] = None  # of several nodes, or of several lives
        reg.by_local.setdefault((e.run, e.host, local), rank)
        if e.run is None:
            reg.by_local.setdefault((None, e.host, local), rank)
    if e.kind in ("identity", "exit", "process", "stack"):
        _bind_pid(reg, e.host, e.fields.get("pid", e.pid), rank)
    elif e.pid is not None and e.kind in ("line", "progress") and e.source_kind != "agent":
        _bind_pid(reg, e.host, e.pid, rank)
    bus = e.fields.get("bus") or (e.fields.get("pci") if e.pattern in maps else None)
    if isinstance(bus, str):
        reg.by_bus.setdefault((e.host, bus_key(bus)), rank)


def _learn_comm(reg: Registry, e: Event) -> None:
    """NCCL's own map: host:pid [cudaDev] … comm 0x… rank 3 nranks 16 cudaDev 3 busId 61000. Only the first
    and largest communicator counts global ranks; sub-groups number their own."""
    said, world, bus = e.fields.get("rank"), e.fields.get("world"), e.fields.get("pci") or e.fields.get("bus")
    if not (isinstance(said, str) and said.isdigit()) or (e.rank is not None and e.rank != int(said)):
        return
    known = reg.rank_of_pid(e.pid, e.host)
    if known is not None and known != int(said):
        return
    rank = int(said)
    _bind_pid(reg, e.host, e.pid, rank)
    if e.host:
        reg.host_of.setdefault(rank, e.host)
    if isinstance(bus, str) and isinstance(world, str):
        reg.by_bus.setdefault((e.host, bus_key(bus)), rank)


def _siblings(reg: Registry, events: Sequence[Event], sources: Sequence[Source]) -> None:
    """A stream that never says its rank has it from the other stream of the same process, or from the lines
    in it that do."""
    nameless = [s for s in sources if s.path not in reg.by_source and s.kind not in ("agent", "kernel")]
    if not nameless:
        return
    votes: dict[str, Counter[int]] = defaultdict(Counter)
    for e in events:
        if (
            e.rank is not None
            and e.kind in ("identity", "line", "progress", "finished", "exception")
            and not e.fields.get("reported_by")
        ):
            votes[stem(e.where.source)][e.rank] += 1
    own = _own_files(reg, events, nameless, votes)
    for s in nameless:
        found = votes.get(stem(s.path), Counter())
        if s.local_rank is None and stem(s.path) not in own:
            continue
        if s.local_rank is not None and not found:
            folder = s.path.rsplit("/", 1)[0]
            found = sum((c for name, c in votes.items() if name.rsplit("/", 1)[0] == folder), Counter())
        if len(found) == 1:
            reg.by_source[s.path] = next(iter(found))
            reg.strength[s.path] = Strength.OWN
            if s.host:
                reg.host_of.setdefault(reg.by_source[s.path], s.host)
            if s.local_rank is not None:
                reg.by_local.setdefault((s.run, s.host, s.local_rank), reg.by_source[s.path])


def _own_files(
    reg: Registry, events: Sequence[Event], nameless: Sequence[Source], votes: Mapping[str, Counter[int]]
) -> set[str]:
    """Stems that are one process's own, among those whose lines name one rank. On a common console it may be that
    one rank alone has prefixed lines: `[rank0]:[W1122 ...] destroy_process_group() was not called` is rank 0's, and
    the lines around it are not."""
    introduced = {
        stem(e.where.source)
        for e in events
        if e.kind == "identity" and e.rank is not None and e.fields.get("said_rank") == e.rank
    }
    stems = {stem(s.path) for s in nameless}
    named = {name: next(iter(votes[name])) for name in stems if len(votes.get(name, ())) == 1}
    others = {
        e.where.source for e in events if e.rank is None and e.kind in ("line", "progress", "exception")
    }
    whole = {stem(e.where.source) for e in events if e.rank is not None and e.where.source not in others}
    several = len(set(named.values())) > 1
    return {
        name
        for name in named
        if several or reg.world == 1 or name in introduced or (name in whole and len(stems) > 1)
    }


def _numbers(reg: Registry, events: Sequence[Event], sources: Sequence[Source]) -> None:
    """Whose file it is by its number among those beside it."""
    nameless = [s for s in sources if s.rank is None and s.local_rank is None]
    stems = {s.path: stem(s.path) for s in nameless}
    votes = numbering.votes_of(events, stems)
    found = numbering.numbered(nameless, stems, votes, reg.limit)
    for s in nameless:
        rank = found.get(stems[s.path])
        if rank is None or s.path in reg.by_source:
            continue
        reg.by_source[s.path] = rank
        reg.strength[s.path] = Strength.NUMBERED
        if not votes.get(stems[s.path]):
            reg.assumed.add(s.path)
        if s.host:
            reg.host_of.setdefault(rank, s.host)


def _writers(reg: Registry, events: Sequence[Event]) -> None:
    """Whose lines they are by the number of the pod or the process that wrote them, where there is one for each rank;
    and by the local rank in torchrun's prefix, where there are as many as there are ranks."""
    votes: dict[str, Counter[int]] = defaultdict(Counter)
    locals_: dict[tuple[str | None, str | None], set[int]] = defaultdict(set)
    for e in events:
        if isinstance(name := e.fields.get("writer"), str):
            votes[name].update(() if e.rank is None else (e.rank,))
        if e.rank is None and isinstance(local := e.fields.get("local_rank"), int):
            locals_[e.run, e.host].add(local)
    reg.by_writer = numbering.of_names(votes, reg.limit)
    for (run, host), seen in locals_.items():
        if len(locals_) == 1 and reg.limit == len(seen) == max(seen) + 1:
            for local in seen:
                reg.by_local.setdefault((run, host, local), local)


def _single_host_locals(reg: Registry, sources: Sequence[Source]) -> None:
    """On one node the local rank is the rank. Two run folders with the same host are two lives of one job."""
    with_local = [s for s in sources if s.local_rank is not None]
    hosts = {s.host for s in with_local}
    contradicted = any(rank != key[2] for key, rank in reg.by_local.items())
    if len(hosts) > 1 or contradicted:
        for s in with_local:
            if s.path not in reg.by_source and s.local_rank is not None:
                rank = reg.rank_of_local(s.run, s.host, s.local_rank)
                if rank is not None:
                    reg.by_source[s.path] = rank
        return
    for s in with_local:
        if s.local_rank is not None:
            if s.path not in reg.by_source and reg.rank_of_local(s.run, s.host, s.local_rank) is None:
                reg.assumed.add(s.path)
                reg.strength[s.path] = Strength.GUESS
            reg.by_source.setdefault(s.path, s.local_rank)
            reg.by_local.setdefault((s.run, s.host, s.local_rank), s.local_rank)


def _learn_end(reg: Registry, e: Event) -> None:
    """`failed (exitcode: -9) local_rank: 4 (pid: 25915)`; with nothing else known, one node is assumed."""
    rank, local = reg.rank_of(e), number(e.fields.get("local_rank"))
    if rank is None and local is not None and not reg.by_local:
        rank = reg.by_local[(e.run, e.host, local)] = local
    if rank is not None:
        _bind_pid(reg, e.host, e.fields.get("pid"), rank)


def _learn_proxy(reg: Registry, e: Event) -> None:
    """`[Proxy Service 3]` is the proxy thread of rank 3's own process (NCCL src/proxy.cc)."""
    served = number(e.fields.get("detail"))
    if (
        served is not None
        and reg.rank_of_pid(e.pid, e.host) is None
        and (reg.world is None or served < reg.world)
    ):
        _bind_pid(reg, e.host, e.pid, served)


def _learn_ray(reg: Registry, e: Event) -> None:
    """A Ray worker's file is named after its pid."""
    m = _RAY_PID.search(e.where.source)
    rank = reg.rank_of_pid(number(m[1])) if m and e.where.source not in reg.by_source else None
    if rank is not None:
        reg.by_source[e.where.source] = rank


def _claims(reg: Registry, events: Sequence[Event]) -> None:
    spoken = (
        (reg.rank_of(e), e.where.source)
        for e in events
        if e.kind in ("identity", "line", "progress")
        and e.source_kind in ("console", "json-lines")
        and e.fields.get("local_rank") is None
    )
    for rank, source in dict.fromkeys(spoken):
        if rank is not None:
            reg.claims.setdefault(rank, set()).add(stem(source))
