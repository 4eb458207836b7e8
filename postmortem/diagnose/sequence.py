"""The order of a job's events for the diagnosis: by the kind and content of their files, then by line.

Where a step takes the first of several lines, the names of files and the order of reading must not decide.
"""

from __future__ import annotations

from collections.abc import Sequence

from postmortem.model import Event, Source


def stable_order(events: Sequence[Event], sources: Sequence[Source]) -> tuple[list[Event], list[Source]]:
    """Events and sources in their order. The path decides only between files that are alike in all else."""
    opening: dict[str, tuple[int, str]] = {}
    for e in events:
        line = (e.line, e.text)
        opening[e.where.source] = min(line, opening.get(e.where.source, line))

    def order(s: Source) -> tuple[object, ...]:
        numbers = (-1 if n is None else n for n in (s.attempt, s.rank, s.local_rank))
        return s.kind, *numbers, s.host or "", s.stream or "", s.size, opening.get(s.path, (0, "")), s.path

    files = sorted(sources, key=order)
    place = {s.path: i for i, s in enumerate(files)}
    ordered = sorted(events, key=lambda e: (place[e.where.source], e.line, e.kind, e.pattern or ""))
    return ordered, files
