"""One event that stands in several files (a tee, five formats of one dmesg) becomes one, at its best
address."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from postmortem.diagnose.registry import Registry
from postmortem.diagnose.wording import gist
from postmortem.model import Event, Source

Group = list[Event]


def merge(events: Sequence[Event], sources: Mapping[str, Source], registry: Registry) -> list[Event]:
    """Two events are copies if they say the same and come from different files; a line that stands twice in
    one file happened twice. Out: the events in the order in which their files came, and of their lines."""
    ranks = [registry.rank_of(e) for e in events]
    several = _in_several_files(zip(ranks, events, strict=True))
    out = []
    shared = []
    for rank, e in zip(ranks, events, strict=True):
        if rank in several:
            shared.append((rank, e))
        else:
            out.append(e)
    for group in _alike(shared):
        out += _merged(group, sources)
    place = {path: i for i, path in enumerate(dict.fromkeys(e.where.source for e in events))}
    return sorted(out, key=lambda e: (place[e.where.source], e.where.line or 0))


def _in_several_files(ranked: Iterable[tuple[int | None, Event]]) -> set[int | None]:
    """Ranks of which several files speak. All that is known of a rank mostly stands in one: then nothing is
    to merge."""
    home: dict[int | None, str] = {}
    several = set()
    for rank, e in ranked:
        if home.setdefault(rank, e.where.source) != e.where.source or e.fields.get("reported_by"):
            several.add(rank)
    return several


def _alike(ranked: Sequence[tuple[int | None, Event]]) -> Iterable[Group]:
    """Events that say the same of the same rank in the same life."""
    groups: dict[tuple[object, ...], Group] = defaultdict(list)
    lives: dict[tuple[object, ...], set[int]] = defaultdict(set)
    keyed = []
    for rank, e in ranked:
        said = gist(str(e.fields.get("line") or e.text))
        key = (e.kind, e.pattern, said, rank, e.kind == "stack" and e.where)
        keyed.append((key, e))
        if e.attempt is not None:
            lives[key].add(e.attempt)
    for key, e in keyed:
        attempt = e.attempt if e.attempt is not None or len(lives[key]) != 1 else next(iter(lives[key]))
        groups[(*key, attempt)].append(e)
    return groups.values()


def _merged(group: Group, sources: Mapping[str, Source]) -> Group:
    """The first of each file are one event, the second of each, and so on."""
    if len(group) == 1:
        return group
    per_source: dict[object, Group] = defaultdict(list)
    for e in sorted(group, key=lambda e: e.where.line or 0):
        # a launcher log holds a rank's line twice, as tee and as quotation in its summary: that is one event
        per_source[(e.where.source, bool(e.fields.get("reported_by")))].append(e)
    out = []
    for i in range(max(map(len, per_source.values()))):
        out.append(_best([row[i] for row in per_source.values() if i < len(row)], sources))
    return out


def _best(copies: Group, sources: Mapping[str, Source]) -> Event:
    """The copy with the best address, with the time of the copy that knows it best."""
    copies = sorted(copies, key=lambda e: address_quality(e, sources))
    framed = [e for e in copies if e.kind == "recorder" and e.fields.get("code")]  # JSON dumps have no frames
    best = (framed or copies)[0]
    timed = [e for e in copies if e.at is not None]
    if not timed:
        return best
    timing = min(timed, key=lambda e: e.at_sigma)
    if best.at is None or timing.at_sigma < best.at_sigma:
        return best._replace(at=timing.at, at_sigma=timing.at_sigma)
    return best


def address_quality(e: Event, sources: Mapping[str, Source]) -> tuple[int, int, int, str]:
    """Order of addresses for one event's copies: a rank's own file, consoles, the launcher's words,
    documents without lines; of two formats of one log the one with the better stamps. The name decides only
    between equals."""
    source = sources.get(e.where.source)
    own = source is not None and (source.rank is not None or source.local_rank is not None)
    if e.where.line is None:
        quality = 3
    elif e.fields.get("reported_by") or e.fields.get("block"):
        quality = 2
    else:
        quality = 0 if own else 1
    return quality, ("boot", "naive", "absolute", "none").index(e.clock), e.where.line or 0, e.where.source
