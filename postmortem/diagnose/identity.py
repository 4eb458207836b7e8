"""Who is who: pid <-> rank, local rank <-> rank, GPU <-> rank, address <-> host, and which ranks there are
at all.

The launcher's lines, error files, NCCL's communicator lines, file names and the ranks' own words each know a
part of the map. What a file's place says weighs more than what a line in it says about another rank.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

from postmortem.diagnose import failures, numbering
from postmortem.diagnose.registry import Registry, Strength
from postmortem.diagnose.same import bus_key, stem
from postmortem.library import Library
from postmortem.model import Event, Source
from postmortem.model.digits import number

_RAY_PID = re.compile(r"worker-[0-9a-f]+-\w+-(\d+)\.(?:out|err)$")
OWN_WORDS = ("identity", "line", "progress", "finished", "exception")
MOST = 65536  # ranks of a job that are listed though they are not seen
LARGEST = 1_000_000
_JOB_WIDE = frozenset(("world", "torch", "nccl"))


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
    _members(reg, events)
    _siblings(reg, events, sources)
    _numbers(reg, events, sources, library)
    _writers(reg, events)
    _single_host_locals(reg, sources)
    _second_round(reg, events, library)
    _claims(reg, events)
    reg.by_place = failures.owners(events, reg.told, library)
    reg.ranks = _ranks(reg, events)
    return reg


def _second_round(reg: Registry, events: Sequence[Event], library: Library) -> None:
    """Facts that need the first round."""
    ends, proxies = library.telling("exit") | library.telling("end"), library.telling("proxy")
    for e in events:
        if e.pattern in ends:
            _learn_end(reg, e)
        elif e.pattern in proxies:
            _learn_proxy(reg, e)
        if ".err" in e.where.source or ".out" in e.where.source:
            _learn_ray(reg, e)


def _ranks(reg: Registry, events: Sequence[Event]) -> tuple[int, ...]:
    """All ranks that the job has; those that are seen, where its size is not known or is not that of the
    whole job."""
    seen = {r for e in events if (r := reg.rank_of(e)) is not None} | set(reg.pids)
    whole = reg.world is not None and reg.world <= MOST and all(r < reg.world for r in seen)
    return tuple(range(reg.world or 0)) if whole else tuple(sorted(seen))


def _job_wide(reg: Registry, events: Sequence[Event]) -> None:
    """How large the job is and what it runs on: what most lines say."""
    told = [e.fields for e in events if not e.fields.keys().isdisjoint(_JOB_WIDE)]
    worlds, joined = _worlds(told)
    reg.world = worlds.most_common(1)[0][0] if worlds else max(joined, default=None)
    reg.limit = max((*worlds, *joined), default=None)
    for name in ("torch", "nccl"):
        versions = Counter(str(said[name]) for said in told if said.get(name))
        if versions:
            setattr(reg, name, versions.most_common(1)[0][0])


def _worlds(told: Sequence[Mapping[str, object]]) -> tuple[Counter[int], list[int]]:
    """The sizes that lines state as such, and those that patterns captured."""
    worlds: Counter[int] = Counter()
    joined = []
    for said in told:
        world = number(said.get("world"))
        if world is not None and 0 < world <= LARGEST:
            if isinstance(said["world"], int):
                worlds[world] += 1
            else:
                joined.append(world)
    return worlds, joined


def _from_sources(reg: Registry, sources: Sequence[Source]) -> None:
    for s in sources:
        if s.rank is not None and (reg.limit is None or s.rank < reg.limit):
            reg.by_source[s.path] = s.rank
            if s.host:
                reg.host_of.setdefault(s.rank, s.host)


def _bind_pid(reg: Registry, host: str | None, pid: object, rank: int) -> None:
    if (pid := number(pid)) is not None and pid > 1:
        reg.by_pid.setdefault(pid, {}).setdefault(host, rank)
        if pid not in reg.pids.setdefault(rank, []):
            reg.pids[rank].append(pid)


def _learn(reg: Registry, e: Event, maps: Set[str]) -> None:
    """Facts that name a rank together with something else."""
    rank = e.rank
    if rank is None and e.kind == "identity" and isinstance(e.fields.get("said_rank"), int):
        rank = number(e.fields["said_rank"])
    if rank is None or e.fields.get("quoted"):
        return
    if e.host and e.speaker != "kernel":
        reg.host_of.setdefault(rank, e.host)
    local = e.fields.get("local_rank")
    if isinstance(local, int):
        _learn_local(reg, e, local, rank)
    if e.kind in ("identity", "pid", "exit", "process", "stack"):
        _bind_pid(reg, e.host, e.fields.get("pid", e.pid), rank)
    elif e.kind in ("line", "progress") and e.source_kind != "agent":
        _bind_pid(reg, e.host, e.pid, rank)
    bus = e.fields.get("bus") or (e.fields.get("pci") if e.pattern in maps else None)
    if isinstance(bus, str):
        reg.by_bus.setdefault((e.host, bus_key(bus)), rank)


def _members(reg: Registry, events: Sequence[Event]) -> None:
    """Whose pid it is, where each of the job's processes says its number: there is one for each rank, and each
    a process of its own. A loader's workers are numbered once in every rank."""
    said = {
        (number(e.fields["member"]), number(e.fields["pid"]), number(e.fields["of"])): e
        for e in events
        if e.kind == "pid" and "member" in e.fields
    }
    worlds = {world for _, _, world in said}
    if worlds != {len(said)} or reg.limit not in (None, len(said)):
        return
    if {n for n, _, _ in said} != set(range(len(said))) or len({pid for _, pid, _ in said}) < len(said):
        return
    for (n, pid, _), e in said.items():
        if n is not None:
            _bind_pid(reg, e.host, pid, n)


