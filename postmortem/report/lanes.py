"""The lanes and marks of the timeline picture, thinned to the size of a page.

    time 1795209228.704  sigma 0.004  host node-b  rank 3  severity fatal  pattern kernel-oom-…  text "…"

Events become a `Picture`: lanes (a host, then its ranks), marks (one for each lane, bin and severity), the window of
time that is drawn, and notes on events that are not drawn. 4,096 ranks that did the same become one lane; a culprit
always has its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from postmortem.report import text, view
from postmortem.report.events import SEVERITIES, Place, Row

MAX_LANES = 44
BINS = 300
REACH = 7200.0  # seconds around the decisive line in which errors belong to the same failure
GAP = 2 * 86400.0  # seconds without an event that may be between two parts of one job
FEW = 0.05  # share of all events up to which those beyond such a gap have wrong times
Source = tuple[str, int | None]  # host and rank
Key = tuple[str, ...]  # the property that all events of a lane share
LaneKey = Callable[[str, int | None], Key]
Span = tuple[float, float]


class Mark(NamedTuple):
    """The worst and earliest event of a bin, and the number of others in it."""

    row: Row
    more: int
    decisive: bool


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of the picture. `state` is the state of its ranks; a host's own lane has the events of no rank."""

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
    """`start` and `end` bound the window, `whole` the job. `zero` is the decisive moment, `slack` its uncertainty."""

    lanes: tuple[Lane, ...]
    start: float
    end: float
    whole: Span
    zero: float | None
    slack: float
    events: int
    notes: tuple[str, ...]


def picture(document: view.Document, rows: Iterable[Row]) -> Picture | None:
    """Choose the lanes and the window; return None for fewer than two moments: a dot is no picture."""
    first, _ = decisive(document)
    every = owned(document, rows)
    timed, outside = inside(document, [row for row in every if math.isfinite(row.time)])
    if all(row.time == timed[0].time for row in timed):
        return None
    zero, (start, end), whole = frame(document, timed)
    shown = [row for row in timed if start <= row.time <= end]
    members: dict[Source, list[Row]] = {}
    for row in shown:
        members.setdefault((row.host, row.rank), []).append(row)
    named, shared = _lane_keys(document, members)
    lanes = _lanes(document, members, named, end - start, first)
    undrawn = len(lanes) - MAX_LANES
    unplaced = sum(not math.isfinite(row.time) for row in every)
    notes = [
        shared,
        f"{undrawn} lanes without anything worse than these are not drawn." if undrawn > 0 else "",
        outside,
        f"{text.plural(unplaced, 'event')} could not be placed in time." if unplaced else "",
        f"The window contains {len(shown):,} of {len(timed):,} events of a job of {text.seconds(whole[1] - whole[0])}."
        if len(timed) > len(shown)
        else "",
    ]
    return Picture(
        lanes=tuple(_worst(lanes)),
        start=start,
        end=end,
        whole=whole,
        zero=zero,
        slack=slack(document),
        events=len(shown),
        notes=tuple(filter(None, notes)),
    )


# ── the axis ────────────────────────────────────────────────────────────────────────────────────────────────────


def inside(document: view.Document, timed: list[Row]) -> tuple[list[Row], str]:
    """Return the events of the job's own time, and a sentence on the others: a line of 2019 in a job of 2026 would
    make the job a dot at the end of its axis."""
    times = sorted(row.time for row in timed)
    if not times or times[-1] - times[0] <= GAP:
        return timed, ""
    zero = frame(document, timed)[0]
    cuts = [place for place in range(1, len(times)) if times[place] - times[place - 1] > GAP]
    parts = [times[a:b] for a, b in zip([0, *cuts], [*cuts, len(times)], strict=True)]
    most, few = max(map(len, parts)), max(3, FEW * len(times))
    own = [
        part
        for part in parts
        if len(part) == most or len(part) > few or (zero is not None and part[0] <= zero <= part[-1])
    ]
    start, end = own[0][0], own[-1][-1]
    outside = sorted((row for row in timed if not start <= row.time <= end), key=_earlier)
    return [row for row in timed if start <= row.time <= end], _outside(outside)


