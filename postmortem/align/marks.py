"""Events of kind `sync` -> the readings that clocks are compared by.

Two ranks print `epoch 0 step 15 loss 2.2822` after the same collective. Which of a form's numbers name the moment is found by
comparing ranks: those that vary inside a rank and agree between ranks; `rank 3`, `pid 4711` and `12 ms` do not. Ranks of
one host read the same clock, so their readings of a moment become one: the median, which is better than any of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from postmortem.align.lives import runs, without_copies
from postmortem.align.owners import ClockId, Owners
from postmortem.align.solve import Array, Marks, group_median
from postmortem.model import Event

WRITERS = 12  # of a form that are compared to find its key
PER_CLOCK = 300
APART = 1.0  # seconds between ranks of an unnamed host that make them two hosts
AGREE = 0.3  # share of common numbers that makes a column common
ONCE_NOISE = 0.02  # of a line that follows a collective once: the first step of a loop, an init
WORDS = ("epoch", "step", "iter", "iteration", "batch", "update", "global_step")  # a single such line may be a counter


@dataclass
class Readings:
    """The marks of all clocks, and what is needed to find a line's segment. `kinds` counts marks per form and clock."""

    marks: Marks
    clocks: list[ClockId]
    kinds: list[dict[str, int]]
    keys: Array  # event -> hash of its key
    bias: float | None  # how far ranks of one host lie apart for good, where several ranks of a host can be compared
    events: list[list[Event]]  # of each clock
    columns: Mapping[str, Any]  # of each form: those that name a moment
    numbers: Mapping[str, int]  # of each form
    run_of: Mapping[str, int]  # of each source

    def hashed(self, clock: int) -> Iterator[tuple[Event, Array]]:
        """The packed marks of one clock with the hashes of their keys."""
        for e in self.events[clock]:
            form = str(e.fields["family"])
            yield e, _hashes(e, self.columns[form], self.numbers[form], self.run_of[e.where.source])


@dataclass
class _Columns:
    hash: Array
    time: Array
    noise: Array
    writer: Array
    form: Array


def read(events: Iterable[Event], owners: Owners) -> Readings:
    """Collect the marks, telling apart unnamed hosts on the way (see `Owners.split`)."""
    syncs = [e for e in events if e.kind == "sync" and e.fields.get("times")]
    by_form: dict[str, list[Event]] = defaultdict(list)
    for e in syncs:
        by_form[str(e.fields["family"])].append(e)
    keys = {form: _key_columns(form, members) for form, members in sorted(by_form.items())}
    numbers = {form: i for i, form in enumerate(k for k, columns in keys.items() if columns is not None)}
    usable = [e for e in syncs if str(e.fields["family"]) in numbers]
    run_of = runs(usable)
    usable = without_copies(usable, run_of)
    _split_unnamed(usable, owners, keys, numbers, run_of)
    by_clock: dict[ClockId, list[Event]] = defaultdict(list)
    for e in usable:
        if (clock := owners.of(e)) is not None:
            by_clock[clock].append(e)
    return _collapse(by_clock, keys, numbers, run_of)


