"""Events of kind `sync` -> the readings that clocks are compared by.

Two ranks print `epoch 0 step 15 loss 2.2822` after the same collective. Which of a form's numbers name the
moment is found by comparing ranks: those that vary inside a rank and agree between ranks; `rank 3`,
`pid 4711` and `12 ms` do not. Ranks of one host read the same clock, so their readings of a moment become
one: the median, which is better than any of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from postmortem.align.owners import ClockId, Owners, without_copies
from postmortem.align.solve import Array, Marks, group_median, together
from postmortem.model import Event

WRITERS = 12  # of a form that are compared to find its key
PER_CLOCK = 300
APART = 1.0  # seconds between ranks of an unnamed host that make them two hosts
AGREE = 0.3  # share of common numbers that makes a column common
BATCH = 50_000  # marks processed together, to fit a processor's cache
ONCE_NOISE = 0.02  # of a line that follows a collective once: the first step of a loop, an init
WORDS = ("epoch", "step", "iter", "iteration", "batch", "update", "global_step")  # a single such line may be a counter


@dataclass(frozen=True)
class Keys:
    """The identity of a line of two writers: each form's number and columns that name a moment, each source's job."""

    columns: Mapping[str, tuple[int, ...]]
    numbers: Mapping[str, int]
    job_of: Mapping[str, int]


@dataclass
class Readings:
    """The marks of all clocks, and the keys to find a line's segment. `kinds` counts marks per form and clock."""

    marks: Marks
    clocks: list[ClockId]
    kinds: list[dict[str, int]]
    hashes: Array  # event -> hash of its key
    bias: float | None  # the usual constant delay between ranks of one host; None where none can be compared
    events: list[list[Event]]  # of each clock
    keys: Keys

    def lines(self, clock: int) -> Iterator[tuple[str, int, int]]:
        """Source, line and hash of the key of each mark of one clock."""
        events = self.events[clock]
        places = [(e.where.source, line) for e in events for line in e.fields["lines"]]
        hashes = _columns(events, [clock] * len(events), self.keys).hash.tolist()
        return ((source, line, key) for (source, line), key in zip(places, hashes, strict=True))


@dataclass
class _Columns:
    """One entry for each mark."""

    hash: Array
    time: Array
    noise: Array
    writer: Array
    form: Array
    clock: Array


def read(events: Iterable[Event], owners: Owners) -> Readings | None:
    """Collect the marks and split unnamed hosts on the way (see `Owners.split`); None where there are none."""
    by_form: dict[Any, list[Event]] = defaultdict(list)
    marked = [e for e in events if e.fields.get("times")]
    for e in marked:
        by_form[e.fields["family"]].append(e)
    found = {form: _key_columns(form, members) for form, members in sorted(by_form.items())}
    columns = {form: chosen for form, chosen in found.items() if chosen is not None}
    usable = [e for e in marked if e.fields["family"] in columns]
    usable = without_copies(usable, owners.job_of)
    keys = Keys(columns, {form: i for i, form in enumerate(columns)}, owners.job_of)
    by_clock = owners.grouped(usable)
    if _split_unnamed(by_clock, owners, keys):
        by_clock = owners.grouped(usable)
    return _collapse(by_clock, keys) if by_clock else None


