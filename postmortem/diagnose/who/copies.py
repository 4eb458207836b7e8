"""One event in several files (a tee, five formats of one dmesg) becomes one, at its best address; and its line has one
time in all of them, the best that any file has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from postmortem.align.place import Line, Moment, refilled
from postmortem.diagnose.who.evidence import Registry
from postmortem.formats.lineform import gist
from postmortem.model import Event, Source
from postmortem.model.grouped import grouped

Group = list[Event]


class Merged(NamedTuple):
    """Each event once, in the order in which their files and lines came; and the times of lines that another file
    knows better, or that are between such lines."""

    events: list[Event]
    times: Mapping[Line, Moment]


def merge(events: Sequence[Event], sources: Mapping[str, Source], registry: Registry) -> Merged:
    """Two events are copies if they have the same text, rank and attempt and come from different files; a line that
    is twice in one file happened twice."""
    ranked = [(registry.rank_of(e), e) for e in events]
    several = _in_several_files(ranked)
    out = [e for rank, e in ranked if rank not in several]
    same = [row for group in _alike([(r, e) for r, e in ranked if r in several]) for row in _rows(group)]
    times = _times(events, same)
    out += [_best(row, sources) for row in same]
    place = {path: i for i, path in enumerate(dict.fromkeys(e.where.source for e in events))}
    out.sort(key=lambda e: (place[e.where.source], e.line))
    return Merged([timed(e, times) for e in out] if times else out, times)


def timed(e: Event, times: Mapping[Line, Moment]) -> Event:
    """The event with the time of its line, where `times` has it."""
    found = times.get(e.place)
    return e if found is None else e._replace(at=found[0], at_sigma=found[1])


def _times(events: Sequence[Event], same: Iterable[Group]) -> dict[Line, Moment]:
    """The best time of each group of copies for the others, and so for the lines around them."""
    better: dict[Line, Moment] = {}
    for copies in same:
        known = [(e.at_sigma, e.at) for e in copies if e.at is not None]
        error, at = min(known, default=(0.0, 0.0))  # of equal errors the earlier, whatever the files' names
        for e in copies if known else ():
            if e.at is None or error < e.at_sigma:
                better[e.place] = at, error
    files = {source for source, _ in better}
    return refilled([e for e in events if e.where.source in files], better) if better else {}


def _in_several_files(ranked: Iterable[tuple[int | None, Event]]) -> set[int | None]:
    """Ranks with lines in several files; of most ranks all is in one, and nothing is to merge."""
    home: dict[int | None, str] = {}
    several = set()
    for rank, e in ranked:
        if home.setdefault(rank, e.where.source) != e.where.source or e.fields.get("reported_by"):
            several.add(rank)
    return several


def _alike(ranked: Sequence[tuple[int | None, Event]]) -> Iterable[Group]:
    """Events with the same text of the same rank in the same attempt; one without an attempt joins the only one."""
    keyed = [
        ((e.kind, e.pattern, gist(e.fields.get("line") or e.text), rank, e.kind == "stack" and e.where), e)
        for rank, e in ranked
    ]
    attempts = grouped((key, e.attempt) for key, e in keyed if e.attempt is not None)
    only = {key: found[0] for key, found in attempts.items() if len({*found}) == 1}
    return grouped(((*key, only.get(key) if e.attempt is None else e.attempt), e) for key, e in keyed).values()


def _rows(group: Group) -> Iterator[Group]:
    """The first of each file are one event, the second of each, and so on. A launcher's log holds a rank's line twice,
    as tee and as quotation in its summary: that is one event."""
    ordered = sorted(group, key=lambda e: e.line)
    per_source = grouped(((e.where.source, bool(e.fields.get("reported_by"))), e) for e in ordered)
    for i in range(max(map(len, per_source.values()))):
        yield [row[i] for row in per_source.values() if i < len(row)]


def _best(copies: Group, sources: Mapping[str, Source]) -> Event:
    """The copy with the best address; of recorders' the dump with frames, which JSON lacks."""
    copies = sorted(copies, key=lambda e: address_quality(e, sources))
    return next((e for e in copies if e.kind == "recorder" and e.fields.get("code")), copies[0])


def address_quality(e: Event, sources: Mapping[str, Source]) -> tuple[int, int, int, str]:
    """Order of addresses: a rank's own file, consoles, the launcher's quotations, documents without lines; of two
    formats of one log the one with the better stamps. The name decides only between equals."""
    source = sources.get(e.where.source)
    own = source is not None and (source.rank is not None or source.local_rank is not None)
    quality = 0 if own else 1
    if e.where.line is None:
        quality = 3
    elif e.fields.get("reported_by") or e.fields.get("block"):
        quality = 2
    return quality, ("boot", "naive", "absolute", "none").index(e.clock), e.line, e.where.source
