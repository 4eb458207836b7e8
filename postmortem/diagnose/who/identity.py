"""The joins of one job: pid, local rank, GPU, file and writer -> rank, and how well each is known.

The launcher's lines, error files, NCCL's communicator lines, file names and the ranks' own lines each know a part of
the map. A file's place weighs more than a line in it about another rank.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import IntEnum

from postmortem.diagnose.grouped import usual
from postmortem.diagnose.same import bus_key, same_host, stem
from postmortem.diagnose.who import numbering
from postmortem.diagnose.who.numbering import votes_of
from postmortem.library import Library
from postmortem.model import Event, Source
from postmortem.model.digits import number
from postmortem.model.vocabulary import OF_PEERS

_RAY_PID = re.compile(r"worker-[0-9a-f]+-\w+-(\d+)\.(?:out|err)$")
_AGENT_PID = re.compile(r"elastic/|torch\.distributed\.(?:elastic|run)|torch/distributed/run\.py")
MOST = 65536  # ranks of a job that are listed though they are not seen
LARGEST = 1_000_000
Place = tuple[str, int | None]


class Strength(IntEnum):
    """How well the rank of a line is known."""

    GUESS = 0  # the local rank, on what seems to be one node
    LISTED = 1  # the launcher lists one rank that failed by itself, and one traceback has no rank
    NUMBERED = 2  # the file's number among those beside it
    FILE = 3  # other lines of the file, or of the other stream of its process
    JOINED = 4  # the pid or the launcher's local rank
    STATED = 5  # the line's prefix or record, or the file's name


@dataclass
class Registry:
    """The joins of one job. Built once, then only read."""

    by_pid: dict[int, dict[str | None, int]] = field(default_factory=dict)  # pid -> host -> rank
    by_local: dict[tuple[str | None, str | None, int], int] = field(default_factory=dict)  # run, host, local rank
    by_console: dict[tuple[str, int], int | None] = field(default_factory=dict)  # a node's own: file, local rank
    by_source: dict[str, int] = field(default_factory=dict)
    by_writer: dict[str, int] = field(default_factory=dict)  # a pod or a process of a runner, by its number
    by_place: Mapping[Place, int] = field(default_factory=dict)  # of lines that nothing else identifies
    strength: dict[str, Strength] = field(default_factory=dict)  # of `by_source`; STATED where absent
    by_bus: dict[tuple[str | None, str], int] = field(default_factory=dict)
    host_of: dict[int, str] = field(default_factory=dict)
    pids: dict[int, list[int]] = field(default_factory=dict)
    claims: dict[int, set[str]] = field(default_factory=dict)  # rank -> file stems of the processes that claim it
    world: int | None = None
    limit: int | None = None  # the largest world that anything states: no file's number beyond it is a rank
    torch: str | None = None
    nccl: str | None = None
    ranks: tuple[int, ...] = ()
    assumed: set[str] = field(default_factory=set)  # sources whose number is their rank only because nothing denies it

    def rank_of_pid(self, pid: int | None, host: str | None = None) -> int | None:
        """The rank with this pid; across hosts only if the pid is not ambiguous."""
        hosts = self.by_pid.get(pid, {}) if pid is not None else {}
        return hosts[host] if host in hosts else _only(r for h, r in hosts.items() if host is None or h is None)

    def rank_of(self, e: Event) -> int | None:
        """The rank that an event is about, by its line's prefix, its file, its local rank or its pid."""
        return self.identify(e)[0]

    def identify(self, e: Event) -> tuple[int | None, Strength]:
        """The rank that an event is about, and how well that is known."""
        if e.rank is not None:
            return e.rank, Strength.STATED
        own = self.by_source.get(e.where.source)
        strength = self.strength.get(e.where.source, Strength.STATED)
        if own is not None and strength >= Strength.JOINED:
            return own, strength
        joined = self._joined(e)
        if joined is not None and (own is None or self.rank_of_pid(e.pid, e.host) == joined):
            return joined, Strength.JOINED
        if own is not None:
            return own, strength
        writer = self.by_writer.get(e.fields.get("writer", ""))
        if writer is not None:
            return writer, Strength.NUMBERED
        return self.by_place.get(e.place), Strength.LISTED

    def _joined(self, e: Event) -> int | None:
        local = e.fields.get("local_rank")
        if local is not None:
            here = self.by_console.get((e.where.source, local))
            rank = here if here is not None else self.rank_of_local(e.run, e.host, local)
            if rank is not None:
                return rank
        of_launcher = e.source_kind == "agent" and _AGENT_PID.search(e.text)
        return None if of_launcher else self.rank_of_pid(e.pid, e.host)

    def rank_of_local(self, run: str | None, host: str | None, local: int) -> int | None:
        """The rank with this local rank; without its run or host only where it is not ambiguous."""
        for key in ((run, host, local), (None, host, local)):
            if key in self.by_local:
                return self.by_local[key]
        known = self.by_local.items()
        return _only(r for (u, h, n), r in known if n == local and _may_be(u, run) and _may_be(h, host))

    def rank_of_bus(self, bus: str, host: str | None) -> int | None:
        """The rank on this GPU; without a host only if one host alone has such a bus id."""
        known = self.by_bus.items()
        return _only(r for (h, b), r in known if b == bus_key(bus) and (not h or not host or same_host(h, host)))

    def bind_pid(self, host: str | None, pid: int | None, rank: int) -> None:
        if pid is not None and pid > 1:
            self.by_pid.setdefault(pid, {}).setdefault(host, rank)
            if pid not in self.pids.setdefault(rank, []):
                self.pids[rank].append(pid)

    def bind_local(self, e: Event, local: int, rank: int) -> None:
        if self.by_console.setdefault((e.where.source, local), rank) != rank:
            self.by_console[e.where.source, local] = None  # of several nodes, or of several attempts
        self.by_local.setdefault((e.run, e.host, local), rank)

    def bind_source(self, s: Source, rank: int, strength: Strength) -> None:
        self.by_source[s.path] = rank
        if strength is not Strength.STATED:
            self.strength[s.path] = strength
        if s.host:
            self.host_of.setdefault(rank, s.host)


