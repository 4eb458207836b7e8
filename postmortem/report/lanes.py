"""The events of an incident -> lanes and marks of the timeline picture, thinned to what a page can hold.

In goes the timeline, one row per event:

    time 1795209228.704  sigma 0.004  host node-b  rank 3  severity fatal  pattern kernel-oom-…  text "…"

or, where a report is made from a document alone, the events that its evidence speaks of. Out comes a
`Picture`: lanes (host, then its ranks), marks (one per lane, bin and severity), the window of time that is
drawn, and notes that say what is not drawn. 4,096 ranks that did the same become one lane; a rank to blame
always keeps its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from postmortem.report import text, view
from postmortem.report.events import SEVERITIES, Place, Row

MAX_LANES = 44
BINS = 300
_PREFIX = re.compile(r"^(\s*\[[^\]]*\]:?)*\s*")
_DIGITS = re.compile(r"0x[0-9a-fA-F]+|\d+")
REACH = 7200.0  # seconds around the decisive line in which errors belong to the same failure
GAP = 2 * 86400.0  # seconds without an event that may lie between two parts of one job
FEW = 0.05  # of all events: so many behind such a gap are stray stamps, not a part of the job
SHARED = "Ranks that behaved alike share a lane."
Key = tuple[str, ...]  # what events must share to stand in one lane
Name = Callable[[str, int | None], Key]


class Mark(NamedTuple):
    """What is drawn: the worst and earliest event of a bin, and how many more it stands for."""

    row: Row
    more: int
    decisive: bool


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of the picture. `state` is the ranks' state in the verdict;
    host lanes hold the events of no rank."""

    label: str
    title: str
    host: str
    state: str
    is_host: bool
    refused: bool
    marks: tuple[Mark, ...]
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that is drawn. `start` and `end` bound the window, `whole` the job;
    `zero` is the decisive moment, `slack` how far off it may be."""

    lanes: tuple[Lane, ...]
    start: float
    end: float
    whole: tuple[float, float]
    overview: tuple[tuple[float, str], ...]
    zero: float | None
    slack: float
    events: int
    notes: tuple[str, ...]


def picture(document: view.Document, rows: Iterable[Row]) -> Picture | None:
    """Choose the lanes and the window; None where fewer than two events have a time: a dot is no picture."""
    first, culprit = decisive(document)
    every = [
        row._replace(rank=culprit) if row.rank is None and row.place == first and row.severity != "info" else row
        for row in rows
    ]
    timed, note = inside(document, [row for row in every if math.isfinite(row.time)])
    if all(row.time == timed[0].time for row in timed):
        return None
    zero, (start, end), whole = frame(document, timed)
    shown = [row for row in timed if start <= row.time <= end]
    members: dict[tuple[str, int | None], list[Row]] = {}
    for row in shown:
        members.setdefault((row.host, row.rank), []).append(row)
    name, notes = _naming(document, members)
    lanes = _lanes(document, members, name, end - start, first)
    if len(lanes) > MAX_LANES:
        notes.append(f"{len(lanes) - MAX_LANES} lanes without anything worse than these are not drawn.")
        lanes = _worst(lanes, MAX_LANES)
    lost = sum(not math.isfinite(row.time) for row in every)
    notes += [note] if note else []
    if lost:
        notes.append(f"{text.plural(lost, 'event')} could not be placed in time.")
    if len(timed) > len(shown):
        notes.append(
            f"The window holds {len(shown):,} of {len(timed):,} events; the strip above shows where it lies in the job."
        )
    overview = _overview(timed, whole)
    return Picture(tuple(lanes), start, end, whole, overview, zero, slack(document), len(shown), tuple(notes))


def inside(document: view.Document, timed: list[Row]) -> tuple[list[Row], str]:
    """The events of the job's own time, and in words which lie outside of it: a line of 2019 in a job of 2026
    would leave the job a dot at the end of its axis."""
    times = sorted(row.time for row in timed)
    if not times or times[-1] - times[0] <= GAP:
        return timed, ""
    zero = frame(document, timed)[0]
    cuts = [place for place in range(1, len(times)) if times[place] - times[place - 1] > GAP]
    parts = [times[a:b] for a, b in zip([0, *cuts], [*cuts, len(times)], strict=True)]
    most = max(map(len, parts))
    kept = [
        part
        for part in parts
        if len(part) == most
        or len(part) > max(3, FEW * len(times))
        or (zero is not None and part[0] <= zero <= part[-1])
    ]
    start, end = kept[0][0], kept[-1][-1]
    out = [row for row in timed if not start <= row.time <= end]
    return [row for row in timed if start <= row.time <= end], _outside(out)


def _outside(rows: list[Row]) -> str:
    if not rows:
        return ""
    named = sorted(rows, key=lambda row: (row.time, row.address))[:3]
    told = "; ".join(
        f"{text.day(row.time)} {text.clock(row.time, 0)} UTC, {text.line(row.address, 120)}".strip() for row in named
    )
    more = f"; and {len(rows) - len(named):,} more" if len(rows) > len(named) else ""
    lie = "lies" if len(rows) == 1 else "lie"
    return f"{text.plural(len(rows), 'event')} {lie} days outside of the job and not on this axis: {told}{more}."


def slack(document: view.Document) -> float:
    """How far off the decisive moment may be."""
    first = next(iter(view.rows(view.part(document, "verdict").get("evidence"))), {})
    sigma = first.get("uncertainty_s")
    return float(sigma) if isinstance(sigma, int | float) and math.isfinite(sigma) else 0.0


def frame(
    document: view.Document, timed: Sequence[Row]
) -> tuple[float | None, tuple[float, float], tuple[float, float]]:
    """The decisive moment, the window to show first, and the whole job."""
    times = [row.time for row in timed]
    whole = (min(times), max(times))
    verdict = view.part(document, "verdict")
    cited = [text.epoch(item.get("time")) for item in view.rows(verdict.get("evidence"))]
    zero = cited[0] if cited and verdict.get("outcome") != "healthy" else None
    return zero, _window(timed, whole, zero, [moment for moment in cited if moment is not None]), whole


def decisive(document: view.Document) -> tuple[Place, int | None]:
    """The place of the decisive line, and the one rank it speaks of:
    a kernel line names a pid, the verdict its rank."""
    verdict = view.part(document, "verdict")
    evidence = view.rows(verdict.get("evidence"))
    ranks = [rank for rank in view.part(verdict, "culprit").get("ranks") or [] if isinstance(rank, int)]
    if not evidence or verdict.get("outcome") == "healthy":
        return ("", None), None
    place = (view.known(evidence[0].get("source")), view.whole(evidence[0].get("line")))
    return place, ranks[0] if len(ranks) == 1 and evidence[0].get("rank") in (None, ranks[0]) else None


def _window(
    timed: Sequence[Row], whole: tuple[float, float], zero: float | None, cited: list[float]
) -> tuple[float, float]:
    """The whole job, or the failure with its surroundings where the job was so long that
    the failure would be a dot."""
    start, end = whole
    if zero is not None:
        bad = [row.time for row in timed if row.severity in ("fatal", "error")] + cited
        near = [moment for moment in bad if abs(moment - zero) <= REACH]
        first, last = min(near), max(near)
        pad = max((last - first) * 0.4, 2.0)
        if (last - first + 2 * pad) < 0.4 * (end - start):
            start, end = max(start, first - pad), min(end, last + pad)
    pad = max((end - start) * 0.02, 0.05)
    return start - pad, end + pad


def _naming(document: view.Document, keys: Iterable[tuple[str, int | None]]) -> tuple[Name, list[str]]:
    """How to name lanes: every rank alone if that fits,
    else ranks of identical behaviour together, per host or over all."""
    found = view.part(view.part(document, "verdict"), "culprit")
    alone = {rank for rank in found.get("ranks") or [] if isinstance(rank, int)}
    group = {item.get("rank"): f"{item.get('state')} {item.get('group')}" for item in view.rows(document.get("ranks"))}

    def each(host: str, rank: int | None) -> Key:
        return (host, "" if rank is None else f"{rank}")

    def by_host(host: str, rank: int | None) -> Key:
        return each(host, rank) if rank is None or rank in alone else (host, "group", group.get(rank, ""))

    def over_all(host: str, rank: int | None) -> Key:
        return (
            each(host, rank) if rank in alone else ("", "group", group.get(rank, "")) if rank is not None else ("", "")
        )

    for name, note in ((each, ""), (by_host, "Ranks of one host that behaved alike share a lane."), (over_all, SHARED)):
        if len({name(*key) for key in keys}) <= MAX_LANES:
            return name, [note] if note else []
    return over_all, [SHARED]


def _lanes(
    document: view.Document, found: Mapping[tuple[str, int | None], list[Row]], name: Name, span: float, decisive: Place
) -> list[Lane]:
    state = {item.get("rank"): str(item.get("state")) for item in view.rows(document.get("ranks"))}
    hatched = refused(document)
    members: dict[Key, list[Row]] = {}
    for (host, rank), rows in found.items():
        members.setdefault(name(host, rank), []).extend(rows)
    lanes = [_lane(key, rows, state, hatched, _marks(rows, span, decisive)) for key, rows in members.items()]
    return sorted(lanes, key=_place)


def _place(lane: Lane) -> tuple[str, bool, int, str]:
    """Host by host; the host's own lane first, its ranks by number."""
    digits = "".join(char if char.isdecimal() else " " for char in lane.label).split()
    return (lane.host, not lane.is_host, int(digits[0][:12]) if digits else 0, lane.label)