def _key_columns(form: str, members: Sequence[Event]) -> tuple[int, ...] | None:
    """The columns that name a moment; None for lines that are no counters."""
    if form.startswith("once "):
        return (0,)
    tables = [_table(e) for e in members[:: max(1, len(members) // WRITERS)][:WRITERS]]
    width = min(e.fields["columns"] for e in members)
    same, varying = [], []
    for j in range(1, width):
        own = [set(t[:, j].tolist()) for t in tables]
        if all(len(s) == 1 for s in own):
            if len(set.union(*own)) == 1:
                same.append(j)
        elif len(own) == 1 or (share := _agreement(own)) >= AGREE or (share >= AGREE / 10 and _rising(tables, j)):
            varying.append(j)
    if not varying:
        return (0, *same) if any(word in form.split() for word in WORDS) else None
    chosen: tuple[int, ...] = ()
    for j in [*varying, 0]:
        chosen = (*chosen, j)
        if all(_unique(t, chosen) for t in tables):
            break
    return chosen


def _agreement(sets: Sequence[set[int]]) -> float:
    """How much of the smaller writer's numbers the larger one has too, in the middle of all neighbors."""
    shares = sorted(len(a & b) / max(1, min(len(a), len(b))) for a, b in pairwise(sets))
    return shares[len(shares) // 2]


def _rising(tables: Sequence[Array], column: int) -> bool:
    """Whether the numbers count upwards: where lines were sampled here and there, writers agree in few of them."""
    steps = np.concatenate([np.diff(t[:, column]) for t in tables])
    return len(steps) > 0 and float((steps > 0).mean()) > 0.9


def _unique(table: Array, columns: tuple[int, ...]) -> bool:
    return len(np.unique(table[:, list(columns)], axis=0)) >= 0.98 * len(table)


def _table(e: Event) -> Array:
    return np.frombuffer(e.fields["values"], dtype=np.int64).reshape(-1, e.fields["columns"])


def _columns(events: Sequence[Event], clock: Sequence[int], keys: Keys) -> _Columns:
    """All marks of some events of these clocks, stamps of coarse resolution moved to the middle of their interval."""
    fields = [e.fields for e in events]
    of: Array = np.repeat(np.arange(len(events)), [len(f["times"]) for f in fields])
    number = np.array([keys.numbers[f["family"]] for f in fields])
    writers: dict[tuple[object, ...], int] = {}
    writer = []
    for c, e in zip(clock, events, strict=True):
        own = e.where.source if e.rank is None else None
        key = (c, keys.job_of.get(e.where.source, 0), e.rank, e.fields.get("local_rank"), own)
        writer.append(writers.setdefault(key, len(writers)))
    times = np.frombuffer(b"".join([f["times"] for f in fields]), dtype=np.float64)
    sigma = np.array([e.sigma for e in events])
    once = np.array([ONCE_NOISE if form.startswith("once ") else 0.0 for form in keys.columns])[number]
    return _Columns(
        _hashes(events, number, of, keys),
        times + middle(sigma)[of],
        np.hypot(sigma, once).astype(np.float32)[of],
        np.array(writer)[of],
        number[of],
        np.array(clock)[of],
    )


def _hashes(events: Sequence[Event], number: Array, of: Array, keys: Keys) -> Array:
    """A number for each mark's key. Attempt and job belong to it: a restart counts again from the start."""
    fields = [e.fields for e in events]
    values = np.frombuffer(b"".join([f["values"] for f in fields]), dtype=np.uint64)
    width = np.array([f["columns"] for f in fields])[of]
    start = np.cumsum(width) - width
    seed = (number + 1).astype(np.uint64) * np.uint64(0x9E3779B1)
    attempts = [0 if e.attempt is None else (e.attempt + 1) & 0xFFFFFFFFFFFFFFFF for e in events]
    seed += np.array(attempts, dtype=np.uint64) * np.uint64(0x85EBCA77)
    jobs = [keys.job_of.get(e.where.source, 0) for e in events]
    seed += np.array(jobs, dtype=np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    h = seed[of]
    forms = list(keys.columns.values())
    for columns in set(forms):
        own = np.array([found == columns for found in forms])[number][of]
        x = h[own]
        for j in columns:
            x = (x ^ values[start[own] + j]) * np.uint64(0x9FB21C651E98DF25)
            x ^= x >> np.uint64(29)
        h[own] = x
    return h.view(np.int64)


def middle(sigma: Array) -> Array:
    """The delay of a stamp: loggers cut the fraction off. c10's nine digits are just wrong."""
    return np.where(sigma >= 0.45, 0.0, sigma / 0.6)


def _collapse(by_clock: Mapping[ClockId, list[Event]], keys: Keys) -> Readings:
    """The reading of each clock at each moment: the median of its writers."""
    clocks = sorted(by_clock, key=str)
    events = [by_clock[c] for c in clocks]
    bias: list[float] = []
    parts: list[tuple[Array, ...]] = []
    for first, end in _batches(events):
        members = [e for own in events[first:end] for e in own]
        numbers = [i for i in range(first, end) for _ in events[i]]
        part, delay = _moments(_columns(members, numbers, keys), len(clocks))
        parts.append(part)
        bias.extend(delay)
    rows = (np.concatenate(a) for a in zip(*parts, strict=True))
    joined, kinds, hashes = _joined(len(clocks), list(keys.numbers), *rows)
    spread = 1.4826 * float(np.median(np.abs(bias))) if len(bias) >= 2 else None
    return Readings(joined, clocks, kinds, hashes, spread, events, keys)


def _batches(events: Sequence[Sequence[Event]]) -> Iterator[tuple[int, int]]:
    """Clocks in a row with enough marks together: no numpy call for each clock, nor all marks in memory at once."""
    first = marks = 0
    for i, members in enumerate(events):
        fields = [e.fields for e in members]
        marks += sum([len(f["times"]) for f in fields])
        if marks >= BATCH or i == len(events) - 1:
            yield first, i + 1
            first, marks = i + 1, 0


def _moments(c: _Columns, clocks: int) -> tuple[tuple[Array, ...], list[float]]:
    """Hash, time, noise, clock and form of each clock's moments; and the constant delay of each rank on its host."""
    keys, key = np.unique(c.hash, return_inverse=True)
    order = together(key, len(keys))
    order = order[together(c.clock[order], clocks)]
    new: Array = np.append(True, (np.diff(key[order]) != 0) | (np.diff(c.clock[order]) != 0))
    first = order[new]
    moment: Array = np.empty_like(order)
    moment[order] = np.cumsum(new) - 1
    time = group_median(c.time, moment, len(first))
    # how much later than the median of its host each rank prints, for good. The part that does not average out.
    counts = np.bincount(c.writer)
    clock: Array = np.zeros(len(counts), dtype=np.int64)
    clock[c.writer] = c.clock
    several = np.bincount(clock)[clock] > 1
    found: list[float] = group_median(c.time - time[moment], c.writer, len(counts))[several & (counts >= 8)].tolist()
    return (c.hash[first], time, c.noise[first], c.clock[first], c.form[first]), found


def _joined(
    clocks: int, names: list[str], hashes: Array, times: Array, noise: Array, owner: Array, form: Array
) -> tuple[Marks, list[dict[str, int]], Array]:
    """Marks of at least two clocks, at most PER_CLOCK of each clock: on all clocks the same ones, and its last ones."""
    keys, event, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    keep = counts[event] >= 2
    keep[keep] = _sampled(owner[keep], hashes[keep], times[keep], counts[event[keep]], clocks)
    event, hashes, times, noise, owner, form = (a[keep] for a in (event, hashes, times, noise, owner, form))
    used, event = np.unique(event, return_inverse=True)
    kinds: list[dict[str, int]] = [{} for _ in range(clocks)]
    pairs, amount = np.unique(owner * len(names) + form, return_counts=True) if len(owner) else ((), ())
    for pair, n in zip(pairs, amount, strict=True):
        kinds[int(pair) // len(names)][names[int(pair) % len(names)]] = int(n)
    return Marks(owner, event, times, noise.astype(np.float64), clocks, len(used)), kinds, keys[used]


def _sampled(owner: Array, hashes: Array, times: Array, shared: Array, clocks: int) -> Array:
    """Which marks to keep of clocks that have too many. Those of one clock are adjacent."""
    keep: Array = np.ones(len(owner), dtype=bool)
    counts = np.bincount(owner, minlength=clocks)
    ends = np.cumsum(counts)
    for clock in np.flatnonzero(counts > PER_CLOCK).tolist():
        own = np.arange(ends[clock] - counts[clock], ends[clock])
        last = own[np.argsort(times[own], kind="stable")][-20:]
        lot = own[np.lexsort((hashes[own], -shared[own]))]
        keep[own] = False
        keep[lot[: PER_CLOCK - 20]] = True
        keep[last] = True
    return keep


def _split_unnamed(by_clock: Mapping[ClockId, Sequence[Event]], owners: Owners, keys: Keys) -> bool:
    """Ranks of one unnamed host with common lines more than a second apart belong to several hosts."""
    split = False
    for clock, events in by_clock.items():
        members = [e for e in events if e.rank is not None and clock.host is None]
        ranks = sorted({e.rank for e in members if e.rank is not None})
        groups = _groups(members, ranks, _columns(members, [0] * len(members), keys)) if len(ranks) > 1 else {}
        if max(groups.values(), default=0) > 0:
            owners.split(clock, groups)
            split = True
    return split


def _groups(members: Sequence[Event], ranks: Sequence[int], c: _Columns) -> dict[int | None, int]:
    """Rank -> number of its clock: ranks in the order of their lateness, cut where the gap is wide and steady."""
    place = {r: i for i, r in enumerate(ranks)}
    rank = np.concatenate([np.full(len(e.fields["times"]), place[e.rank]) for e in members if e.rank is not None])
    moments, index, counts = np.unique(c.hash, return_inverse=True, return_counts=True)
    delay = c.time - group_median(c.time, index, len(moments))[index]
    common = counts[index] >= 2
    if not common.any():
        return {}
    level = group_median(delay[common], rank[common], len(ranks))
    spread = group_median(np.abs(delay[common] - level[rank[common]]), rank[common], len(ranks))
    known = [i for i in np.argsort(level, kind="stable").tolist() if not np.isnan(level[i])]
    wide = [level[b] - level[a] > max(APART, 6 * spread[a], 6 * spread[b]) for a, b in pairwise(known)]
    cuts = [0, *(k for k, gap in enumerate(wide, 1) if gap), len(known)]
    parts = sorted((known[a:b] for a, b in pairwise(cuts)), key=min)
    return {ranks[i]: number for number, part in enumerate(parts) for i in part}