def _learn_local(reg: Registry, e: Event, local: int, rank: int) -> None:
    if reg.by_console.setdefault((e.where.source, local), rank) != rank:
        reg.by_console[e.where.source, local] = None  # of several nodes, or of several lives
    reg.by_local.setdefault((e.run, e.host, local), rank)
    if e.run is None:
        reg.by_local.setdefault((None, e.host, local), rank)


def _learn_comm(reg: Registry, e: Event) -> None:
    """NCCL's own map: host:pid [cudaDev] … comm 0x… rank 3 nranks 16 cudaDev 3 busId 61000. Only the first
    and largest communicator counts global ranks; sub-groups number their own."""
    said, world, bus = e.fields.get("rank"), e.fields.get("world"), e.fields.get("pci") or e.fields.get("bus")
    rank = number(said) if isinstance(said, str) else None
    if rank is None or (e.rank is not None and e.rank != rank):
        return
    known = reg.rank_of_pid(e.pid, e.host)
    if known is not None and known != rank:
        return
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
    votes = _votes(events)
    own = _own_files(reg, events, nameless, votes)
    for s in nameless:
        found = votes.get(stem(s.path), Counter())
        if s.local_rank is None and stem(s.path) not in own:
            continue
        if s.local_rank is not None and not found:
            found = _in_folder(votes, s.path.rsplit("/", 1)[0])
        if len(found) == 1:
            _own(reg, s, next(iter(found)))


def _votes(events: Sequence[Event]) -> dict[str, Counter[int]]:
    """How often the lines of each process name a rank as their own."""
    votes: dict[str, Counter[int]] = defaultdict(Counter)
    for e in events:
        if e.rank is not None and e.kind in OWN_WORDS and not e.fields.get("reported_by"):
            votes[stem(e.where.source)][e.rank] += 1
    return votes


def _in_folder(votes: Mapping[str, Counter[int]], folder: str) -> Counter[int]:
    return sum((c for name, c in votes.items() if name.rsplit("/", 1)[0] == folder), Counter())