def _only(ranks: Iterable[int]) -> int | None:
    found = set(ranks)
    return found.pop() if len(found) == 1 else None


def _may_be(a: str | None, b: str | None) -> bool:
    return a is None or b is None or a == b


def build(events: Sequence[Event], sources: Iterable[Source], library: Library) -> Registry:
    """Read the joins out of a job's events."""
    reg = Registry()
    sources = list(sources)
    _job_wide(reg, events)
    for s in sources:
        if s.rank is not None and (reg.limit is None or s.rank < reg.limit):
            reg.bind_source(s, s.rank, Strength.STATED)
    maps = library.telling("communicator")
    for e in events:
        if e.pattern in maps:
            _read_communicator(reg, e)
        _read(reg, e, maps)
    _members(reg, events)
    _siblings(reg, events, sources)
    _numbers(reg, events, sources, library)
    _writers(reg, events)
    _single_host_locals(reg, sources)
    _second_round(reg, events, library)
    _ray_files(reg, events)
    _claims(reg, events)
    seen = {r for e in events if (r := reg.rank_of(e)) is not None} | set(reg.pids)
    whole = reg.world is not None and reg.world <= MOST and all(r < reg.world for r in seen)
    reg.ranks = tuple(range(reg.world or 0)) if whole else tuple(sorted(seen))
    return reg


def _job_wide(reg: Registry, events: Sequence[Event]) -> None:
    """The size and versions that most lines state; sizes that patterns captured count only without others."""
    sizes = [(e.kind, n) for e in events if (n := e.fields.get("world")) is not None and 0 < n <= LARGEST]
    reg.limit = max((n for _, n in sizes), default=None)
    reg.world = usual(n for kind, n in sizes if kind != "pattern") or reg.limit
    reg.torch = usual(e.fields.get("torch") for e in events)
    reg.nccl = usual(e.fields.get("nccl") for e in events)


def _read(reg: Registry, e: Event, maps: Set[str]) -> None:
    """Facts that name a rank together with something else."""
    rank = e.rank
    if rank is None and e.kind == "identity":
        rank = e.fields.get("said_rank")
    if rank is None or e.fields.get("quoted"):
        return
    if e.host and e.speaker != "kernel":
        reg.host_of.setdefault(rank, e.host)
    if (local := e.fields.get("local_rank")) is not None:
        reg.bind_local(e, local, rank)
    if e.kind in ("identity", "pid", "exit", "process", "stack"):
        reg.bind_pid(e.host, e.fields.get("pid", e.pid), rank)
    elif e.kind in ("line", "progress") and e.source_kind != "agent":
        reg.bind_pid(e.host, e.pid, rank)
    bus = e.fields.get("bus") or (e.fields.get("pci") if e.pattern in maps else None)
    if bus:
        reg.by_bus.setdefault((e.host, bus_key(bus)), rank)


