"""One event that stands in several files (a tee, five formats of one dmesg) becomes one, at its best
address; and its line has one time in all of them, the best that any file tells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from postmortem.align.place import Line, Moment, refilled
from postmortem.diagnose.identity import Registry
from postmortem.formats.lineform import gist
from postmortem.model import Event, Source

Group = list[Event]


class Merged(NamedTuple):
    """Each event once, in the order in which their files came, and of their lines; and the lines whose time
    another file knows better, or that stand between such lines."""

    events: list[Event]
    times: Mapping[Line, Moment]


def merge(events: Sequence[Event], sources: Mapping[str, Source], registry: Registry) -> Merged:
    """Two events are copies if they say the same and come from different files; a line that stands twice in
    one file happened twice."""
    ranks = [registry.rank_of(e) for e in events]
    several = _in_several_files(zip(ranks, events, strict=True))
    out = []
    shared = []
    for rank, e in zip(ranks, events, strict=True):
        if rank in several:
            shared.append((rank, e))
        else:
            out.append(e)
    same = [row for group in _alike(shared) for row in _rows(group)]
    times = _times(events, same)
    out += [_best(row, sources) for row in same]
    place = {path: i for i, path in enumerate(dict.fromkeys(e.where.source for e in events))}
    out.sort(key=lambda e: (place[e.where.source], e.where.line or 0))
    return Merged([timed(e, times) for e in out] if times else out, times)


def timed(e: Event, times: Mapping[Line, Moment]) -> Event:
    """The event with the time of its line, where `times` has it."""
    found = times.get((e.where.source, e.where.line))
    return e if found is None else e._replace(at=found[0], at_sigma=found[1])


def _times(events: Sequence[Event], same: Iterable[Group]) -> dict[Line, Moment]:
    """What copies tell of each other's time, and so of the lines around them."""
    told: dict[Line, Moment] = {}
    for copies in same:
        known = [(e.at_sigma, e.at) for e in copies if e.at is not None]
        error, moment = min(known, default=(0.0, 0.0))  # of equal errors the earlier, whatever the files' names
        for e in copies if known else ():
            if e.at is None or error < e.at_sigma:
                told[e.where.source, e.where.line] = moment, error
    files = {source for source, _ in told}
    return refilled([e for e in events if e.where.source in files], told) if told else {}


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


def _rows(group: Group) -> list[Group]:
    """The first of each file are one event, the second of each, and so on."""
    if len(group) == 1:
        return [group]
    per_source: dict[object, Group] = defaultdict(list)
    for e in sorted(group, key=lambda e: e.where.line or 0):
        # a launcher log holds a rank's line twice, as tee and as quotation in its summary: that is one event
        per_source[(e.where.source, bool(e.fields.get("reported_by")))].append(e)
    most = max(map(len, per_source.values()))
    return [[row[i] for row in per_source.values() if i < len(row)] for i in range(most)]


def _best(copies: Group, sources: Mapping[str, Source]) -> Event:
    """The copy with the best address."""
    copies = sorted(copies, key=lambda e: address_quality(e, sources))
    framed = [e for e in copies if e.kind == "recorder" and e.fields.get("code")]  # JSON dumps have no frames
    return (framed or copies)[0]


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
