"""The events of an incident -> the data block of the page:
columns, compressed, read by reports/scripts/src/data.js.

    node-b rank 3  12.5731 s  error  "step 812: loss nan"  b/rank3.log:4410
    -> lane 7, +14 ms, shape 5 ("step \\0: loss nan", error), source 9, line +1, step +1

100,000 rows as JSON objects are 7.8 MB, as columns with templates and arguments some 0.4 MB. Lines of a job
differ in few places, so a text is a template and its numbers. Events lie lane by lane (host, then rank) and
by time within a lane. The block is base64 of gzip of: length of the header (4 bytes, little endian), header
as JSON, columns as LEB128 varints.
"""

from __future__ import annotations

import base64
import gzip
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from postmortem.report import json as plain
from postmortem.report import lanes, phrases, text, view
from postmortem.report.events import SEVERITIES, Place, Row
from postmortem.report.phrases import signed, varint

MAX_EVENTS = 100_000
LANE = 1.5  # events' worth of bytes that a lane takes: 16,000 ranks leave room for fewer
MAX_TEXT = 400
# stamps are milliseconds at best, kernel stamps microseconds; finer than this no clock of a cluster agrees
UNIT = 1e-4
VERSION = 1
LaneKey = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class Block:
    """What goes into the page: the block itself, and in words what was left out of it."""

    data: str
    events: int
    notes: tuple[str, ...]


def block(document: view.Document, rows: Iterable[Row], limit: int = MAX_EVENTS) -> Block | None:
    """Pack all events that have a time; None where there are fewer than two."""
    decisive, culprit = lanes.decisive(document)
    timed = [
        row._replace(rank=culprit) if row.rank is None and row.place == decisive else row
        for row in rows
        if math.isfinite(row.time)
    ]
    timed, note = lanes.inside(document, timed)
    if all(row.time == timed[0].time for row in timed):
        return None
    timed = once(timed)
    limit -= int(LANE * len({(row.host, row.rank) for row in timed}))
    kept, notes = thinned(timed, limit, set(_cited(document)))
    by_lane: dict[LaneKey, list[Row]] = {}
    for row in kept:
        by_lane.setdefault((row.host, row.rank), []).append(row)
    order = sorted(by_lane, key=_place)
    events = [row for key in order for row in sorted(by_lane[key], key=lambda r: (r.time, r.address))]
    head, parts = _encoded(document, [(key, len(by_lane[key])) for key in order], events)
    head["total"] = len(timed)
    head["columns"] = [[name, len(part)] for name, part in parts.items()]
    told = plain.dump(head).encode()
    packed = gzip.compress(len(told).to_bytes(4, "little") + told + b"".join(parts.values()), 9, mtime=0)
    packed = packed[:9] + b"\x03" + packed[10:]  # the system that packed it: Python 3.13 names it, others do not
    return Block(base64.b64encode(packed).decode(), len(events), tuple(filter(None, [note, *notes])))


def _cited(document: view.Document) -> dict[Place, int]:
    """The lines of the evidence, with their first number in it."""
    cited: dict[Place, int] = {}
    for index, item in enumerate(view.rows(view.part(document, "verdict").get("evidence"))):
        cited.setdefault((view.known(item.get("source")), view.whole(item.get("line"))), index)
    return cited


def _place(key: LaneKey) -> tuple[tuple[tuple[int, str], ...], int]:
    """Hosts by name with numbers by value; a host's own lane first, then its ranks."""
    host, rank = key
    return _by_value(host), -1 if rank is None else rank


@lru_cache(maxsize=1 << 14)
def _by_value(host: str) -> tuple[tuple[int, str], ...]:
    return tuple(
        (int(bit[:15]), "") if bit.isdecimal() and bit.isascii() else (-1, bit) for bit in re.split(r"([0-9]+)", host)
    )


def once(rows: Iterable[Row]) -> list[Row]:
    """One event for each line and lane, the worst reading of it:
    a line may be an exception, an exit and a pattern at once."""
    best: dict[tuple[str, int | None, str, int | None, str], Row] = {}
    for row in rows:
        key = (row.host, row.rank, row.source, row.line, row.text)
        other = best.setdefault(key, row)
        if other is not row:
            worse = row if _badness(row) >= _badness(other) else other
            exit = "exit" in (row.kind, other.kind) and worse.kind != "exit"
            best[key] = worse._replace(kind="exit") if exit else worse
    return list(best.values())


def _badness(row: Row) -> tuple[int, str]:
    return SEVERITIES.index(row.severity), row.pattern


# ── thinning ────────────────────────────────────────────────────────────────────────────────────────────────


def thinned(rows: list[Row], limit: int, cited: Set[Place]) -> tuple[list[Row], list[str]]:
    """At most about `limit` events: the worst first, and what is cited;
    of the rest the first of each rank in equal parts of the job."""
    if len(rows) <= limit:
        return rows, []
    files = {source for source, _ in cited}
    kept: list[Row] = []
    others: dict[str, list[Row]] = {severity: [] for severity in reversed(SEVERITIES)}
    for row in rows:
        (kept if row.source in files and row.place in cited else others[row.severity]).append(row)
    del kept[limit:]
    room, said = limit - len(kept), []
    for severity, those in others.items():
        if len(those) > room:
            start = min(row.time for row in those)
            width = (max(row.time for row in those) - start) / max(
                1, room // len({(row.host, row.rank) for row in those})
            )
            chosen = _first_of_each(those, start, width)
            said.append(
                f"of {_named(severity)}, the first of each rank in each {text.seconds(width)} "
                f"({len(chosen):,} of {len(those):,})"
            )
            those = chosen
        kept += those
        room = max(0, room - len(those))
    return kept, [
        (
            f"The interactive timeline holds {len(kept):,} of {len(rows):,} events: all that is worse, "
            f"and {'; '.join(said)}."
        )
    ]