def _read_communicator(reg: Registry, e: Event) -> None:
    """NCCL's own map: host:pid [cudaDev] … comm 0x… rank 3 nranks 16 cudaDev 3 busId 61000. Only the first
    and largest communicator counts global ranks; sub-groups number their own."""
    rank, bus = e.fields.get("rank"), e.fields.get("pci") or e.fields.get("bus")
    if rank is None or (e.rank is not None and e.rank != rank):
        return
    if reg.rank_of_pid(e.pid, e.host) not in (None, rank):
        return
    reg.bind_pid(e.host, e.pid, rank)
    if e.host:
        reg.host_of.setdefault(rank, e.host)
    if bus and "world" in e.fields:
        reg.by_bus.setdefault((e.host, bus_key(bus)), rank)


def _members(reg: Registry, events: Sequence[Event]) -> None:
    """Bind the pids of processes that print their number, where there is one for each rank. A loader's workers are
    numbered once in every rank."""
    members = [e for e in events if e.kind == "pid" and "member" in e.fields]
    found = {(e.fields["member"], e.fields["pid"]): e for e in members}
    world = len(found)
    sizes = {e.fields["of"] for e in members}
    if sizes != {world} or reg.limit not in (None, world) or len({pid for _, pid in found}) < world:
        return
    if {n for n, _ in found} == set(range(world)):
        for (n, pid), e in found.items():
            reg.bind_pid(e.host, pid, n or 0)


def _siblings(reg: Registry, events: Sequence[Event], sources: Sequence[Source]) -> None:
    """A stream that never prints its rank has it from the other stream of the same process, or from its own lines
    that do."""
    nameless = [s for s in sources if s.path not in reg.by_source and s.kind not in ("agent", "kernel")]
    if not nameless:
        return
    votes = _votes(events)
    own = _own_files(reg, events, {stem(s.path) for s in nameless}, votes)
    for s in nameless:
        found = votes.get(stem(s.path), Counter())
        if s.local_rank is None and stem(s.path) not in own:
            continue
        if s.local_rank is not None and not found:
            found = _in_folder(votes, s.path.rpartition("/")[0] or s.path)
        if len(found) == 1:
            (rank,) = found
            reg.bind_source(s, rank, Strength.FILE)
            if s.local_rank is not None:
                reg.by_local.setdefault((s.run, s.host, s.local_rank), rank)


def _in_folder(votes: numbering.Votes, folder: str) -> Counter[int]:
    return sum((c for name, c in votes.items() if name.rsplit("/", 1)[0] == folder), Counter())


def _votes(events: Sequence[Event]) -> numbering.Votes:
    """How often the lines of each process name a rank as their own."""
    ranked = [e for e in events if e.rank is not None]
    return votes_of(ranked, {e.where.source: stem(e.where.source) for e in ranked})


def _own_files(reg: Registry, events: Sequence[Event], stems: Set[str], votes: numbering.Votes) -> Set[str]:
    """Stems that are one process's own, among those whose lines name one rank. On a common console it may be that
    one rank alone has prefixed lines: `[rank0]:[W1122 ...] destroy_process_group() was not called` is rank 0's, and
    the lines around it are not."""
    named = {name: next(iter(votes[name])) for name in stems if len(votes.get(name, ())) == 1}
    if len(set(named.values())) > 1 or reg.world == 1:
        return named.keys()
    introduced, prefixed, others = set(), set(), set()
    for e in events:
        if e.rank is not None:
            prefixed.add(e.where.source)
            if e.kind == "identity" and e.fields.get("said_rank") == e.rank:
                introduced.add(stem(e.where.source))
        elif e.kind in ("line", "progress", "exception"):
            others.add(e.where.source)
    whole = {stem(path) for path in prefixed - others} if len(stems) > 1 else set()
    return named.keys() & (introduced | whole)


def _numbers(reg: Registry, events: Sequence[Event], sources: Sequence[Source], library: Library) -> None:
    """Bind files by their number among those beside them."""
    nameless = [s for s in sources if s.rank is None and s.local_rank is None]
    stems = {s.path: stem(s.path) for s in nameless}
    votes = votes_of(events, stems)
    joined = {stems[source] for source, _ in lost(events, library) if source in stems}
    found = numbering.numbered(nameless, stems, votes, reg.limit, joined, _dumps(events, stems))
    for s in nameless:
        rank = found.get(stems[s.path])
        if rank is not None and s.path not in reg.by_source:
            reg.bind_source(s, rank, Strength.NUMBERED)
            if not votes.get(stems[s.path]):
                reg.assumed.add(s.path)


