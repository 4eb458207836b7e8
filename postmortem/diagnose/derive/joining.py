"""The group that never formed: which rank did not come, came late, or came twice.

DistStoreError: Timed out after 11 seconds waiting for clients. 3/4 clients joined.       rank 0
DistStoreError: wait timeout after 10000ms, keys: /default_pg/0//cpu//0/2                 a peer: rank 2's address is missing
DistNetworkError: The client socket has timed out after 10000ms while trying to connect   a client that found no store
"""

from __future__ import annotations

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive.hangs.views import make
from postmortem.diagnose.wording import ranks_text
from postmortem.digits import number
from postmortem.model import Event

Accusation = tuple[list[int], list[Event], str]  # who, the proof, and why


def derive(case: Case, claims: list[Claim]) -> list[Claim]:
    """Claims about ranks that did not join. Empty unless a store or a rendezvous complained."""
    complaints = [o.event for o in claims if o.tells("join-wait") and o.role in ("cause", "symptom")]
    if not complaints:
        return _found(_counted(case))
    world = case.registry.world or max((number(e.fields.get("world")) or 0 for e in complaints), default=0)
    present = {
        r
        for r, events in case.by_rank.items()
        if any(e.kind in ("line", "identity", "progress", "exception") for e in events)
    }
    twice = sorted(r for r, stems in case.registry.claims.items() if len(stems) > 1 and _separate(stems))
    missing = sorted(set(range(world)) - present) if 0 < world <= 65536 else []
    if twice:
        proof = [e for e in case.of_kind("line", "identity") if case.rank_of(e) in twice]
        return _found(
            make(
                case,
                "rank-started-twice",
                [*twice, *missing],
                [*_one_per_source(proof), *complaints],
                _twice_text(twice, missing),
            )
        )
    late = _late(case, claims, complaints)
    if late:
        ranks, proof, why = late
        return _found(make(case, "rank-joined-late", ranks, [*proof, *complaints], why))
    larger = _larger_world(case, complaints, present)
    if larger:
        ranks, proof, why = larger
        return _found(make(case, "world-sizes-differ", ranks, proof, why))
    lost = _found_no_store(case, claims, complaints)
    if lost:
        ranks, proof, why = lost
        return _found(make(case, "rank-found-no-store", ranks, [*proof, *complaints], why))
    stuck = _stuck(case, claims, complaints, present)
    if stuck:
        return _found(make(case, "rank-stuck-before-init", *stuck))
    unlabelled = [o for o in claims if o.role == "cause" and not o.ranks and o.pattern.entity == "self"]
    if missing and len(missing) <= max(1, world // 2) and not unlabelled:
        text = f"{world - len(missing)} of {world} ranks left logs and waited, and {ranks_text(missing)} left no line"
        return _found(make(case, "rank-never-joined", missing, complaints, text))
    return []


def _counted(case: Case) -> Claim | None:
    """The barrier of start-up counts who came. If those who complain are all that came, the others did not.

    Timed out initializing … in store based barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=2, worker_count=1, …
    """
    complaints = [
        e for e in case.telling("join-count") if str(e.fields.get("store_key")).endswith("barrier_key:1")
    ]
    came = {r for e in complaints if (r := number(e.fields.get("rank"))) is not None}
    world = max((number(e.fields.get("world")) or 0 for e in complaints), default=0)
    joined = {number(e.fields.get("joined")) for e in complaints}
    missing = sorted(set(range(min(world, 65536))) - came)
    if joined != {len(came)} or not missing or len(missing) > max(1, world // 2):
        return None
    named = ", ".join(map(str, missing))
    return make(
        case,
        "rank-never-joined",
        missing,
        complaints,
        f"{len(came)} of {world} ranks came, and all of them say so; not rank {named}",
    )


def _found(finding: Claim | None) -> list[Claim]:
    return [finding] if finding is not None else []


def _separate(stems: set[str]) -> bool:
    """Files of separate processes stand side by side; `run/rank0` and `console` are one process seen twice."""
    return len({s.rsplit("/", 1)[0] if "/" in s else "" for s in stems}) == 1


def _twice_text(twice: list[int], missing: list[int]) -> str:
    text = f"two processes say they are rank {', '.join(map(str, twice))}"
    return text + (f", and none is rank {', '.join(map(str, missing))}" if missing else "")


def _one_per_source(events: list[Event]) -> list[Event]:
    found: dict[str, Event] = {}
    for e in events:
        found.setdefault(e.where.source, e)
    return list(found.values())


def _stuck(case: Case, claims: list[Claim], complaints: list[Event], present: set[int]) -> Accusation | None:
    """A rank that started, speaks, and neither joined nor complained: it is busy or stuck before init_process_group."""
    accused = [o.event for o in claims if o.role in ("cause", "symptom") and not _launchers(o)]
    spoke_up = {r for e in accused if (r := case.rank_of(e)) is not None}
    ready = {r for e in case.of_kind("progress") if (r := case.rank_of(e)) is not None}
    waiting = {r for e in complaints if (r := case.rank_of(e)) is not None}
    stuck = sorted(present - spoke_up - ready)
    if not stuck or len(stuck) >= len(waiting) + 1 or not waiting:
        return None
    last = [
        max(
            (e for e in case.by_rank[r] if e.kind in ("line", "notice")),
            key=lambda e: e.where.line or 0,
            default=None,
        )
        for r in stuck
    ]
    why = f"{ranks_text(stuck)} started and never came to the store, where {ranks_text(waiting)} waited"
    return stuck, [*(e for e in last if e is not None), *complaints], why


def _launchers(o: Claim) -> bool:
    return o.speaker == "launcher" or o.pattern.family == "launcher"


def _larger_world(case: Case, complaints: list[Event], present: set[int]) -> Accusation | None:
    """A few ranks wait for a rank that nobody is, and the others do not: those few have a larger WORLD_SIZE."""
    awaited: dict[int, int] = {}
    for e in complaints:
        waiting, expected = case.rank_of(e), number(e.fields.get("rank"))
        if waiting is not None and expected is not None and expected > max(present, default=expected):
            awaited[waiting] = expected
    formed = [
        e for e in case.of_kind("exception") if _knew_all(e) and case.rank_of(e) not in (None, *awaited)
    ]
    met = {r for e in formed if (r := case.rank_of(e)) is not None}
    if not awaited or len(awaited) > len(met):
        return None
    one = len(awaited) == 1
    proof = [e for e in complaints if case.rank_of(e) in awaited] + formed
    nobody = ", ".join(map(str, sorted(set(awaited.values()))))
    why = f"{'it waits' if one else 'they wait'} for rank {nobody}, and {ranks_text(met)} did not look for it"
    return sorted(awaited), proof, why


def _knew_all(e: Event) -> bool:
    """Raised by a rank that had the addresses of all: it connected to them, or had left init_process_group behind.

    RuntimeError: Gloo connectFullMesh failed with [...gloo/transport/tcp/pair.h:311] Connect timeout [none]
    """
    frames = e.fields.get("frames")
    if "connectFullMesh" in e.text:
        return "Connect timeout" in e.text
    return (
        isinstance(frames, tuple)
        and len(frames) > 0
        and not any(func == "init_process_group" for _, _, func in frames)
    )


def _found_no_store(case: Case, claims: list[Claim], complaints: list[Event]) -> Accusation | None:
    """Most ranks met in the store, and a few could not reach one: those few have another address or port, or no way to it."""
    outside = {
        rank: o.event for o in claims if o.tells("no-store") and (rank := case.rank_of(o.event)) is not None
    }
    met = {r for e in complaints if (r := case.rank_of(e)) is not None} - set(outside)
    if not outside or len(outside) >= len(met):
        return None
    places = {(str(e.fields.get("address")), str(e.fields.get("port"))) for e in outside.values()}
    where = ", ".join(f"{address}:{port}" for address, port in sorted(places))
    return (
        sorted(outside),
        list(outside.values()),
        f"{ranks_text(outside)} looked for the store at {where}, and {ranks_text(met)} met elsewhere",
    )


def _late(case: Case, claims: list[Claim], complaints: list[Event]) -> Accusation | None:
    """A client that started after the others had given up found nobody."""
    gave_up = [e.at for e in complaints if e.at is not None and e.at_sigma < 30]
    for o in claims:
        rank = case.rank_of(o.event)
        if not o.tells("no-store") or rank is None or rank == 0:
            continue
        first = min(
            (
                e.at
                for e in case.by_rank.get(rank, ())
                if e.kind in ("line", "identity") and e.at is not None and e.at_sigma < 30
            ),
            default=None,
        )
        others = [
            min(
                (
                    e.at
                    for e in events
                    if e.kind in ("line", "identity") and e.at is not None and e.at_sigma < 30
                ),
                default=None,
            )
            for r, events in case.by_rank.items()
            if r != rank
        ]
        known = [t for t in others if t is not None]
        if first is None or not known:
            continue
        timeout = (number(o.event.fields.get("timeout_ms")) or 10_000) / 1000
        if (gave_up and first > min(gave_up) - 0.5) or first > max(known) + 0.8 * timeout:
            starts = [e for e in case.by_rank[rank] if e.kind in ("line", "identity")]
            return (
                [rank],
                [*starts[:1], o.event],
                f"rank {rank} started {first - max(known):.0f} s after the others, which had given up",
            )
    return None
