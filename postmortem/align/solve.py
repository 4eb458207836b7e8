"""Marks of many clocks -> offset, drift and uncertainty of each clock, relative to their consensus.

A mark is one reading: clock c saw event k at t. The model is `t = u + o_c + d_c (u - origin) + noise`: u is
when the event happened, o the clock's offset at the origin, d its drift. Noise is one-sided, heavy-tailed (a
line is logged late, never early) and has outliers, so medians come first (coarse offsets over the graph of
common events, then a median polish with robust drifts), then iteratively reweighted least squares with
Student's t, where every clock has a scale of its own.

Only differences between clocks are visible here: constant lateness of one host looks like its offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from postmortem.align.bends import Bends, bends, grid

Array = Any  # numpy.ndarray; numpy's own types are not part of the check

DRIFT_PRIOR = 50e-6  # one standard deviation of a quartz in a server, generously
DRIFT_MAX = 200e-6
DRIFT_FROM = 6  # events below which a drift is not looked for
NU = 2.0  # degrees of freedom of Student's t
ROUNDS = 16
FITTED = 1.6  # how much smaller than their noise residuals may look


@dataclass
class Marks:
    """Readings as columns. `noise` is the prior error of a reading (resolution,
    kind of event), one sd in seconds."""

    clock: Array
    event: Array
    time: Array
    noise: Array
    clocks: int
    events: int


@dataclass
class Fit:
    """One entry per clock. At instant u the correction is `offset + drift * (u - origin)` and the bends, its
    variance `var + (u - origin - centre)² var_drift`. `component` numbers clocks that are connected by common
    events, -1 where there are none."""

    origin: float
    offset: Array
    drift: Array
    centre: Array
    var: Array
    var_drift: Array
    scale: Array
    used: Array
    component: Array
    moment: Array  # of each event
    residual: Array  # of each mark
    weight: Array  # of each mark, 0..1.5: Student's factor
    bends: Bends | None  # of runs in which rates change


def group_median(values: Array, group: Array, groups: int) -> Array:
    """Median of each group; NaN where a group is empty."""
    order = np.argsort(values)
    order = order[together(group[order], groups)]
    counts = np.bincount(group, minlength=groups)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    found = np.full(groups, np.nan)
    full = counts > 0
    low, high = starts + (counts - 1) // 2, starts + counts // 2
    ordered = values[order]
    # which of two zeros comes first, the machine decides
    found[full] = 0.5 * (ordered[low[full]] + ordered[high[full]]) + 0.0
    return found


def together(group: Array, groups: int) -> Array:
    """The order that brings groups together and changes nothing else.
    Short integers are sorted digit by digit, ten times as fast."""
    return np.argsort(group.astype(np.uint16) if groups <= 1 << 16 else group, kind="stable")


def in_time(marks: Marks, moment: Array) -> Array:
    """The order of marks by clock, and by the moments of their events in each."""
    levels, level = np.unique(moment, return_inverse=True)
    order = together(level[marks.event], len(levels))
    return order[together(marks.clock[order], marks.clocks)]


def solve(marks: Marks, prior_drift: Array | None = None, prior_sd: Array | None = None) -> Fit:
    """Fit all clocks. `prior_drift` and `prior_sd` per clock:
    prior knowledge of drifts (segments of one clock share it)."""
    origin = float(np.median(marks.time)) if len(marks.time) else 0.0
    t = marks.time - origin
    offset, moment, component = _coarse(marks, t)
    drift = np.zeros(marks.clocks) if prior_drift is None else prior_drift.copy()
    offset, drift, moment = _polish(marks, t, offset, drift, moment, component)
    fit = _refine(marks, t, offset, drift, moment, prior_drift, prior_sd)
    fit.component = component
    fit.origin = origin
    return fit


def _coarse(marks: Marks, t: Array) -> tuple[Array, Array, Array]:
    """Offsets by medians over common events, breadth first from the clock with most events;
    and which clocks are connected."""
    counts = np.bincount(marks.clock, minlength=marks.clocks)
    offset = np.full(marks.clocks, np.nan)
    moment = np.full(marks.events, np.nan)
    component = np.full(marks.clocks, -1)
    number = 0
    while True:
        waiting = np.isnan(offset) & (counts > 0)
        if not waiting.any():
            return np.nan_to_num(offset), np.nan_to_num(moment), component
        first = int(np.argmax(np.where(waiting, counts, -1)))
        offset[first], component[first] = 0.0, number
        own = marks.clock == first
        moment[marks.event[own]] = t[own]
        while True:
            new = np.isnan(offset[marks.clock]) & ~np.isnan(moment[marks.event])
            if not new.any():
                break
            common = np.bincount(marks.clock[new], minlength=marks.clocks)
            placed = common >= min(3, int(common.max()))
            take = new & placed[marks.clock]
            found = group_median(t[take] - moment[marks.event[take]], marks.clock[take], marks.clocks)
            offset[placed], component[placed] = found[placed], number
            known = placed[marks.clock] & np.isnan(moment[marks.event])
            if known.any():
                here = group_median(t[known] - offset[marks.clock[known]], marks.event[known], marks.events)
                moment = np.where(np.isnan(moment), here, moment)
        number += 1


def _polish(
    marks: Marks, t: Array, offset: Array, drift: Array, moment: Array, component: Array, rounds: int = 4
) -> tuple[Array, Array, Array]:
    """Two-way medians: events from clocks, clocks from events,
    each clock with a slope that a step or outliers cannot bend."""
    for _ in range(rounds):
        x = moment[marks.event]
        moment = group_median(t - offset[marks.clock] - drift[marks.clock] * x, marks.event, marks.events)
        y, x = t - moment[marks.event], moment[marks.event]
        drift = _slopes(marks, x, y, drift, in_time(marks, moment))
        offset = np.nan_to_num(group_median(y - drift[marks.clock] * x, marks.clock, marks.clocks))
    return offset, drift, moment


def _slopes(marks: Marks, x: Array, y: Array, before: Array, order: Array) -> Array:
    """Median slope between events a sixth of the clock's events apart:
    a step lies inside few of these pairs."""
    c, x, y = marks.clock[order], x[order], y[order]
    counts = np.bincount(c, minlength=marks.clocks)
    lag = np.maximum(1, counts // 6)[c]
    there = np.arange(len(c)) + lag
    inside = there < len(c)
    inside[inside] = c[there[inside]] == c[inside]
    i, j = np.flatnonzero(inside), there[inside]
    dx = x[j] - x[i]
    use = dx > 1e-6
    i, j, dx = i[use], j[use], dx[use]
    slope = np.nan_to_num(group_median((y[j] - y[i]) / dx, c[i], marks.clocks)) if len(i) else np.zeros(marks.clocks)
    span = np.zeros(marks.clocks)
    np.maximum.at(span, c[i], dx)
    enough = (counts >= DRIFT_FROM) & (span > 60)
    return np.where(enough, np.clip(slope, -DRIFT_MAX, DRIFT_MAX), before)


def _refine(
    marks: Marks,
    t: Array,
    offset: Array,
    drift: Array,
    moment: Array,
    prior_drift: Array | None,
    prior_sd: Array | None,
) -> Fit:
    """Reweighted least squares, clocks and events in turn."""
    n, c, k = marks.clocks, marks.clock, marks.event
    d0 = np.zeros(n) if prior_drift is None else prior_drift
    sd = np.full(n, DRIFT_PRIOR) if prior_sd is None else prior_sd
    shares = np.bincount(k, minlength=marks.events)[k]
    lever = np.sqrt(np.maximum(1 - 1 / np.maximum(shares, 1), 0.25))
    by_event = together(c, n)
    by_event = by_event[together(k[by_event], marks.events)]
    scale = np.zeros(n)
    knots, bent = grid(moment), None
    for i in range(ROUNDS):
        x = moment[k]
        y = t - x - (bent.of(c, x) if bent else 0.0)
        r = (y - offset[c] - drift[c] * x) / lever
        if i % 4 == 0 or i == ROUNDS - 1:
            scale = _scales(marks, r, lever, by_event)
        spread = scale[c] ** 2 + marks.noise**2
        factor = (NU + 1) / (NU + r * r / spread)
        w = factor / spread
        total = np.maximum(np.bincount(c, w, n), 1e-12)
        xm, ym = np.bincount(c, w * x, n) / total, np.bincount(c, w * y, n) / total
        dx = x - xm[c]
        sxx = np.bincount(c, w * dx * dx, n)
        drift = (np.bincount(c, w * dx * (y - ym[c]), n) + d0 / sd**2) / (sxx + 1 / sd**2)
        offset = ym - drift * xm
        weights = np.maximum(np.bincount(k, w, marks.events), 1e-300)
        moment = np.bincount(k, w * (y + x - offset[c] - drift[c] * x), marks.events) / weights
        if knots is not None and i % 3 == 2:
            bent = bends(knots, c, x, t - x - offset[c] - drift[c] * x, w, n)
    x = moment[k]
    residual = t - x - offset[c] - drift[c] * x - (bent.of(c, x) if bent else 0.0)
    return Fit(
        origin=0.0,
        offset=offset,
        drift=drift,
        centre=xm,
        var=1 / total,
        var_drift=1 / (sxx + 1 / sd**2),
        scale=scale,
        used=np.bincount(c, minlength=n),
        component=np.full(n, -1),
        moment=moment,
        residual=residual,
        weight=factor,
        bends=bent,
    )


def _scales(marks: Marks, r: Array, lever: Array, order: Array) -> Array:
    """Spread of each clock's readings beyond their prior error,
    never below the usual spread among the clocks.

    The usual spread is taken from differences between clocks that saw the same event: the events' moments were
    fitted to the very readings, which makes residuals of three or four clocks look smaller than their noise.
    But of two readings one is an outlier twice as often as of one.
    """
    beyond = np.sqrt(np.maximum(r * r - marks.noise**2, 0.0))
    own = 1.4826 * np.nan_to_num(group_median(beyond, marks.clock, marks.clocks))
    event, level = marks.event[order], (r * lever)[order]
    same = event[1:] == event[:-1]
    noise2 = (marks.noise[order][1:] ** 2 + marks.noise[order][:-1] ** 2)[same]
    apart = np.sqrt(np.maximum(np.diff(level)[same] ** 2 - noise2, 0.0) / 2)
    usual = min(1.4826 * float(np.median(apart)), FITTED * 1.4826 * float(np.median(beyond))) if len(apart) else 0.0
    return np.maximum(own, max(usual, 1e-4))