def _dumps(events: Sequence[Event], stems: Mapping[str, str]) -> set[str]:
    """Stems that hold the stacks of one process, which a tool took: of each process one."""
    pids: dict[str, set[int]] = defaultdict(set)
    for e in events:
        if e.kind == "stack" and e.source_kind == "stack" and e.pid and e.where.source in stems:
            pids[stems[e.where.source]].add(e.pid)
    taken = Counter(pid for own in pids.values() for pid in own)
    return {name for name, own in pids.items() if len(own) == 1 and all(taken[pid] == 1 for pid in own)}


def _writers(reg: Registry, events: Sequence[Event]) -> None:
    """Bind pods or processes of a runner by their number, where there is one for each rank; and the local ranks in
    torchrun's prefix, where there are as many as there are ranks."""
    votes: dict[str, Counter[int]] = defaultdict(Counter)
    locals_: dict[tuple[str | None, str | None], set[int]] = defaultdict(set)
    for e in events:
        if name := e.fields.get("writer"):
            votes[name].update(() if e.rank is None else (e.rank,))
        if e.rank is None and (local := e.fields.get("local_rank")) is not None:
            locals_[e.run, e.host].add(local)
    named = {e.rank for e in events if e.rank is not None and "writer" not in e.fields}
    reg.by_writer = numbering.of_names(votes, reg.limit, named)
    on_one_host = len({host for _, host in locals_}) == 1
    for (run, host), seen in locals_.items():
        if on_one_host and reg.limit == len(seen) == max(seen) + 1:
            for local in seen:
                reg.by_local.setdefault((run, host, local), local)


def _single_host_locals(reg: Registry, sources: Sequence[Source]) -> None:
    """On one node the local rank is the rank. Two run folders with the same host are two attempts of one job."""
    with_local = [(s, s.local_rank) for s in sources if s.local_rank is not None]
    contradicted = any(rank != local for (_, _, local), rank in reg.by_local.items())
    one_node = len({s.host for s, _ in with_local}) < 2 and not contradicted
    for s, local in with_local:
        rank = reg.rank_of_local(s.run, s.host, local)
        if one_node:
            if s.path not in reg.by_source and rank is None:
                reg.assumed.add(s.path)
                reg.strength[s.path] = Strength.GUESS
            reg.by_source.setdefault(s.path, local)
            reg.by_local.setdefault((s.run, s.host, local), local)
        elif rank is not None:
            reg.by_source.setdefault(s.path, rank)


def _second_round(reg: Registry, events: Sequence[Event], library: Library) -> None:
    """Facts that need the first round: pids in exit reports and NCCL's proxy threads."""
    ends, proxies = library.telling("exit") | library.telling("end"), library.telling("proxy")
    for e in events:
        if e.pattern in ends:  # `failed (exitcode: -9) local_rank: 4 (pid: 25915)`
            rank, local = reg.rank_of(e), e.fields.get("local_rank")
            if rank is None and local is not None and not reg.by_local:
                rank = reg.by_local[e.run, e.host, local] = local  # nothing else is known: one node is assumed
            if rank is not None:
                reg.bind_pid(e.host, e.fields.get("pid"), rank)
        elif e.pattern in proxies:  # `[Proxy Service 3]` is a thread of rank 3's process (NCCL src/proxy.cc)
            served = number(e.fields.get("detail"))
            if served is not None and reg.rank_of_pid(e.pid, e.host) is None and served < (reg.world or LARGEST):
                reg.bind_pid(e.host, e.pid, served)


def _ray_files(reg: Registry, events: Sequence[Event]) -> None:
    """Bind the files of Ray's workers, whose names have their pids."""
    for source in {e.where.source for e in events} - reg.by_source.keys():
        name = _RAY_PID.search(source)
        rank = reg.rank_of_pid(number(name[1])) if name else None
        if rank is not None:
            reg.by_source[source] = rank


def _claims(reg: Registry, events: Sequence[Event]) -> None:
    """Collect the processes that claim each rank; a number on a common console is no claim."""
    for e in events:
        claims = e.kind in ("identity", "line", "progress") and e.source_kind in ("console", "json-lines")
        if claims and e.fields.get("local_rank") is None and e.fields.get("writer") not in reg.by_writer:
            rank = reg.rank_of(e)
            if rank is not None:
                reg.claims.setdefault(rank, set()).add(stem(e.where.source))


def lost(events: Sequence[Event], library: Library) -> set[Place]:
    """Where lines report that a peer has gone."""
    names = {p.id for p in library.patterns.values() if p.category in OF_PEERS}
    return {e.place for e in events if e.pattern in names}
