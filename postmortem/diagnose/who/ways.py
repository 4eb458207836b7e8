"""Ways in which logs bind ranks: names of files, lines, communicators, numbers, reports of ends; each yields evidence.

The launcher's lines, error files, NCCL's communicator lines, file names and the ranks' own lines each know a part of
the map. A file's place weighs more than a line in it about another rank.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from postmortem.diagnose.same import bus_key, stem
from postmortem.diagnose.who import numbering
from postmortem.diagnose.who.evidence import Evidence, Kind, Registry, Strength, Subject
from postmortem.diagnose.who.numbering import votes_of
from postmortem.library import Library
from postmortem.model import Event, Source
from postmortem.model.digits import number
from postmortem.model.grouped import usual
from postmortem.model.vocabulary import OF_PEERS

_RAY_PID = re.compile(r"worker-[0-9a-f]+-\w+-(\d+)\.(?:out|err)$")
MOST_RANKS = 65536  # ranks of a job that are listed though they are not seen
LARGEST = 1_000_000
Place = tuple[str, int | None]


class Job(NamedTuple):
    """The logs of one job; `known` is all that earlier ways have found."""

    events: Sequence[Event]
    sources: Sequence[Source]
    library: Library
    known: Registry


def build(events: Sequence[Event], sources: Iterable[Source], library: Library) -> Registry:
    """Ask all ways, in their order: of two facts about one subject the first counts."""
    reg = _job_wide(events)
    job = Job(events, list(sources), library, reg)
    for way in WAYS:
        for evidence in way(job):
            reg.bind(evidence)
    _claims(reg, events)
    seen = {r for e in events if (r := reg.rank_of(e)) is not None} | set(reg.pids)
    whole = reg.world is not None and reg.world <= MOST_RANKS and all(r < reg.world for r in seen)
    reg.ranks = tuple(range(reg.world or 0)) if whole else tuple(sorted(seen))
    return reg


def _job_wide(events: Sequence[Event]) -> Registry:
    """The size and versions that most lines state; sizes that patterns captured count only without others."""
    sizes = [(e.kind, n) for e in events if (n := e.fields.get("world")) is not None and 0 < n <= LARGEST]
    limit = max((n for _, n in sizes), default=None)
    world = usual(n for kind, n in sizes if kind != "pattern") or limit
    torch = usual(e.fields.get("torch") for e in events)
    return Registry(limit=limit, world=world, torch=torch, nccl=usual(e.fields.get("nccl") for e in events))


def _file(s: Source, rank: int, strength: Strength = Strength.STATED, assumed: bool = False) -> Evidence:
    return Evidence(Subject("file", s.path, s.host), rank, strength, assumed=assumed)


def _of(e: Event, kind: Kind, name: object, rank: int) -> Iterator[Evidence]:
    """That an event shows whose this is; of a launch only local ranks are."""
    if name is not None:
        run = e.run if kind == "local" else None
        yield Evidence(Subject(kind, name, None if kind == "console" else e.host, run), rank, line=e.where)


def _names(job: Job) -> Iterator[Evidence]:
    """Names of files that state a rank: `rank3.log`, `rank=3/stdout`."""
    for s in job.sources:
        if s.rank is not None and (job.known.limit is None or s.rank < job.known.limit):
            yield _file(s, s.rank)


def _lines(job: Job) -> Iterator[Evidence]:
    """Lines that name a rank together with something else."""
    maps = job.library.telling("communicator")
    for e in job.events:
        rank = e.fields.get("stated_rank") if e.rank is None and e.kind == "identity" else e.rank
        # NCCL's own map: host:pid … comm 0x… rank 3 nranks 16 cudaDev 3 busId 61000. Only the first and largest
        # communicator counts global ranks; sub-groups number their own
        mapped = e.fields.get("rank") if e.pattern in maps and e.rank in (None, e.fields.get("rank")) else None
        if mapped is not None and job.known.rank_of_pid(e.pid, e.host) in (None, mapped):
            rank = mapped
            yield from _of(e, "pid", e.pid, rank)
        if rank is not None and not e.fields.get("quoted"):
            yield from _beside(e, rank, e.pattern in maps)


def _beside(e: Event, rank: int, mapped: bool) -> Iterator[Evidence]:
    """What else a line about a rank names: its host, local rank, pid and GPU."""
    if e.host and e.speaker != "kernel":
        yield from _of(e, "rank", rank, rank)
    if (local := e.fields.get("local_rank")) is not None:
        yield from _of(e, "console", (e.where.source, local), rank)
        yield from _of(e, "local", local, rank)
    if e.kind in ("identity", "pid", "exit", "process", "stack"):
        yield from _of(e, "pid", e.fields.get("pid", e.pid), rank)
    elif e.kind in ("line", "progress") and e.source_kind != "agent":
        yield from _of(e, "pid", e.pid, rank)
    if bus := e.fields.get("bus") or (e.fields.get("pci") if mapped else None):
        yield from _of(e, "gpu", bus_key(bus), rank)


def _members(job: Job) -> Iterator[Evidence]:
    """Pids of processes that print their number, where there is one for each rank. A loader's workers are numbered
    once in every rank."""
    members = [e for e in job.events if e.kind == "pid" and "member" in e.fields]
    found = {(e.fields["member"], e.fields["pid"]): e for e in members}
    world = len(found)
    sizes = {e.fields["of"] for e in members}
    if sizes != {world} or job.known.limit not in (None, world) or len({pid for _, pid in found}) < world:
        return
    if {n for n, _ in found} == set(range(world)):
        for (n, pid), e in found.items():
            yield from _of(e, "pid", pid, n or 0)


def _streams(job: Job) -> Iterator[Evidence]:
    """A stream that never prints its rank has it from the other stream of the same process, or from its own lines
    that do."""
    nameless = [s for s in job.sources if s.path not in job.known.files and s.kind not in ("agent", "kernel")]
    if not nameless:
        return
    ranked = [e for e in job.events if e.rank is not None]
    votes = votes_of(ranked, {e.where.source: stem(e.where.source) for e in ranked})
    own = _own_files(job, {stem(s.path) for s in nameless}, votes)
    for s in nameless:
        found = _of_stream(s, votes, own)
        for rank in found if len(found) == 1 else ():
            yield _file(s, rank, Strength.FILE)
            if s.local_rank is not None:
                yield Evidence(Subject("local", s.local_rank, s.host, s.run), rank)


def _of_stream(s: Source, votes: numbering.Votes, own: Set[str]) -> Set[int]:
    """The ranks that the streams of its process name, or the other files in the folder of its local rank."""
    name, folder = stem(s.path), s.path.rpartition("/")[0] or s.path
    if s.local_rank is None:
        return votes[name].keys() if name in own else set()
    return votes.get(name, {}).keys() or {r for x, own in votes.items() if x.rsplit("/", 1)[0] == folder for r in own}


def _own_files(job: Job, stems: Set[str], votes: numbering.Votes) -> Set[str]:
    """Stems that are one process's own, among those whose lines name one rank. On a common console it may be that
    one rank alone has prefixed lines: `[rank0]:[W1122 ...] destroy_process_group() was not called` is rank 0's, and
    the lines around it are not."""
    named = {name: next(iter(votes[name])) for name in stems if len(votes.get(name, ())) == 1}
    if len(set(named.values())) > 1 or job.known.world == 1:
        return named.keys()
    introduced, prefixed, others = set(), set(), set()
    for e in job.events:
        if e.rank is not None:
            prefixed.add(e.where.source)
            if e.kind == "identity" and e.fields.get("stated_rank") == e.rank:
                introduced.add(stem(e.where.source))
        elif e.kind in ("line", "progress", "exception"):
            others.add(e.where.source)
    whole = {stem(path) for path in prefixed - others} if len(stems) > 1 else set()
    return named.keys() & (introduced | whole)


def _numbers(job: Job) -> Iterator[Evidence]:
    """Files by their number among those beside them."""
    nameless = [s for s in job.sources if s.rank is None and s.local_rank is None]
    stems = {s.path: stem(s.path) for s in nameless}
    votes = votes_of(job.events, stems)
    joined = {stems[source] for source, _ in lost(job.events, job.library) if source in stems}
    found = numbering.numbered(nameless, stems, votes, job.known.limit, joined, _dumps(job.events, stems))
    for s in nameless:
        rank = found.get(stems[s.path])
        if rank is not None:
            yield _file(s, rank, Strength.NUMBERED, assumed=not votes.get(stems[s.path]))


def _dumps(events: Sequence[Event], stems: Mapping[str, str]) -> set[str]:
    """Stems that hold the stacks of one process, which a tool took: of each process one."""
    pids: dict[str, set[int]] = defaultdict(set)
    for e in events:
        if e.kind == "stack" and e.source_kind == "stack" and e.pid and e.where.source in stems:
            pids[stems[e.where.source]].add(e.pid)
    taken = Counter(pid for own in pids.values() for pid in own)
    return {name for name, own in pids.items() if len(own) == 1 and all(taken[pid] == 1 for pid in own)}


def _writers(job: Job) -> Iterator[Evidence]:
    """Pods or processes of a runner by their number, where there is one for each rank."""
    votes: dict[str, Counter[int]] = defaultdict(Counter)
    for e in job.events:
        if name := e.fields.get("writer"):
            votes[name].update(() if e.rank is None else (e.rank,))
    named = {e.rank for e in job.events if e.rank is not None and "writer" not in e.fields}
    for name, rank in numbering.of_names(votes, job.known.limit, named).items():
        yield Evidence(Subject("writer", name), rank, Strength.NUMBERED)


def _prefixes(job: Job) -> Iterator[Evidence]:
    """The local ranks in torchrun's prefix, where there are as many on one host as there are ranks."""
    seen: dict[tuple[str | None, str | None], set[int]] = defaultdict(set)
    for e in job.events:
        if e.rank is None and (local := e.fields.get("local_rank")) is not None:
            seen[e.run, e.host].add(local)
    on_one_host = len({host for _, host in seen}) == 1
    for (run, host), locals_ in seen.items():
        if on_one_host and job.known.limit == len(locals_) == max(locals_) + 1:
            yield from (Evidence(Subject("local", local, host, run), local) for local in locals_)


