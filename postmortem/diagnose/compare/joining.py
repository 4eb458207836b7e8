"""The group that never formed: the rank that did not come, came late, came twice, or looked elsewhere.

DistStoreError: Timed out after 11 seconds waiting for clients. 3/4 clients joined.       rank 0
DistStoreError: wait timeout after 10000ms, keys: /default_pg/0//cpu//0/2                 a peer: rank 2's address is missing
DistNetworkError: The client socket has timed out after 10000ms while trying to connect   a client that found no store
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from postmortem.diagnose.case import Case, moment
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.compare.rank_rows import MOST_RANKS
from postmortem.diagnose.wording import ranks_text
from postmortem.model import Event
from postmortem.model.grouped import grouped
from postmortem.system import forms

ALIVE = ("line", "identity", "progress", "exception")
START = ("line", "identity")
PATIENCE_S = 10.0  # how long a client looks for the store where its message has no timeout
TOGETHER_S = 1.0  # ranks that start within this time are not late
MARGIN_S = 0.5
_REGEXES = forms.regexes("diagnose/lines")


@dataclass(frozen=True)
class Meeting:
    """The ranks around the store of one job."""

    case: Case
    claims: Sequence[Claim]
    complaints: list[Event]  # of ranks that waited in the store for others

    @cached_property
    def world(self) -> int:
        stated = (e.fields.get("world") or 0 for e in self.complaints)
        return self.case.registry.world or max(stated, default=0)

    @cached_property
    def present(self) -> set[int]:
        """Ranks with a line of their own."""
        return {r for r, events in self.case.by_rank.items() if any(e.kind in ALIVE for e in events)}

    @cached_property
    def missing(self) -> list[int]:
        return sorted(set(range(self.world)) - self.present) if 0 < self.world <= MOST_RANKS else []

    @cached_property
    def waiting(self) -> set[int]:
        """Ranks that complain."""
        return self.case.ranks_of(self.complaints)

    @cached_property
    def starts(self) -> dict[int, float]:
        """When each rank started, where that is known."""
        times = ((r, moment(e)) for r, events in self.case.by_rank.items() for e in events if e.kind in START)
        return {r: min(known) for r, known in grouped((r, at) for r, at in times if at is not None).items()}

    @cached_property
    def outside(self) -> dict[int, Event]:
        """Ranks that found no store, with their message."""
        found = [(self.case.rank_of(c.event), c.event) for c in self.claims if c.tells("no-store")]
        return {rank: e for rank, e in found if rank is not None}


def derive(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """At most one claim about ranks that did not join, best evidence first. Empty unless a store or a rendezvous
    complained."""
    meeting = Meeting(case, claims, [c.event for c in claims if c.tells("join-wait") and c.accuses])
    steps = STEPS if meeting.complaints else (_counted, _store_not_opened)
    return list(islice(filter(None, (step(meeting) for step in steps)), 1))


def _counted(m: Meeting) -> Claim | None:
    """The barrier of the start counts the ranks that came; if all of these complain, the others did not come.

    Timed out initializing … in store based barrier on rank: 0, for key: store_based_barrier_key:1
    (world_size=2, worker_count=1, …
    """
    counts = (c.event for c in m.claims if c.accuses and "joined" in c.event.fields)
    complaints = [e for e in counts if e.fields.get("store_key", "").endswith("barrier_key:1")]
    came = {r for e in complaints if (r := e.fields.get("rank")) is not None}
    world = max((e.fields.get("world") or 0 for e in complaints), default=0)
    missing = sorted(set(range(min(world, MOST_RANKS))) - came)
    if {e.fields.get("joined") for e in complaints} != {len(came)} or not 0 < len(missing) <= max(1, world // 2):
        return None
    because = f"{len(came)} of {world} ranks joined; {ranks_text(missing)} did not"
    return m.case.claim("rank-never-joined", missing, complaints, because)


def _store_not_opened(m: Meeting) -> Claim | None:
    """Rank 0 opens the store. If it fell silent before, all others look for it in vain; if its last line is about the
    group, the store may be open and out of reach."""
    peers = m.present - {0}
    accused = m.case.ranks_of(c.event for c in m.claims if c.accuses and c.speaker == "rank")
    busy = m.case.finished | m.case.ranks_of(m.case.of_kind("progress")) | {*m.case.ended("kill", "crash", "own")}
    if not peers or set(m.outside) != peers or 0 not in m.present - accused - busy:
        return None
    last = max((e for e in m.case.by_rank[0] if e.kind in ALIVE), key=lambda e: e.line)
    gave_up = min((at for e in m.outside.values() if (at := moment(e)) is not None), default=float("inf"))
    if _REGEXES["about-the-group"].search(last.text) or (moment(last) or 0.0) > gave_up:
        return None
    because = f"rank 0 fell silent before it opened the store; {ranks_text(peers)} looked for it until the timeout"
    return m.case.claim("rank-stuck-before-init", [0], [last, *m.outside.values()], because)


def _twice(m: Meeting) -> Claim | None:
    """Two processes that start as the same rank."""
    several = {r: stems for r, stems in m.case.registry.claims.items() if len(stems) > 1}
    # files in one folder are of separate processes; `run/rank0` and `console` are one process, logged twice
    twice = [r for r, stems in several.items() if len({s.rpartition("/")[0] for s in stems}) == 1]
    if not twice:
        return None
    first: dict[str, Event] = {}
    for e in m.case.of_kind(*START):
        if m.case.rank_of(e) in twice:
            first.setdefault(e.where.source, e)
    starts = sorted(first.values(), key=lambda e: (e.at is None, e.at_sigma, e.at or 0.0))
    because = f"two processes started as {ranks_text(twice)}"
    because += f", and none as {ranks_text(m.missing)}" if m.missing else ""
    return m.case.claim("rank-started-twice", [*twice, *m.missing], [*starts, *m.complaints], because)


def _started_after_timeout(m: Meeting) -> Claim | None:
    """A client that started after the others had given up."""
    gave_up = min((at for x in m.complaints if (at := moment(x)) is not None), default=float("inf"))
    for rank, e in m.outside.items():
        start, others = m.starts.get(rank), [at for r, at in m.starts.items() if r != rank]
        if not rank or start is None or not others or (late := start - max(others)) < TOGETHER_S:
            continue
        # the others had given up when it started, or it started about its own timeout after them
        if start > gave_up - MARGIN_S or late > 0.8 * (e.fields.get("timeout_ms") or PATIENCE_S * 1000) / 1000:
            begun = [x for x in m.case.by_rank[rank] if x.kind in START][:1]
            because = f"rank {rank} started {late:.0f} s after the others, which had timed out"
            return m.case.claim("rank-joined-late", [rank], [*begun, e, *m.complaints], because)
    return None


def _larger_world(m: Meeting) -> Claim | None:
    """A few ranks wait for a rank that does not exist, and the others do not: those few have a larger WORLD_SIZE."""
    highest = max(m.present, default=None)
    expected = [(m.case.rank_of(e), e.fields.get("rank"), e) for e in m.complaints]
    awaited = {r: n for r, n, _ in expected if r is not None and n is not None and highest is not None and n > highest}
    formed = [e for e in m.case.of_kind("exception") if _had_joined(e) and m.case.rank_of(e) not in awaited]
    met = m.case.ranks_of(formed)
    if not awaited or len(awaited) > len(met):
        return None
    proof = [e for r, _, e in expected if r in awaited] + formed
    unknown = ", ".join(map(str, sorted(set(awaited.values()))))
    wait = "it waited" if len(awaited) == 1 else "they waited"
    because = f"{wait} for rank {unknown}, which {ranks_text(met)} did not expect"
    return m.case.claim("world-sizes-differ", awaited, proof, because)


def _had_joined(e: Event) -> bool:
    """Whether a rank that had the addresses of all raised it: while it connected to them, or after init_process_group.

    RuntimeError: Gloo connectFullMesh failed with [...gloo/transport/tcp/pair.h:311] Connect timeout [none]
    """
    frames = e.fields.get("frames", ())
    if "connectFullMesh" in e.text:
        return "Connect timeout" in e.text
    return bool(frames) and all(func != "init_process_group" for _, _, func in frames)


def _no_store(m: Meeting) -> Claim | None:
    """A few ranks found no store where most met: they have another address or port, or no route to it."""
    met = m.waiting - set(m.outside)
    if not m.outside or len(m.outside) >= len(met):
        return None
    places = sorted({f"{e.fields.get('address')}:{e.fields.get('port')}" for e in m.outside.values()})
    because = f"{ranks_text(m.outside)} could not reach a store at {', '.join(places)}; {ranks_text(met)} joined one"
    return m.case.claim("rank-found-no-store", m.outside, [*m.outside.values(), *m.complaints], because)


def _first_of_group(m: Meeting) -> Claim | None:
    """Who waits for NCCL's id names the first rank of its group, which writes the id at its first collective."""
    waits = [c for c in m.claims if c.accuses and c.pattern.category == "rendezvous" and "peer_rank" in c.event.fields]
    awaited = {c.event.fields["peer_rank"] for c in waits}
    whole = all("/default_pg/" in e.text for e in m.complaints)
    absent = sorted(awaited & m.present - m.waiting - {*m.case.ended("kill", "crash", "own")})
    if not whole or len(awaited) != 1 or not absent:
        return None
    waiting = ranks_text(m.case.ranks_of(c.event for c in waits))
    because = f"{waiting} waited for NCCL's id from {ranks_text(absent)}"
    last = [e for e in m.case.by_rank[absent[0]] if e.kind in ALIVE][-1:]
    return m.case.claim("rank-never-arrived", absent, [*last, *(c.event for c in waits)], because)


def _stuck(m: Meeting) -> Claim | None:
    """Ranks with lines that neither joined nor complained: they hang before init_process_group."""
    own = [c for c in m.claims if c.accuses and c.speaker == "rank" and c.pattern.family != "launcher"]
    ready = m.case.ranks_of((*m.case.of_kind("progress"), *(c.event for c in own)))
    stuck = sorted(m.present - ready - m.waiting - set(m.case.ended("kill", "crash")))
    if not stuck or not m.waiting or len(stuck) > len(m.waiting):
        return None
    lines = ([e for e in m.case.by_rank[r] if e.kind in ("line", "notice")] for r in stuck)
    last = [max(reversed(own), key=lambda e: e.line) for own in lines if own]
    because = f"{ranks_text(stuck)} started but never joined the store, where {ranks_text(m.waiting)} waited"
    return m.case.claim("rank-stuck-before-init", stuck, [*last, *m.complaints], because)


def _never_came(m: Meeting) -> Claim | None:
    """Ranks without a line, unless a failed process of unknown rank may be one of them."""
    nameless = [c for c in m.claims if c.role == "cause" and not c.ranks and c.pattern.entity == "self"]
    if nameless or not 0 < len(m.missing) <= max(1, m.world // 2):
        return None
    came = f"{m.world - len(m.missing)} of {m.world} ranks waited in the store"
    because = f"{came}; {ranks_text(m.missing)} {'has' if len(m.missing) == 1 else 'have'} no log line"
    return m.case.claim("rank-never-joined", m.missing, m.complaints, because)


STEPS: tuple[Callable[[Meeting], Claim | None], ...] = (
    _twice,
    _started_after_timeout,
    _larger_world,
    _no_store,
    _first_of_group,
    _stuck,
    _never_came,
)
