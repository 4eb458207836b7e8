"""The group that never formed: which rank did not come, came late, or came twice.

DistStoreError: Timed out after 11 seconds waiting for clients. 3/4 clients joined.       rank 0
DistStoreError: wait timeout after 10000ms, keys: /default_pg/0//cpu//0/2                 a peer: rank 2's address is missing
DistNetworkError: The client socket has timed out after 10000ms while trying to connect   a client that found no store
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from postmortem.diagnose import life
from postmortem.diagnose.case import Case, moment
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive.hangs.rank_rows import MOST, make
from postmortem.diagnose.wording import ranks_text
from postmortem.model import Event
from postmortem.model.digits import number
from postmortem.system import lazy

ALIVE = ("line", "identity", "progress", "exception")
START = ("line", "identity")
PATIENCE_S = 10.0  # how long a client looks for the store where it does not say
TOGETHER_S = 1.0
MARGIN_S = 0.5
_OF_THE_GROUP = lazy.regex(
    r"process.?group|init\w*[ _.-]{1,3}(?:dist|nccl|gloo|comm|backend|torch)|distributed|rendezvous|master|store\b"
    r"|\bworld|listen|barrier|join(?:ed|ing)?\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Meeting:
    """The ranks around the store of one job."""

    case: Case
    claims: Sequence[Claim]
    complaints: list[Event]  # of those who waited in the store for others

    @cached_property
    def world(self) -> int:
        said = (number(e.fields.get("world")) or 0 for e in self.complaints)
        return self.case.registry.world or max(said, default=0)

    @cached_property
    def present(self) -> set[int]:
        """Ranks that left a line."""
        return {r for r, events in self.case.by_rank.items() if any(e.kind in ALIVE for e in events)}

    @cached_property
    def missing(self) -> list[int]:
        return sorted(set(range(self.world)) - self.present) if 0 < self.world <= MOST else []

    @cached_property
    def waiting(self) -> set[int]:
        """Who complains. Until there is a group torch puts no `[rank0]:` before a traceback: of those on a common
        console the launcher tells whose they are, if as many ranks as there are tracebacks left by themselves."""
        named = self.case.ranks_of(self.complaints)
        lines = {(e.where.source, e.where.line) for e in self.complaints if self.case.rank_of(e) is None}
        raised = [e for e in self.case.of_kind("exception") if (e.where.source, e.where.line) in lines]
        left = {r for r in self.case.ended("own") if self.case.ends[r].code == 1} - named
        return named | left if len(left) == sum(map(life.uncaught, raised)) else named

    @cached_property
    def outside(self) -> dict[int, Event]:
        """Ranks that found no store, with the line that says so."""
        found = {}
        for c in self.claims:
            rank = self.case.rank_of(c.event)
            if c.tells("no-store") and rank is not None:
                found[rank] = c.event
        return found

    def make(self, pattern: str, ranks: Iterable[int], proof: Iterable[Event], because: str) -> Claim | None:
        return make(self.case, pattern, ranks, proof, because)


def derive(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """At most one claim about ranks that did not join, best reasons first. Empty unless a store or a
    rendezvous complained."""
    complaints = [c.event for c in claims if c.tells("join-wait") and c.accuses]
    meeting = Meeting(case, claims, complaints)
    if not complaints:
        claim = _counted(case) or _unopened(meeting)
        return [claim] if claim else []
    for step in STEPS:
        claim = step(meeting)
        if claim is not None:
            return [claim]
    return []


def _counted(case: Case) -> Claim | None:
    """The barrier of start-up counts who came. If those who complain are all that came, the others did not.

    Timed out initializing … in store based barrier on rank: 0, for key: store_based_barrier_key:1
    (world_size=2, worker_count=1, …
    """
    complaints = [e for e in case.telling("join-count") if str(e.fields.get("store_key")).endswith("barrier_key:1")]
    came = {r for e in complaints if (r := number(e.fields.get("rank"))) is not None}
    world = max((number(e.fields.get("world")) or 0 for e in complaints), default=0)
    joined = {number(e.fields.get("joined")) for e in complaints}
    missing = sorted(set(range(min(world, MOST))) - came)
    if joined != {len(came)} or not 0 < len(missing) <= max(1, world // 2):
        return None
    because = f"{len(came)} of {world} ranks joined; {ranks_text(missing)} did not"
    return make(case, "rank-never-joined", missing, complaints, because)


def _unopened(m: Meeting) -> Claim | None:
    """Rank 0 opens the store. If it fell silent on the way there, and all others looked for it in vain, it had
    not; if its last word is of the group itself, the store may be open and out of reach."""
    peers = m.present - {0}
    accused = m.case.ranks_of(c.event for c in m.claims if c.accuses and c.speaker != "launcher")
    busy = m.case.finished | m.case.ranks_of(m.case.of_kind("progress"))
    ended = m.case.ended("kill", "crash", "own")
    if not peers or set(m.outside) != peers or 0 not in m.present - accused - busy - {*ended}:
        return None
    spoken = [e for e in m.case.by_rank[0] if e.kind in ALIVE]
    last = max(spoken, key=lambda e: e.where.line or 0)
    gave_up = min((at for e in m.outside.values() if (at := moment(e)) is not None), default=float("inf"))
    if _OF_THE_GROUP.search(last.text) or (moment(last) or 0.0) > gave_up:
        return None
    looked = f"{ranks_text(peers)} looked for it until the timeout"
    because = f"rank 0 fell silent before it opened the store; {looked}"
    return m.make("rank-stuck-before-init", [0], [last, *m.outside.values()], because)


def _twice(m: Meeting) -> Claim | None:
    """Two processes that say they are the same rank."""
    twice = [r for r, stems in m.case.registry.claims.items() if len(stems) > 1 and _separate(stems)]
    if not twice:
        return None
    first: dict[str, Event] = {}
    for e in m.case.of_kind(*START):
        if m.case.rank_of(e) in twice:
            first.setdefault(e.where.source, e)
    starts = sorted(first.values(), key=lambda e: (e.at is None, e.at_sigma, e.at or 0.0))
    because = f"two processes started as {ranks_text(twice)}"
    because += f", and none as {ranks_text(m.missing)}" if m.missing else ""
    return m.make("rank-started-twice", [*twice, *m.missing], [*starts, *m.complaints], because)


def _separate(stems: set[str]) -> bool:
    """Files of separate processes stand side by side; `run/rank0` and `console` are one process seen
    twice."""
    return len({s.rsplit("/", 1)[0] if "/" in s else "" for s in stems}) == 1


def _late(m: Meeting) -> Claim | None:
    """A client that started after the others had given up found nobody."""
    starts = {r: s for r in m.case.by_rank if (s := _start(m.case, r)) is not None}
    for rank, e in m.outside.items():
        others = [s for r, s in starts.items() if r != rank]
        if rank and rank in starts and others and _too_late(m, e, starts[rank], max(others)):
            begun = [x for x in m.case.by_rank[rank] if x.kind in START][:1]
            after = starts[rank] - max(others)
            because = f"rank {rank} started {after:.0f} s after the others, which had timed out"
            return m.make("rank-joined-late", [rank], [*begun, e, *m.complaints], because)
    return None


def _too_late(m: Meeting, e: Event, start: float, others: float) -> bool:
    """Whether the others had given up, or the client's own patience was over, when it came. Who came with
    the others is not late, whatever the clock of a complaint says."""
    if start - others < TOGETHER_S:
        return False
    gave_up = [at for x in m.complaints if (at := moment(x)) is not None]
    patience = (number(e.fields.get("timeout_ms")) or PATIENCE_S * 1000) / 1000
    return start > min(gave_up, default=float("inf")) - MARGIN_S or start - others > 0.8 * patience


def _start(case: Case, rank: int) -> float | None:
    """When a rank is first heard of."""
    told = (moment(e) for e in case.by_rank[rank] if e.kind in START)
    return min((at for at in told if at is not None), default=None)


def _larger_world(m: Meeting) -> Claim | None:
    """A few ranks wait for a rank that nobody is, and the others do not: those few have a larger
    WORLD_SIZE."""
    awaited: dict[int, int] = {}
    for e in m.complaints:
        waiting, expected = m.case.rank_of(e), number(e.fields.get("rank"))
        if waiting is not None and expected is not None and expected > max(m.present, default=expected):
            awaited[waiting] = expected
    formed = [e for e in m.case.of_kind("exception") if _knew_all(e) and m.case.rank_of(e) not in awaited]
    met = m.case.ranks_of(formed)
    if not awaited or len(awaited) > len(met):
        return None
    proof = [e for e in m.complaints if m.case.rank_of(e) in awaited] + formed
    nobody = ", ".join(map(str, sorted(set(awaited.values()))))
    wait = "it waited" if len(awaited) == 1 else "they waited"
    because = f"{wait} for rank {nobody}, which {ranks_text(met)} did not expect"
    return m.make("world-sizes-differ", awaited, proof, because)


def _knew_all(e: Event) -> bool:
    """Raised by a rank that had the addresses of all: it connected to them, or had left init_process_group
    behind.

    RuntimeError: Gloo connectFullMesh failed with [...gloo/transport/tcp/pair.h:311] Connect timeout [none]
    """
    frames = e.fields.get("frames")
    if "connectFullMesh" in e.text:
        return "Connect timeout" in e.text
    return isinstance(frames, tuple) and bool(frames) and all(func != "init_process_group" for _, _, func in frames)


def _no_store(m: Meeting) -> Claim | None:
    """Most ranks met in the store, and a few could not reach one: those few have another address or port, or
    no way to it."""
    met = m.waiting - set(m.outside)
    if not m.outside or len(m.outside) >= len(met):
        return None
    places = {f"{e.fields.get('address')}:{e.fields.get('port')}" for e in m.outside.values()}
    looked = f"{ranks_text(m.outside)} could not reach a store at {', '.join(sorted(places))}"
    proof = [*m.outside.values(), *m.complaints]
    return m.make("rank-found-no-store", m.outside, proof, f"{looked}; {ranks_text(met)} joined one")


def _stuck(m: Meeting) -> Claim | None:
    """A rank that started, speaks, and neither joined nor complained: it is busy or stuck before
    init_process_group."""
    accused = [c.event for c in m.claims if c.accuses and c.speaker != "launcher" and c.pattern.family != "launcher"]
    ready = m.case.ranks_of(m.case.of_kind("progress"))
    dead = set(m.case.ended("kill", "crash"))
    stuck = sorted(m.present - m.case.ranks_of(accused) - ready - m.waiting - dead)
    if not stuck or not m.waiting or len(stuck) > len(m.waiting):
        return None
    last = []
    for r in stuck:
        spoken = [e for e in m.case.by_rank[r] if e.kind in ("line", "notice")]
        last += sorted(spoken, key=lambda e: e.where.line or 0)[-1:]
    because = f"{ranks_text(stuck)} started but never joined the store, where {ranks_text(m.waiting)} waited"
    return m.make("rank-stuck-before-init", stuck, [*last, *m.complaints], because)


def _never_came(m: Meeting) -> Claim | None:
    """Ranks without a line. A nameless process that says why it failed may be one of them: then that is the
    cause."""
    nameless = [c for c in m.claims if c.role == "cause" and not c.ranks and c.pattern.entity == "self"]
    if nameless or not 0 < len(m.missing) <= max(1, m.world // 2):
        return None
    came = f"{m.world - len(m.missing)} of {m.world} ranks waited in the store"
    because = f"{came}; {ranks_text(m.missing)} left no line"
    return m.make("rank-never-joined", m.missing, m.complaints, because)


STEPS: tuple[Callable[[Meeting], Claim | None], ...] = (
    _twice,
    _late,
    _larger_world,
    _no_store,
    _stuck,
    _never_came,
)