def _lane(key: Key, rows: list[Row], state: Mapping[Any, str], refused: set[str], marks: list[Mark]) -> Lane:
    ranks = sorted({row.rank for row in rows if row.rank is not None})
    hosts = sorted({row.host for row in rows})
    where = hosts[0] if len(hosts) == 1 else "" if not key[0] else key[0]
    if not ranks:
        label = where or ("all hosts" if len(hosts) > 1 else "no rank")
    else:
        label = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {text.ranges(ranks, view.SPANS)}"
    states = {state.get(rank, "unknown") for rank in ranks}
    return Lane(
        label=label,
        title=f"{label} on {where}" if ranks and where else label,
        host=where,
        state=min(states, key=lambda s: view.STATES.index(s) if s in view.STATES else 2) if states else "",
        is_host=not ranks,
        refused=bool(hosts) and all(host in refused for host in hosts),
        marks=tuple(marks),
        first=min(row.time for row in rows),
        last=max(row.time for row in rows),
    )


def refused(document: view.Document) -> set[str]:
    """Hosts whose every clock was refused: their events have an order, but no trustworthy place."""
    clocks = view.rows(document.get("clocks"))
    good = {view.known(clock.get("host")) for clock in clocks if clock.get("state") != "refused"}
    return {view.known(clock.get("host")) for clock in clocks} - good