def _named(severity: str) -> str:
    return "lines that are no warning and no error" if severity == "info" else f"{severity} lines"


def _first_of_each(rows: Iterable[Row], start: float, width: float) -> list[Row]:
    first: dict[tuple[str, int | None, int], Row] = {}
    for row in rows:
        key = (row.host, row.rank, int((row.time - start) / width) if width else 0)
        known = first.setdefault(key, row)
        if row.time < known.time or row.time == known.time and row.address < known.address:
            first[key] = row
    return list(first.values())


# ── encoding ────────────────────────────────────────────────────────────────────────────────────────────────


class _Table:
    """Values by number, in the order in which they were first seen."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def values(self) -> list[Any]:
        return list(self.numbers)


def _encoded(
    document: view.Document, counts: Sequence[tuple[LaneKey, int]], events: Sequence[Row]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    base = min(row.time for row in events)
    kinds = {view.known(item.get("path")): view.known(item.get("kind")) for item in view.rows(document.get("sources"))}
    patterns, shapes, sigmas, sources, families = (_Table() for _ in range(5))
    said = phrases.pack(
        [text.line(row.text or row.pattern, MAX_TEXT) for row in events], [count for _, count in counts]
    )

    def shape(key: tuple[int, str, str]) -> int:
        which, severity, pattern = key
        return shapes((which, SEVERITIES.index(severity), patterns(text.visible(pattern))))

    def source(path: str) -> int:
        return sources((text.line(path, 300), families(text.visible(kinds.get(path) or "other"))))

    columns = {
        "time": _stepped([round((row.time - base) / UNIT) for row in events], counts, varint),
        "line": _stepped([row.line or 0 for row in events], counts, signed),
        "shape": _numbered(
            [(which, row.severity, row.pattern) for which, row in zip(said.which, events, strict=True)], shape
        ),
        "source": _numbered([row.source for row in events], source),
        "sigma": _numbered([row.sigma for row in events], lambda sigma: sigmas(float(f"{sigma:.2g}"))),
    }
    head = {
        "version": VERSION,
        "unit": UNIT,
        "base": base,
        "count": len(events),
        "templates": said.templates,
        "patterns": patterns.values(),
        "shapes": shapes.values(),
        "sigmas": sigmas.values(),
        "sources": sources.values(),
        "families": families.values(),
        **_lanes(document, counts),
        **_moments(document, events, base),
    }
    return head, columns | said.streams


def _stepped(values: Sequence[int], counts: Sequence[tuple[LaneKey, int]], coded: Callable[[int], bytes]) -> bytes:
    """Lane by lane the differences from value to value."""
    out, place = [], 0
    for _, count in counts:
        own = values[place : place + count]
        out += [coded(value - before) for before, value in zip([0, *own], own, strict=False)]
        place += count
    return b"".join(out)


def _numbered(values: Sequence[Any], number: Callable[[Any], int]) -> bytes:
    """For each value its number; few are different."""
    told = {value: varint(number(value)) for value in dict.fromkeys(values)}
    return b"".join([told[value] for value in values])


def _lanes(document: view.Document, counts: Sequence[tuple[LaneKey, int]]) -> dict[str, Any]:
    state = {item.get("rank"): str(item.get("state")) for item in view.rows(document.get("ranks"))}
    refused = lanes.refused(document)
    hosts = _Table()
    found = [
        [hosts(text.line(host, 120)), rank, _state(state, rank), int(host in refused), count]
        for (host, rank), count in counts
    ]
    return {"lanes": found, "hosts": hosts.values()}


def _state(states: Mapping[Any, str], rank: int | None) -> str:
    state = "" if rank is None else states.get(rank, "unknown")
    return state if state in view.STATES or not state else "unknown"


def _moments(document: view.Document, events: Sequence[Row], base: float) -> dict[str, Any]:
    """Where to jump, what to show first, and which events stand in the evidence of the page."""
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
    """The first thing out of the ordinary:
    the earliest finding that is no mere context, else the earliest error."""
    found = [
        item for item in view.rows(document.get("findings")) if item.get("role") in ("cause", "symptom", "confirms")
    ]
    names = Counter(view.known(item.get("pattern")) for item in found)
    seen = [place for place, row in enumerate(events) if row.pattern in names and row.severity != "info"]
    bad = seen or [place for place, row in enumerate(events) if row.severity in ("error", "fatal")]
    return min(bad, key=lambda place: (events[place].time, place), default=None)


def _teardown(events: Sequence[Row], zero: float | None) -> int | None:
    """Where the launcher begins to clear away:
    the first exit after the decisive line; else the last error."""
    if zero is None:
        return None
    exits = [place for place, row in enumerate(events) if row.kind == "exit" and row.time >= zero]
    if exits:
        return min(exits, key=lambda place: (events[place].time, place))
    bad = [place for place, row in enumerate(events) if row.severity in ("error", "fatal")]
    return max(bad, key=lambda place: (events[place].time, place), default=None)