def _own(reg: Registry, s: Source, rank: int) -> None:
    """Know a file as one rank's."""
    reg.by_source[s.path] = rank
    reg.strength[s.path] = Strength.OWN
    if s.host:
        reg.host_of.setdefault(rank, s.host)
    if s.local_rank is not None:
        reg.by_local.setdefault((s.run, s.host, s.local_rank), rank)


def _own_files(
    reg: Registry, events: Sequence[Event], nameless: Sequence[Source], votes: Mapping[str, Counter[int]]
) -> set[str]:
    """Stems that are one process's own, among those whose lines name one rank. On a common console it
    may be that one rank alone has prefixed lines: `[rank0]:[W1122 ...] destroy_process_group() was not
    called` is rank 0's, and the lines around it are not."""
    stems = {stem(s.path) for s in nameless}
    named = {name: next(iter(votes[name])) for name in stems if len(votes.get(name, ())) == 1}
    if len(set(named.values())) > 1 or reg.world == 1:
        return set(named)
    introduced, whole = _introduced(events)
    return {name for name in named if name in introduced or (name in whole and len(stems) > 1)}


def _introduced(events: Sequence[Event]) -> tuple[set[str], set[str]]:
    """Stems in which a rank says who it is, and those of which every line has a rank."""
    introduced, whole, others = set(), set(), set()
    for e in events:
        if e.rank is None:
            if e.kind in ("line", "progress", "exception"):
                others.add(e.where.source)
        else:
            whole.add(e.where.source)
            if e.kind == "identity" and e.fields.get("said_rank") == e.rank:
                introduced.add(stem(e.where.source))
    return introduced, {stem(path) for path in whole - others}


def _numbers(reg: Registry, events: Sequence[Event], sources: Sequence[Source], library: Library) -> None:
    """Whose file it is by its number among those beside it."""
    nameless = [s for s in sources if s.rank is None and s.local_rank is None]
    stems = {s.path: stem(s.path) for s in nameless}
    votes = numbering.votes_of(events, stems)
    lost = failures.lost(events, library)
    joined = {stems[source] for source, _ in lost if source in stems}
    found = numbering.numbered(nameless, stems, votes, reg.limit, joined, _dumps(events, stems))
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


def _dumps(events: Sequence[Event], stems: Mapping[str, str]) -> set[str]:
    """Stems that hold the stacks of one process, which a tool took: of each process one."""
    pids: dict[str, set[int]] = defaultdict(set)
    for e in events:
        if e.kind == "stack" and e.source_kind == "stack" and e.pid and e.where.source in stems:
            pids[stems[e.where.source]].add(e.pid)
    taken = Counter(pid for own in pids.values() for pid in own)
    return {name for name, own in pids.items() if len(own) == 1 and all(taken[pid] == 1 for pid in own)}


def _writers(reg: Registry, events: Sequence[Event]) -> None:
    """Whose lines they are by the number of the pod or the process that wrote them, where there is one
    for each rank; and by the local rank in torchrun's prefix, where there are as many as there are
    ranks."""
    votes: dict[str, Counter[int]] = defaultdict(Counter)
    locals_: dict[tuple[str | None, str | None], set[int]] = defaultdict(set)
    for e in events:
        if isinstance(name := e.fields.get("writer"), str):
            votes[name].update(() if e.rank is None else (e.rank,))
        if e.rank is None and isinstance(local := e.fields.get("local_rank"), int):
            locals_[e.run, e.host].add(local)
    named = {e.rank for e in events if e.rank is not None and "writer" not in e.fields}
    reg.by_writer = numbering.of_names(votes, reg.limit, named)
    on_one_host = len({host for _, host in locals_}) == 1
    for (run, host), seen in locals_.items():
        if on_one_host and reg.limit == len(seen) == max(seen) + 1:
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
    if served is not None and reg.rank_of_pid(e.pid, e.host) is None and (reg.world is None or served < reg.world):
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
        and e.fields.get("writer") not in reg.by_writer  # a number on a common console is no claim
    )
    for rank, source in dict.fromkeys(spoken):
        if rank is not None:
            reg.claims.setdefault(rank, set()).add(stem(source))