def _outside(rows: list[Row]) -> str:
    if not rows:
        return ""
    listed = "; ".join(
        f"{text.day(row.time)} {text.clock(row.time, 0)} UTC, {text.line(row.address, 120)}".strip() for row in rows[:3]
    )
    more = f"; and {len(rows) - 3:,} more" if len(rows) > 3 else ""
    lie = "lies" if len(rows) == 1 else "lie"
    return f"{text.plural(len(rows), 'event')} {lie} days outside of the job and not on this axis: {listed}{more}."


def slack(document: view.Document) -> float:
    """Return the uncertainty of the decisive moment in seconds."""
    evidence = view.rows(view.part(document, "verdict").get("evidence"))
    return text.finite(evidence[0].get("uncertainty_s")) if evidence else 0.0


def frame(document: view.Document, timed: Sequence[Row]) -> tuple[float | None, Span, Span]:
    """Return the decisive moment, the window to show first, and the whole job."""
    times = [row.time for row in timed]
    whole = (min(times), max(times))
    verdict = view.part(document, "verdict")
    cited = [text.epoch(item.get("time")) for item in view.rows(verdict.get("evidence"))]
    zero = cited[0] if cited and verdict.get("outcome") != "healthy" else None
    return zero, _window(timed, whole, zero, [moment for moment in cited if moment is not None]), whole


def _window(timed: Sequence[Row], whole: Span, zero: float | None, cited: list[float]) -> Span:
    """Return the whole job, or the time around the failure if that would be a dot in it."""
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


def owned(document: view.Document, rows: Iterable[Row]) -> list[Row]:
    """Return the rows with the rank of the decisive line, and with the host of a rank where a line of it names none."""
    rows = list(rows)
    first, culprit = decisive(document)
    hosts: dict[int | None, set[str]] = {}
    for row in rows:
        if row.host:
            hosts.setdefault(row.rank, set()).add(row.host)
    one = {rank: found.pop() for rank, found in hosts.items() if rank is not None and len(found) == 1}
    rows = [row._replace(rank=culprit) if row.rank is None and row.place == first else row for row in rows]
    return [row if row.host or row.rank not in one else row._replace(host=one[row.rank]) for row in rows]


def decisive(document: view.Document) -> tuple[Place, int | None]:
    """Return the place of the decisive line, and its rank: a kernel line names a pid, the verdict its rank."""
    verdict = view.part(document, "verdict")
    evidence = view.rows(verdict.get("evidence"))
    ranks = view.numbers(view.part(verdict, "culprit").get("ranks"))
    if not evidence or verdict.get("outcome") == "healthy":
        return ("", None), None
    place = (view.known(evidence[0].get("source")), view.whole(evidence[0].get("line")))
    return place, ranks[0] if len(ranks) == 1 and evidence[0].get("rank") in (None, ranks[0]) else None


# ── lanes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _lane_keys(document: view.Document, sources: Iterable[Source]) -> tuple[LaneKey, str]:
    """Return a function for the lane of a host and a rank, and a note: every rank alone if that fits, else ranks of
    identical behavior together, by host or over all hosts."""
    found = view.part(view.part(document, "verdict"), "culprit")
    culprits = {rank for rank in found.get("ranks") or [] if isinstance(rank, int)}
    group = {rank: f"{item.get('state')} {item.get('group')}" for rank, item in view.by_rank(document)}

    def alone(host: str, rank: int | None) -> Key:
        return (host, "" if rank is None else f"{rank}")

    def by_host(host: str, rank: int | None) -> Key:
        return alone(host, rank) if rank is None or rank in culprits else (host, "group", group.get(rank, ""))

    def over_all(host: str, rank: int | None) -> Key:
        if rank is None:
            return ("", "")
        return alone(host, rank) if rank in culprits else ("", "group", group.get(rank, ""))

    if len({alone(*source) for source in sources}) <= MAX_LANES:
        return alone, ""
    if len({by_host(*source) for source in sources}) <= MAX_LANES:
        return by_host, "Ranks of one host that behaved alike share a lane."
    return over_all, "Ranks that behaved alike share a lane."


def _lanes(
    document: view.Document, found: Mapping[Source, list[Row]], named: LaneKey, span: float, decisive: Place
) -> list[Lane]:
    """Return the lanes by host; the host's own lane first, its ranks by number."""
    state = {rank: str(item.get("state")) for rank, item in view.by_rank(document)}
    hatched = refused(document)
    members: dict[Key, list[Row]] = {}
    for source, rows in found.items():
        members.setdefault(named(*source), []).extend(rows)
    other = nameless(document, (row for rows in members.values() for row in rows))
    lanes = [_lane(key, rows, state, hatched, _marks(rows, span, decisive), other) for key, rows in members.items()]
    return sorted(lanes, key=_order)