def _key_columns(form: str, members: Sequence[Event]) -> tuple[int, ...] | None:
    """The columns that name a moment; None for lines that are no counters."""
    picked = members[:: max(1, len(members) // WRITERS)][:WRITERS]
    tables = [_table(e) for e in picked]
    if form.startswith("once "):
        return (0,)
    width = min(t.shape[1] for t in tables)
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
    """How much of the smaller writer's numbers the larger one has too, in the middle of all pairs of neighbours."""
    shares = sorted(len(a & b) / max(1, min(len(a), len(b))) for a, b in zip(sets, sets[1:], strict=False))
    return shares[len(shares) // 2]


def _rising(tables: Sequence[Array], column: int) -> bool:
    """Whether the numbers count upwards: where lines were sampled here and there, writers agree in few of them."""
    steps = np.concatenate([np.diff(t[:, column]) for t in tables])
    return len(steps) > 0 and float((steps > 0).mean()) > 0.9


def _unique(table: Array, columns: tuple[int, ...]) -> bool:
    rows = {tuple(row) for row in table[:, list(columns)].tolist()}
    return len(rows) >= 0.98 * len(table)


def _table(e: Event) -> Array:
    values: Any = e.fields["values"]
    columns: Any = e.fields["columns"]
    return np.frombuffer(values, dtype=np.int64).reshape(-1, columns)


def _times(e: Event) -> Array:
    times: Any = e.fields["times"]
    return np.frombuffer(times, dtype=np.float64)


def _hashes(e: Event, columns: tuple[int, ...], number: int, run: int) -> Array:
    """A number for each mark's key. Attempt and run belong to it: a restart counts again from the start."""
    table = _table(e).astype(np.uint64)
    seed = (number + 1) * 0x9E3779B1 + (0 if e.attempt is None else e.attempt + 1) * 0x85EBCA77 + run * 0xC2B2AE3D27D4EB4F
    h: Array = np.full(len(table), seed & 0xFFFFFFFFFFFFFFFF, dtype=np.uint64)
    for j in columns:
        h = (h ^ table[:, j]) * np.uint64(0x9FB21C651E98DF25)
        h ^= h >> np.uint64(29)
    return h.astype(np.int64)


def _columns(events: Sequence[Event], keys: Mapping[str, Any], numbers: Mapping[str, int], run_of: Mapping[str, int]) -> _Columns:
    """All marks of some events, stamps of coarse resolution moved to the middle of their interval."""
    hashes: list[Array] = []
    times: list[Array] = []
    noise: list[Array] = []
    writer: list[Array] = []
    form: list[Array] = []
    writers: dict[tuple[object, ...], int] = {}
    for e in events:
        name = str(e.fields["family"])
        number = numbers[name]
        t = _times(e)
        who = writers.setdefault(
            (run_of[e.where.source], e.rank, e.fields.get("local_rank"), None if e.rank is not None else e.where.source), len(writers)
        )
        hashes.append(_hashes(e, keys[name], number, run_of[e.where.source]))
        times.append(t + middle(e.sigma))
        noise.append(np.full(len(t), np.hypot(e.sigma, ONCE_NOISE if name.startswith("once ") else 0.0), dtype=np.float32))
        writer.append(np.full(len(t), who, dtype=np.int32))
        form.append(np.full(len(t), number, dtype=np.int32))
    cat = np.concatenate
    return _Columns(cat(hashes), cat(times), cat(noise), cat(writer), cat(form))


def middle(sigma: float) -> float:
    """Loggers cut the fraction off, so a stamp of one second is half a second early; c10's nine digits are just wrong."""
    return 0.0 if sigma >= 0.45 else sigma / 0.6


def _collapse(
    by_clock: dict[ClockId, list[Event]], keys: Mapping[str, Any], numbers: Mapping[str, int], run_of: Mapping[str, int]
) -> Readings:
    clocks = sorted(by_clock, key=str)
    bias: list[float] = []
    hashes: list[Array] = []
    times: list[Array] = []
    noise: list[Array] = []
    owner: list[Array] = []
    form: list[Array] = []
    for i, clock in enumerate(clocks):
        c = _columns(by_clock[clock], keys, numbers, run_of)
        moments, index = np.unique(c.hash, return_inverse=True)
        middle_of = group_median(c.time, index, len(moments))
        first: Array = np.zeros(len(moments), dtype=np.int64)
        first[index[::-1]] = np.arange(len(index))[::-1]
        bias.extend(_rank_bias(c, index, middle_of))
        hashes.append(moments)
        times.append(middle_of)
        noise.append(c.noise[first])
        form.append(c.form[first])
        owner.append(np.full(len(moments), i, dtype=np.int64))
    if not clocks:
        empty: Array = np.zeros(0)
        return Readings(Marks(empty.astype(int), empty.astype(int), empty, empty, 0, 0), [], [], empty, None, [], keys, numbers, run_of)
    joined, kinds, used = _joined(len(clocks), list(numbers), *(np.concatenate(a) for a in (hashes, times, noise, owner, form)))
    spread = 1.4826 * float(np.median(np.abs(bias))) if len(bias) >= 2 else None
    return Readings(joined, clocks, kinds, used, spread, [by_clock[c] for c in clocks], keys, numbers, run_of)


def _joined(
    clocks: int, names: list[str], hashes: Array, times: Array, noise: Array, owner: Array, form: Array
) -> tuple[Marks, list[dict[str, int]], Array]:
    """Keep what two clocks have seen, at most PER_CLOCK of each clock: on all clocks the same ones, and its last ones."""
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
    """Which marks to keep of clocks that have too many."""
    keep: Array = np.ones(len(owner), dtype=bool)
    counts = np.bincount(owner, minlength=clocks)
    for clock in np.flatnonzero(counts > PER_CLOCK):
        own = np.flatnonzero(owner == clock)
        last = own[np.argsort(times[own], kind="stable")][-20:]
        lot = own[np.lexsort((hashes[own], -shared[own]))]
        keep[own] = False
        keep[lot[: PER_CLOCK - 20]] = True
        keep[last] = True
    return keep


def _rank_bias(c: _Columns, index: Array, middle_of: Array) -> list[float]:
    """How much later than the median of its host each rank prints, for good. The part that does not average out."""
    writers = int(c.writer.max()) + 1 if len(c.writer) else 0
    if writers < 2:
        return []
    found = group_median(c.time - middle_of[index], c.writer, writers)
    counts = np.bincount(c.writer, minlength=writers)
    return [float(f) for f, n in zip(found, counts, strict=True) if n >= 8]


def _split_unnamed(
    events: Sequence[Event], owners: Owners, keys: Mapping[str, Any], numbers: Mapping[str, int], run_of: Mapping[str, int]
) -> None:
    """Ranks of one unnamed host whose common lines lie apart by more than a second belong to several hosts."""
    unnamed: dict[ClockId, list[Event]] = defaultdict(list)
    for e in events:
        clock = owners.of(e)
        if clock is not None and clock.host is None and e.rank is not None:
            unnamed[clock].append(e)
    for clock, members in unnamed.items():
        ranks = sorted({e.rank for e in members if e.rank is not None})
        if len(ranks) < 2:
            continue
        groups = _groups(members, ranks, _columns(members, keys, numbers, run_of))
        if groups and max(groups.values()) > 0:
            owners.split(clock, groups)


def _groups(members: Sequence[Event], ranks: Sequence[int], c: _Columns) -> dict[int | None, int]:
    """Rank -> number of its clock: ranks in the order of their lateness, cut where the gap is wide and steady."""
    place = {r: i for i, r in enumerate(ranks)}
    rank = np.concatenate([np.full(len(_times(e)), place[e.rank]) for e in members if e.rank is not None])
    moments, index, counts = np.unique(c.hash, return_inverse=True, return_counts=True)
    late = c.time - group_median(c.time, index, len(moments))[index]
    common = counts[index] >= 2
    if not common.any():
        return {}
    level = group_median(late[common], rank[common], len(ranks))
    spread = group_median(np.abs(late[common] - level[rank[common]]), rank[common], len(ranks))
    known = [i for i in np.argsort(level, kind="stable").tolist() if not np.isnan(level[i])]
    cuts = [
        k
        for k in range(1, len(known))
        if (gap := level[known[k]] - level[known[k - 1]]) > APART and gap > 6 * max(spread[known[k]], spread[known[k - 1]])
    ]
    parts = [known[a:b] for a, b in zip([0, *cuts], [*cuts, len(known)], strict=True)]
    parts.sort(key=min)
    return {ranks[i]: number for number, part in enumerate(parts) for i in part}
