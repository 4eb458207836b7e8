"""The events of an incident as the data block of the page: compressed columns, read by reports/scripts/src/data.js.

    node-b rank 3  12.5731 s  error  "step 812: loss nan"  b/rank3.log:4410
    -> lane 7, +14 ms, shape 5 ("step \\0: loss nan", error), source 9, line +1, number 812

100,000 rows as JSON objects are 7.8 MB, as columns some 0.5 MB. Lines of a job differ in few places, so a text is a
template and its numbers, and the numbers of one place are a column: most count on, which gzip uses. Events are sorted
by lane (host, then rank), then by time. The block is base64 of gzip of JSON.
"""

from __future__ import annotations

import base64
import gzip
import math
import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from postmortem.report import json as plain
from postmortem.report import lanes, text, view
from postmortem.report.events import SEVERITIES, Place, Row

MAX_EVENTS = 100_000
LANE = 1.5  # events' worth of bytes that a lane takes: 16,000 ranks leave room for fewer
MAX_TEXT = 400
UNIT = 1e-4  # seconds; clocks of a cluster agree no better, and times are milliseconds or microseconds
_NUMBER = re.compile(r"(0x[0-9a-f]+|\d+)", re.ASCII)
LaneKey = tuple[str, int | None]  # host and rank


@dataclass(frozen=True, slots=True)
class Block:
    """The block for the page, and sentences on the events that are not in it."""

    data: str
    events: int
    notes: tuple[str, ...]


def block(document: view.Document, rows: Iterable[Row], limit: int = MAX_EVENTS) -> Block | None:
    """Pack all events with a time; return None for fewer than two moments."""
    timed, note = lanes.inside(document, [row for row in lanes.owned(document, rows) if math.isfinite(row.time)])
    if all(row.time == timed[0].time for row in timed):
        return None
    timed = once(timed)
    limit -= int(LANE * len({(row.host, row.rank) for row in timed}))
    shown, notes = thinned(timed, limit, set(_cited(document)))
    by_lane: dict[LaneKey, list[Row]] = {}
    for row in shown:
        by_lane.setdefault((row.host, row.rank), []).append(row)
    # hosts by name with numbers by value; a host's own lane first, then its ranks
    order = sorted(by_lane, key=lambda key: (_by_value(key[0]), -1 if key[1] is None else key[1]))
    events = [row for key in order for row in sorted(by_lane[key], key=lambda r: (r.time, r.address))]
    found = _encoded(document, [(key, len(by_lane[key])) for key in order], events)
    packed = gzip.compress(plain.dump(found, order=False).encode(), 9, mtime=0)
    packed = packed[:9] + b"\x03" + packed[10:]  # the system that packed it: Python 3.13 names it, others do not
    notes = [note, lanes.absent(document, timed), *notes]
    return Block(base64.b64encode(packed).decode(), len(events), tuple(filter(None, notes)))


def _cited(document: view.Document) -> dict[Place, int]:
    """Return the lines of the evidence, each with its first number in it."""
    cited: dict[Place, int] = {}
    for index, item in enumerate(view.rows(view.part(document, "verdict").get("evidence"))):
        cited.setdefault((view.known(item.get("source")), view.whole(item.get("line"))), index)
    return cited


@lru_cache(maxsize=1 << 14)
def _by_value(host: str) -> tuple[tuple[int, str], ...]:
    parts = re.split("([0-9]+)", host)
    return tuple((int(part[:15]), "") if part.isdecimal() and part.isascii() else (-1, part) for part in parts)


def once(rows: Iterable[Row]) -> list[Row]:
    """Return one event for each line and lane, its worst: a line may be an exception, an exit and a pattern at once."""
    best: dict[tuple[str, int | None, str, int | None, str], Row] = {}
    for row in rows:
        key = (row.host, row.rank, row.source, row.line, row.text)
        other = best.setdefault(key, row)
        if other is not row:
            worse = row if row.badness >= other.badness else other
            best[key] = worse._replace(kind="exit") if "exit" in (row.kind, other.kind) else worse
    return list(best.values())


