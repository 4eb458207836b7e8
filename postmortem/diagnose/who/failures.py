"""The rank of a traceback that names none, by the launcher's list and the messages of the other ranks.

ValueError: non-hexadecimal number found in fromhex() arg at position 6      without a prefix
rank      : 6 (local_rank: 6)   exitcode  : 1 (pid: 28747)                   the only one with code 1
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import chain

from postmortem.diagnose.grouped import grouped
from postmortem.formats.lineform import gist
from postmortem.library import Library
from postmortem.model import Event
from postmortem.model.digits import number
from postmortem.model.vocabulary import OF_PEERS

Place = tuple[str, int | None]  # file and line
Told = Callable[[Event], tuple[int | None, object]]
BELOW = range(1, 5)  # how far a line of a message is below the first
UNIQUE = 24  # characters of a message that two ranks do not print by chance


def owners(events: Sequence[Event], told: Told, library: Library) -> Mapping[Place, int]:
    """The ranks of exceptions of unknown rank, by place."""
    gone = lost(events, library)
    waited = {rank for e in events if e.place in gone and (rank := told(e)[0]) is not None}
    orphans: dict[str, list[Place]] = defaultdict(list)
    messages: dict[str, str] = {}
    named: set[int] = set()
    own = _named_below(events, library.telling("raiser"))
    for e in filter(_raised, events):
        place, stated = e.place, told(e)[0]
        rank = own.get(place) if stated is None else stated
        if rank is not None:
            named.add(rank)
        elif place not in gone:
            form = gist(e.fields.get("line") or e.text)
            orphans[form].append(place)
            messages[form] = e.fields.get("message", "").strip()[:400]
    if not orphans:
        return own
    found = _repeated_with_a_rank(events, messages, told)
    left = {form: places for form, places in orphans.items() if form not in found}
    own |= {place: rank for form, rank in found.items() for place in orphans[form]}
    return own | _by_the_list(_exit_codes(events, library), left, (named - waited) | set(found.values()), waited)


def _named_below(events: Sequence[Event], raisers: Set[str]) -> dict[Place, int]:
    """The places above a line of an exception's message that names the rank that raised it."""
    lines = [e for e in events if e.pattern in raisers and "rank" in e.fields]
    return {(e.where.source, e.line - n): e.fields["rank"] for e in lines for n in BELOW}


def _raised(e: Event) -> bool:
    """Whether it was raised here, and is no launcher's indented quotation."""
    quoted = e.fields.get("reported_by") or (e.source_kind == "agent" and e.text.startswith("  "))
    return e.kind == "exception" and not e.fields.get("wrapper") and not quoted


def _repeated_with_a_rank(events: Sequence[Event], messages: Mapping[str, str], told: Told) -> dict[str, int]:
    """The rank that repeats a message under its own name: NCCL's watchdog prints the exception of its process."""
    wanted = {form: message for form, message in messages.items() if len(message) >= UNIQUE}
    repeated = ((form, told(e)[0]) for e in events for form, message in wanted.items() if message in e.text)
    speakers = grouped((form, rank) for form, rank in repeated if rank is not None)
    return {form: ranks[0] for form, ranks in speakers.items() if len({*ranks}) == 1}


def _by_the_list(
    codes: Mapping[int, Sequence[int]], orphans: Mapping[str, list[Place]], named: set[int], victims: set[int]
) -> dict[Place, int]:
    """The ranks that exited with code 1 and raised nothing under their name, if there are as many as places; else the
    only one, or the only one that is no victim. Of several messages the owner is known only in a list of one rank."""
    places = list(dict.fromkeys(chain.from_iterable(orphans.values())))
    if not codes or (len(orphans) != 1 and (len(codes) > 1 or named | victims)):
        return {}
    silent = sorted(rank for rank, seen in codes.items() if {*seen} == {1} and rank not in named | victims)
    if len(silent) == len(places):
        return dict(zip(places, silent, strict=True))
    others = codes.keys() - victims
    alone = len(others) == 1 and len(codes) > 1 and not named
    rank = silent[0] if len(silent) == 1 else next(iter(others)) if alone else None
    return {} if rank is None else dict.fromkeys(places, rank)


def _exit_codes(events: Sequence[Event], library: Library) -> Mapping[int, Sequence[int]]:
    """Exit codes by the launcher's list; 1 for a rank for which mpi4py aborts the job. Empty with several attempts."""
    exits = [e for e in events if e.kind == "exit"]
    if len({e.attempt for e in exits}) > 1:
        return {}
    aborts = library.telling("aborts")
    aborted = [(e.fields.get("rank", number(e.fields.get("ranks"))), 1) for e in events if e.pattern in aborts]
    ended = [(e.rank, code) for e in exits if e.rank is not None and (code := e.fields.get("exitcode")) is not None]
    return grouped((rank, code) for rank, code in ended or aborted if rank is not None)


def lost(events: Sequence[Event], library: Library) -> set[Place]:
    """Where lines report that a peer has gone."""
    names = {p.id for p in library.patterns.values() if p.category in OF_PEERS}
    return {e.place for e in events if e.pattern in names}
