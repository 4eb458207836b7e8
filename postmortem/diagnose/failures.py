"""A traceback that names nobody, and what the launcher and the other ranks say -> whose it is.

    ValueError: non-hexadecimal number found in fromhex() arg at position 6      without a prefix
    rank      : 6 (local_rank: 6)   exitcode  : 1 (pid: 28747)                   the only one with code 1

Where one rank failed by itself, what nobody else can have said is its own; where all failed and as many say
the same, each has one. Where all others complain of a peer, the one that does not is the peer. And what a
rank says later in its own name, it said before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from postmortem.formats.lineform import gist
from postmortem.library import Library
from postmortem.model import Event
from postmortem.model.digits import number

Place = tuple[str, int | None]
Told = Callable[[Event], tuple[int | None, object]]
LOST = frozenset(("peer-lost", "rendezvous", "hang"))  # what a rank says whose peer has gone or does not come
TELLING = 24  # characters of a message that two ranks do not say by chance


def owners(events: Sequence[Event], told: Told, library: Library) -> Mapping[Place, int]:
    """The ranks of exceptions that nothing else names, by where they stand."""
    gone = lost(events, library)
    raised = [e for e in events if _raised(e)]
    orphans: dict[str, list[Place]] = defaultdict(list)
    messages: dict[str, str] = {}
    spoken: set[int] = set()
    victims: set[int] = set()
    for e in raised:
        rank, place = told(e)[0], (e.where.source, e.where.line)
        if rank is not None:
            (victims if place in gone else spoken).add(rank)
        elif place not in gone:
            said = str(e.fields.get("line") or e.text)
            orphans[gist(said)].append(place)
            messages[gist(said)] = str(e.fields.get("message") or "")
    if not orphans:
        return {}
    found = dict(_echoes(events, orphans, messages, told))
    left = {said: places for said, places in orphans.items() if said not in found}
    out = {place: rank for said, rank in found.items() for place in orphans[said]}
    return out | _by_the_list(_ends(events, library), left, spoken | set(found.values()), victims)


def _raised(e: Event) -> bool:
    """Whether somebody raised it here, and no launcher quotes it: its block is indented."""
    quoted = e.fields.get("reported_by") or (e.source_kind == "agent" and e.text.startswith("  "))
    return e.kind == "exception" and not e.fields.get("wrapper") and not quoted


def _echoes(
    events: Sequence[Event], orphans: Mapping[str, object], messages: Mapping[str, str], told: Told
) -> list[tuple[str, int]]:
    """Ranks that say the same under their own name: NCCL's watchdog tells what its process raised."""
    wanted = {said: message[:400] for said in orphans if len(message := messages[said].strip()) >= TELLING}
    speakers: dict[str, set[int]] = defaultdict(set)
    for e in events if wanted else ():
        rank = told(e)[0]
        for said, message in wanted.items() if rank is not None else ():
            if rank is not None and message in e.text:
                speakers[said].add(rank)
    return [(said, ranks.pop()) for said, ranks in speakers.items() if len(ranks) == 1]


def _by_the_list(
    codes: Mapping[int, set[int]],
    orphans: Mapping[str, list[Place]],
    spoken: set[int],
    victims: set[int],
) -> dict[Place, int]:
    places = list(dict.fromkeys(chain.from_iterable(orphans.values())))
    if len(orphans) != 1 or not codes:
        return {}
    silent = sorted(rank for rank, seen in codes.items() if seen == {1} and rank not in spoken | victims)
    if len(silent) == len(places):
        return dict(zip(places, silent, strict=True))
    others = codes.keys() - victims
    alone = len(others) == 1 and len(codes) > 1 and not spoken
    rank = silent[0] if len(silent) == 1 else next(iter(others)) if alone else None
    return {} if rank is None else dict.fromkeys(places, rank)


def _ends(events: Sequence[Event], library: Library) -> Mapping[int, set[int]]:
    """The exit codes in the launcher's list; 1 is Python's for an exception, after which mpi4py aborts the job
    for its rank. None where there were several lives."""
    codes: dict[int, set[int]] = defaultdict(set)
    if len({e.attempt for e in events if e.kind == "exit"}) > 1:
        return codes
    for e in events:
        code = number(e.fields.get("exitcode")) if e.kind == "exit" else None
        if code is not None and e.rank is not None:
            codes[e.rank].add(code)
    aborts = library.telling("aborts")
    aborted = {number(e.fields.get("rank")) for e in events if e.pattern in aborts}
    return codes or {rank: {1} for rank in aborted if rank is not None}


def lost(events: Sequence[Event], library: Library) -> set[Place]:
    """Where a line says that a peer has gone."""
    names = {p.id for p in library.patterns.values() if p.category in LOST}
    return {(e.where.source, e.where.line) for e in events if e.pattern in names}


__all__ = ["lost", "owners"]