def thinned(rows: list[Row], limit: int, cited: Set[Place]) -> tuple[list[Row], list[str]]:
    """Return about `limit` events, and a note on the others: cited ones and the worst first, of the rest the first of
    each rank in equal parts of the job."""
    if len(rows) <= limit:
        return rows, []
    files = {source for source, _ in cited}
    shown: list[Row] = []
    others: dict[str, list[Row]] = {severity: [] for severity in reversed(SEVERITIES)}
    for row in rows:
        (shown if row.source in files and row.place in cited else others[row.severity]).append(row)
    del shown[limit:]
    room, notes = limit - len(shown), []
    for severity, found in others.items():
        if len(found) > room:
            start = min(row.time for row in found)
            ranks = len({(row.host, row.rank) for row in found})
            width = (max(row.time for row in found) - start) / max(1, room // ranks)
            first: dict[tuple[str, int | None, int], Row] = {}
            for row in found:
                key = (row.host, row.rank, int((row.time - start) / width) if width else 0)
                first[key] = min(first.get(key, row), row, key=lambda r: (r.time, r.address))
            name = "lines that are neither warnings nor errors" if severity == "info" else f"{severity} lines"
            count = f"({len(first):,} of {len(found):,})"
            notes.append(f"of {name}, the first of each rank in each {text.seconds(width)} {count}")
            found = list(first.values())
        shown += found
        room = max(0, room - len(found))
    size = f"{len(shown):,} of {len(rows):,} events"
    return shown, [f"The interactive timeline shows {size}: everything worse, and {'; '.join(notes)}."]


# ── encoding ────────────────────────────────────────────────────────────────────────────────────────────────────


class _Numbers(dict[Any, int]):
    """The number of each value, in the order in which they were first seen."""

    def __missing__(self, value: Any) -> int:
        self[value] = len(self)
        return self[value]


def _encoded(document: view.Document, counts: Sequence[tuple[LaneKey, int]], events: Sequence[Row]) -> dict[str, Any]:
    base = min(row.time for row in events)
    kinds = {view.known(item.get("path")): view.known(item.get("kind")) for item in view.rows(document.get("sources"))}
    templates, patterns, shapes, sigmas, sources, families = (_Numbers() for _ in range(6))
    numbers: list[list[list[str]]] = []  # of each template: the columns of its places

    def shape(row: Row) -> int:
        parts = _NUMBER.split(text.line(row.text or row.pattern, MAX_TEXT))
        template = templates["\0".join(parts[::2])]
        if template == len(numbers):
            numbers.append([[] for _ in parts[1::2]])
        for column, number in zip(numbers[template], parts[1::2], strict=True):
            column.append(number)
        return shapes[template, SEVERITIES.index(row.severity), patterns[text.visible(row.pattern)]]

    @lru_cache(maxsize=1 << 14)
    def source(path: str) -> int:
        return sources[text.line(path, 300), families[text.visible(kinds.get(path) or "other")]]

    columns = {
        "time": _steps([round((row.time - base) / UNIT) for row in events], counts),
        "line": _steps([row.line or 0 for row in events], counts),
        "shape": list(map(shape, events)),
        "source": [source(row.source) for row in events],
        "sigma": [sigmas[float(f"{row.sigma:.2g}")] for row in events],
    }
    return {
        "unit": UNIT,
        "base": base,
        "templates": list(templates),
        "patterns": list(patterns),
        "shapes": list(shapes),
        "sigmas": list(sigmas),
        "sources": list(sources),
        "families": list(families),
        **_lanes(document, counts),
        "nameless": lanes.nameless(document, events),
        **_moments(document, events, base),
        **columns,
        "numbers": [",".join(column) for places in numbers for column in places],
    }


def _steps(values: Sequence[int], counts: Sequence[tuple[LaneKey, int]]) -> list[int]:
    """Return the differences from value to value within each lane."""
    out, place = [], 0
    for _, count in counts:
        own = values[place : place + count]
        out += [value - before for before, value in zip([0, *own], own, strict=False)]
        place += count
    return out


def _lanes(document: view.Document, counts: Sequence[tuple[LaneKey, int]]) -> dict[str, Any]:
    states = {rank: view.STATES[view.oddness(item)] for rank, item in view.by_rank(document)}
    refused = lanes.refused(document)
    hosts = _Numbers()
    found = [
        [
            hosts[text.line(host, 120)],
            rank,
            "" if rank is None else states.get(rank, "unknown"),
            int(host in refused),
            count,
        ]
        for (host, rank), count in counts
    ]
    return {"lanes": found, "hosts": list(hosts)}


def _moments(document: view.Document, events: Sequence[Row], base: float) -> dict[str, Any]:
    """Return the places to jump to, the window to show first, and the events that are evidence on the page."""
    cited = _cited(document)
    proofs = {place: cited[row.place] for place, row in enumerate(events) if row.place in cited}
    zero, (start, end), whole = lanes.frame(document, events)
    decisive = next((place for place, index in proofs.items() if index == 0), None) if zero is not None else None
    return {
        "zero": None if zero is None else zero - base,
        "slack": lanes.slack(document),
        "window": [start - base, end - base],
        "whole": [whole[0] - base, whole[1] - base],
        "proofs": sorted(proofs.items()),
        "jumps": {"first": _first(document, events), "culprit": decisive, "teardown": _teardown(events, zero)},
    }


def _first(document: view.Document, events: Sequence[Row]) -> int | None:
    """Return the earliest finding that is more than context, else the earliest error."""
    roles = ("cause", "symptom", "confirms")
    found = [item for item in view.rows(document.get("findings")) if item.get("role") in roles]
    names = {view.known(item.get("pattern")) for item in found}
    seen = [place for place, row in enumerate(events) if row.pattern in names and row.severity != "info"]
    return min(seen or _errors(events), key=lambda place: (events[place].time, place), default=None)


def _teardown(events: Sequence[Row], zero: float | None) -> int | None:
    """Return the first exit after the decisive line, where the launcher begins to clean up; else the last error."""
    if zero is None:
        return None
    exits = [place for place, row in enumerate(events) if row.kind == "exit" and row.time >= zero]
    if exits:
        return min(exits, key=lambda place: (events[place].time, place))
    return max(_errors(events), key=lambda place: (events[place].time, place), default=None)


def _errors(events: Sequence[Row]) -> list[int]:
    return [place for place, row in enumerate(events) if row.severity in ("error", "fatal")]