def _folders(job: Job) -> Iterator[Evidence]:
    """Folders of local ranks: on one node these are the ranks. Two run folders with the same host are two attempts of
    one job."""
    with_local = [(s, s.local_rank) for s in job.sources if s.local_rank is not None]
    contradicted = any(e.rank != e.subject.name for e in job.known.all("local"))
    one_node = len({s.host for s, _ in with_local}) < 2 and not contradicted
    known = [(s, local, job.known.rank_with("local", local, s.host, s.run)) for s, local in with_local]
    for s, local, rank in known:
        if one_node:
            yield _file(s, local, Strength.STATED if rank is not None else Strength.GUESS, assumed=rank is None)
            yield Evidence(Subject("local", local, s.host, s.run), local)
        elif rank is not None:
            yield _file(s, rank)


def _ends(job: Job) -> Iterator[Evidence]:
    """Pids in reports of ends, and of the processes of NCCL's proxy threads."""
    known, ends = job.known, job.library.telling("exit") | job.library.telling("end")
    proxies = job.library.telling("proxy")
    for e in job.events:
        if e.pattern in ends:  # `failed (exitcode: -9) local_rank: 4 (pid: 25915)`
            rank, local = known.rank_of(e), e.fields.get("local_rank")
            if rank is None and local is not None and not known.found["local"]:
                rank = local  # nothing else is known: one node is assumed
                yield from _of(e, "local", local, local)
            if rank is not None:
                yield from _of(e, "pid", e.fields.get("pid"), rank)
        elif e.pattern in proxies:  # `[Proxy Service 3]` is a thread of rank 3's process (NCCL src/proxy.cc)
            served = number(e.fields.get("detail"))
            if served is not None and known.rank_of_pid(e.pid, e.host) is None and served < (known.world or LARGEST):
                yield from _of(e, "pid", e.pid, served)


def _ray_files(job: Job) -> Iterator[Evidence]:
    """The files of Ray's workers, whose names have their pids."""
    for source in {e.where.source for e in job.events} - job.known.files.keys():
        name = _RAY_PID.search(source)
        rank = job.known.rank_of_pid(number(name[1])) if name else None
        if rank is not None:
            yield Evidence(Subject("file", source), rank, Strength.STATED)


WAYS = (_names, _lines, _members, _streams, _numbers, _writers, _prefixes, _folders, _ends, _ray_files)


def _claims(reg: Registry, events: Sequence[Event]) -> None:
    """Collect the processes that claim each rank; a number on a common console is no claim."""
    for e in events:
        claims = e.kind in ("identity", "line", "progress") and e.source_kind in ("console", "json-lines")
        if claims and e.fields.get("local_rank") is None and e.fields.get("writer") not in reg.found["writer"]:
            rank = reg.rank_of(e)
            if rank is not None:
                reg.claims.setdefault(rank, set()).add(stem(e.where.source))


def lost(events: Sequence[Event], library: Library) -> set[Place]:
    """Where lines report that a peer has gone."""
    names = {p.id for p in library.patterns.values() if p.category in OF_PEERS}
    return {e.place for e in events if e.pattern in names}