def _marks(rows: list[Row], span: float, decisive: Place) -> list[Mark]:
    """One mark per bin and severity, the decisive line one of its own;
    the worst last, so that nothing is drawn over it."""
    width, (source, line) = span / BINS, decisive
    bins: dict[tuple[bool, int, str], list[Row]] = {}
    for row in rows:
        cited = row.severity != "info" and row.line == line and row.source == source
        bins.setdefault((cited, int(row.time / width), row.severity), []).append(row)
    marks = [Mark(_first(found), len(found) - 1, key[0]) for key, found in bins.items()]
    if any(mark.decisive for mark in marks):
        worst = max((mark for mark in marks if mark.decisive), key=lambda m: SEVERITIES.index(m.row.severity))
        marks = [mark for mark in marks if mark is worst or not mark.decisive]
    return sorted(marks, key=lambda m: (m.decisive, SEVERITIES.index(m.row.severity), m.row.time, m.row.address))


def _first(rows: list[Row]) -> Row:
    if len(rows) == 1:
        return rows[0]
    start = min(row.time for row in rows)
    return min((row for row in rows if row.time == start), key=lambda r: r.address)


def _worst(lanes: list[Lane], limit: int) -> list[Lane]:
    """The lanes that matter most, in their old order."""

    def rank(lane: Lane) -> tuple[int, int]:
        worst = max((SEVERITIES.index(mark.row.severity) for mark in lane.marks), default=0)
        return (view.STATES.index(lane.state) if lane.state in view.STATES else 2, -worst)

    kept = {id(lane) for lane in sorted(lanes, key=rank)[:limit]}
    return [lane for lane in lanes if id(lane) in kept]


def _overview(timed: list[Row], whole: tuple[float, float]) -> tuple[tuple[float, str], ...]:
    """The worst severity in each hundredth or so of the job: (share of its length, severity)."""
    start, length = whole[0], max(whole[1] - whole[0], 1e-6)
    worst: dict[int, str] = {}
    for severity in SEVERITIES:
        shares = {(row.time - start) / length for row in timed if row.severity == severity}
        worst |= dict.fromkeys((min(int(share * BINS), BINS - 1) for share in shares), severity)
    return tuple((place / BINS, severity) for place, severity in sorted(worst.items()))


class Moment(NamedTuple):
    """The first time something was seen, in words: the picture for those who cannot see it."""

    time: float
    when: str
    who: str
    what: str
    address: str
    severity: str
    others: int


def moments(rows: Iterable[Row], limit: int = 10) -> list[Moment]:
    """The first of each kind of warning and error, by time, with the number of ranks that said the same."""
    first: dict[str, Row] = {}
    said: dict[tuple[str, str], set[tuple[str, int | None]]] = {}
    for row in _one_per_line(rows):
        key = row.pattern or _PREFIX.sub("", row.text)[:40]
        known = first.setdefault(key, row)
        if row.time < known.time or row.time == known.time and row.address < known.address:
            first[key] = row
        said.setdefault((key, _words(row)), set()).add((row.host if row.rank is None else "", row.rank))
    chosen = sorted(first.items(), key=lambda kv: (-SEVERITIES.index(kv[1].severity), kv[1].time, kv[1].address))[
        :limit
    ]
    return [
        _moment(row, len(said[key, _words(row)]) - 1)
        for key, row in sorted(chosen, key=lambda kv: (kv[1].time, kv[1].address))
    ]


def _words(row: Row) -> str:
    """What a line says beside its numbers: others said the same only where the words are the same."""
    return _DIGITS.sub("#", _PREFIX.sub("", row.text))[:80]


def _one_per_line(rows: Iterable[Row]) -> list[Row]:
    """The worst reading of each line that is more than plain:
    a line may be an exception and a pattern at once."""
    best: dict[Place, Row] = {}
    for row in rows:
        if row.severity != "info" and math.isfinite(row.time):
            place = (row.source, row.line)
            other = best.setdefault(place, row)
            if (SEVERITIES.index(row.severity), row.pattern) > (SEVERITIES.index(other.severity), other.pattern):
                best[place] = row
    return list(best.values())


def _moment(row: Row, others: int) -> Moment:
    who = view.entity({"rank": row.rank, "host": row.host or None}) or "unknown"
    return Moment(
        row.time, text.mark(row.time, row.sigma), who, row.text or row.pattern, row.address, row.severity, others
    )