def _order(lane: Lane) -> tuple[str, bool, int, str]:
    digits = "".join(char if char.isdecimal() else " " for char in lane.label).split()
    return (lane.host, not lane.is_host, int(digits[0][:12]) if digits else 0, lane.label)


def _lane(
    key: Key, rows: list[Row], state: Mapping[Any, str], refused: set[str], marks: list[Mark], other: str
) -> Lane:
    ranks = sorted({row.rank for row in rows if row.rank is not None})
    hosts = sorted({row.host for row in rows})
    where = hosts[0] if len(hosts) == 1 else key[0]
    label = text.ranks(ranks, view.SPANS) if ranks else where or ("all hosts" if len(hosts) > 1 else other)
    states = {state.get(rank, "unknown") for rank in ranks}
    return Lane(
        label=label,
        title=f"{label} on {where}" if ranks and where else label,
        host=where,
        state=min(states, key=_oddness) if states else "",
        is_host=not ranks,
        refused=bool(hosts) and all(host in refused for host in hosts),
        marks=tuple(marks),
        first=min(row.time for row in rows),
        last=max(row.time for row in rows),
    )


def nameless(document: view.Document, rows: Iterable[Row]) -> str:
    """Return the label of the events of no rank and no host: the launcher's, where lines of it are among them."""
    agents = {source.get("path") for source in view.rows(document.get("sources")) if source.get("kind") == "agent"}
    own = (row for row in rows if row.rank is None and not row.host)
    return "launcher" if any(r.source in agents or r.pattern.startswith("launcher-") for r in own) else "no rank"


def absent(document: view.Document, rows: Iterable[Row]) -> str:
    """Return one sentence on all ranks of the rank table without an event, which have no lane; empty where none is."""
    left = {rank for rank, _ in view.by_rank(document) if rank is not None} - {row.rank for row in rows}
    return f"No line of {text.ranks(sorted(left), view.SPANS)} is on this timeline." if left else ""


def _oddness(state: str) -> int:
    return view.oddness({"state": state})


def refused(document: view.Document) -> set[str]:
    """Return the hosts with only refused clocks: their events have an order, but no reliable time."""
    clocks = view.rows(document.get("clocks"))
    good = {view.known(clock.get("host")) for clock in clocks if clock.get("state") != "refused"}
    return {view.known(clock.get("host")) for clock in clocks} - good


def _marks(rows: list[Row], span: float, decisive: Place) -> list[Mark]:
    """Return one mark for each bin and severity, and one for the decisive line; the worst last, which is drawn last."""
    width, (source, line) = span / BINS, decisive
    bins: dict[tuple[bool, int, str], list[Row]] = {}
    for row in rows:
        cited = row.severity != "info" and row.line == line and row.source == source
        bins.setdefault((cited, int(row.time / width), row.severity), []).append(row)
    marks = [Mark(_first(found), len(found) - 1, key[0]) for key, found in bins.items()]
    worst = max((mark for mark in marks if mark.decisive), key=lambda m: SEVERITIES.index(m.row.severity), default=None)
    marks = [mark for mark in marks if mark is worst or not mark.decisive]
    return sorted(marks, key=lambda m: (m.decisive, SEVERITIES.index(m.row.severity), *_earlier(m.row)))


def _earlier(row: Row) -> tuple[float, str]:
    return row.time, row.address


def _first(rows: list[Row]) -> Row:
    start = min(row.time for row in rows)
    return min((row for row in rows if row.time == start), key=lambda row: row.address)


def _worst(lanes: list[Lane]) -> list[Lane]:
    """Return the lanes that matter most, in their old order."""
    if len(lanes) <= MAX_LANES:
        return lanes

    def rank(lane: Lane) -> tuple[int, int]:
        worst = max((SEVERITIES.index(mark.row.severity) for mark in lane.marks), default=0)
        return _oddness(lane.state), -worst

    chosen = {id(lane) for lane in sorted(lanes, key=rank)[:MAX_LANES]}
    return [lane for lane in lanes if id(lane) in chosen]
