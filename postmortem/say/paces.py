"""The pace of each rank by the times that it printed beside its steps, and the ranks that are slower than the others.

    rank 5  forward  0.91 s a step, the median of 8 ranks 0.50 s, since step 400    ->  Straggler(5, "forward", 1.8, …)

In synchronous training every rank waits for the slowest one, so that all print the same time of a whole step: only a
time of the rank's own work (forward, data) shows who is slow, or ranks that do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from postmortem.diagnose.case import Case
from postmortem.model import Event
from postmortem.model.details import ABSENT, BETWEEN

NO_TIME = ("loss", "grad_norm")
RANKS, STEPS = 3, 10  # to compare
RATIO = 1.3  # to the median of all ranks
STEADY = 0.8  # of the steps since it is slow
FEW = 4  # one of so many ranks may be a straggler: half of the ranks are a different task
SURE = 5.0  # standard errors above the others
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Straggler:
    """A rank that needs longer than the others. `since` is the first slow step; None where all are."""

    rank: int
    ratio: float
    seconds: float
    usual: float
    since: int | None
    event: Event


@dataclass(frozen=True)
class Paces:
    """One time that at least three ranks printed for the same steps: a row of `seconds` for each rank, NaN where it
    printed none."""

    name: str
    ranks: tuple[int, ...]
    steps: Array
    seconds: Array
    usual: Array  # the median of the ranks, by step
    stragglers: tuple[Straggler, ...]


def measured(case: Case) -> dict[int, Event]:
    """The event with the longest series of each rank."""
    found: dict[int, Event] = {}
    for e in case.of_kind("progress"):
        rank = case.rank_of(e)
        if rank is not None and (series := e.fields.get("series")):
            before = found.get(rank)
            if before is None or len(before.fields["series"]["steps"]) < len(series["steps"]):
                found[rank] = e
    return found


def of(case: Case) -> Paces | None:
    """The first time by which a rank is a straggler; None where there is none."""
    events = measured(case)
    if len(events) < RANKS:
        return None
    names = dict.fromkeys(name for e in events.values() for name in e.fields["series"]["values"])
    for name in sorted(names.keys() - NO_TIME, key=lambda name: (name == BETWEEN, name)):
        paces = _paces(name, events)
        if paces is not None and paces.stragglers:
            return paces
    return None


def _paces(name: str, events: Mapping[int, Event]) -> Paces | None:
    own = {r: s for r, e in sorted(events.items()) if name in (s := e.fields["series"])["values"]}
    steps: Array = np.unique(np.concatenate([np.asarray(s["steps"]) for s in own.values()])) if own else np.array([])
    seconds = np.full((len(own), len(steps)), np.nan)
    for row, s in zip(seconds, own.values(), strict=True):
        values = np.asarray(s["values"][name])
        row[np.searchsorted(steps, np.asarray(s["steps"]))] = np.where(values == ABSENT, np.nan, values)
    shared = (~np.isnan(seconds)).sum(axis=0) >= max(RANKS, len(own) // 2 + 1)
    steps, seconds = steps[shared], seconds[:, shared]
    if len(steps) < STEPS:
        return None
    usual = np.nanmedian(seconds, axis=0)
    steps, seconds, usual = steps[usual > 0], seconds[:, usual > 0], usual[usual > 0]
    ranks = tuple(own)
    rows = zip(ranks, seconds, strict=True)
    slow = [found for rank, row in rows if (found := _slow(rank, steps, row, usual, events[rank]))]
    few = len(slow) <= max(1, len(own) // FEW) and _resolved(seconds, slow)
    slow.sort(key=lambda s: -s.ratio)
    return Paces(name, ranks, steps, seconds, usual, tuple(slow) if few else ())


def _slow(rank: int, steps: Array, row: Array, usual: Array, event: Event) -> Straggler | None:
    """Whether the rank is slower in at least half of its steps, and in nearly all since the first of them."""
    known = ~np.isnan(row)
    ratio = row[known] / usual[known]
    late = ratio >= RATIO
    if len(ratio) < STEPS or late.sum() * 2 < len(ratio):
        return None
    starts = (i for i in range(len(late)) if late[i] and late[i:].mean() >= STEADY)
    first = next(starts, None)
    if first is None or len(ratio) - first < STEPS:
        return None
    logs = np.log(np.maximum(ratio[first:], 1e-3))
    if logs.mean() < SURE * max(float(logs.std()), 1e-6) / len(logs) ** 0.5:
        return None
    own, others = (float(np.median(values[known][first:])) for values in (row, usual))
    since = steps[known].tolist()[first] if late[:first].size > 1 else None
    return Straggler(rank, float(np.median(ratio[first:])), own, others, since, event)


def _resolved(seconds: Array, slow: list[Straggler]) -> bool:
    """Whether the times are printed finely enough: 0.1 and 0.2 may be 0.14 and 0.16."""
    values = np.unique(seconds[~np.isnan(seconds)])
    apart = np.diff(values)
    unit = float(apart[apart > 1e-9].min(initial=np.inf))
    return all(s.seconds - s.usual >= 2 * unit for s in slow)
