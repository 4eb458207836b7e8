"""A clock that was set during the job -> one clock per piece, each with its own offset.

    02:59:58 step 811   03:00:01 step 812   02:30:04 step 813    chrony's makestep, a suspended host
    01:59:58 step 811   03:00:01 step 812                        daylight saving time: the zone's 3,600 s

The residuals of the fit are on two levels, one before and one after the moment of the step.
Single outliers lie on none, a line that is stamped late by the collector neither.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np

from postmortem.align.solve import LONG, SPACING, Array, Fit, Marks, group_median, in_time, solve

LEAST = 0.05  # seconds: smaller steps are noise
SIDE = 2  # marks on each side: two outliers next to each other do not agree
SEGMENTS = 6
INLINE = 0.6  # of the marks on either side of a cut
FEWEST = 12  # marks of a stretch of a long run
TURNED = 0.1  # seconds that a rate which changes may make in six hours
SHARED_SD = 5e-6  # a step leaves the drift as it was


@dataclass
class Segmented:
    """The final fit. `parent` has for each clock of the fit the clock of which it is a piece, in the order of time."""

    fit: Fit
    marks: Marks
    parent: Array


def solve_with_steps(marks: Marks) -> Segmented:
    """Fit, cut the clocks with residuals on two levels, and fit again, until no clock has to be cut."""
    parent: Array = np.arange(marks.clocks)
    fit = solve(marks)
    slopes: dict[int, float] = {}
    for _ in range(SEGMENTS):
        cuts = _cuts(marks, fit, parent)
        if not cuts:
            break
        few = marks.clocks < 5
        for clock, (indices, slope, _) in sorted(cuts.items(), key=lambda item: (-item[1][2], item[0])):
            # give the marks behind a step a clock of their own
            owner = marks.clock.copy()
            owner[indices] = marks.clocks
            cut = Marks(owner, marks.event, marks.time, marks.noise, marks.clocks + 1, marks.events)
            marks, parent = cut, np.append(parent, parent[clock])
            slopes[int(parent[clock])] = slope
            if few:  # of two clocks each sees the other's step: take the clearest, then look again
                break
        prior = np.array([slopes.get(int(p), 0.0) for p in parent])
        sd = np.array([SHARED_SD if int(p) in slopes else 50e-6 for p in parent])
        fit = solve(marks, prior, sd)
    return Segmented(fit, marks, parent)


def _cuts(marks: Marks, fit: Fit, parent: Array) -> dict[int, tuple[Array, float, int]]:
    """Clock -> the marks behind the step, the drift, how many marks the cut brings into line."""
    usual = _usual(marks, fit)
    far = np.abs(fit.residual) > np.maximum(LEAST, np.maximum(8 * usual, 4 * marks.noise))
    suspects = np.flatnonzero((np.bincount(marks.clock[far], minlength=marks.clocks) >= SIDE) & (fit.used >= 2 * SIDE))
    pieces = np.bincount(parent, minlength=marks.clocks)
    found = {}
    t = marks.time - fit.origin
    order = np.argsort(marks.clock, kind="stable")
    bounds: Array = np.searchsorted(marks.clock[order], np.arange(marks.clocks + 1))
    for clock in suspects.tolist():
        if pieces[parent[clock]] >= SEGMENTS:
            continue
        own = order[bounds[clock] : bounds[clock + 1]]
        own = own[np.argsort(fit.moment[marks.event[own]], kind="stable")]
        if not _in_a_row(far[own]):
            continue
        x = fit.moment[marks.event[own]]
        tolerance = max(LEAST / 2 if np.ptp(x) <= LONG else TURNED, 4 * usual, 3 * float(np.median(marks.noise[own])))
        y = t[own] - x
        cuts = [
            (start, cut) for start, end in _stretches(x) if (cut := _best_cut(x[start:end], y[start:end], tolerance))
        ]
        if cuts:
            start, (at, slope, gain) = max(cuts, key=lambda found: found[1][2])
            found[clock] = (own[start + at :], slope, gain)
    return found


def _stretches(x: Array) -> list[tuple[int, int]]:
    """The parts of a clock's marks with a constant rate: all of them, or overlapping ones of a long run."""
    n = len(x)
    if np.ptp(x) <= LONG:
        return [(0, n)]
    edges = np.arange(x[0], x[-1], SPACING / 2)
    starts: Array = np.searchsorted(x, edges)
    ends: Array = np.searchsorted(x, edges + SPACING)
    bounds = zip(starts.tolist(), ends.tolist(), strict=True)
    return sorted({(min(a, max(n - FEWEST, 0)), min(max(b, a + FEWEST), n)) for a, b in bounds})


def _in_a_row(far: Array) -> bool:
    """Whether three of four neighbors are off, or the first or last two; single outliers do not count."""
    return bool(far[:2].all() or far[-2:].all() or np.convolve(far, np.ones(4)).max() >= 3)


def _usual(marks: Marks, fit: Fit) -> float:
    """The usual spread among the clocks. One clock's spread is no measure while it may have a step in it; the
    differences between neighbouring marks do, and where there are two clocks both are bent by the step of one."""
    order = in_time(marks, fit.moment)
    clock, r = marks.clock[order], fit.residual[order]
    inside = clock[1:] == clock[:-1]
    apart = group_median(np.abs(np.diff(r))[inside], clock[1:][inside], marks.clocks)
    local = np.fmin(fit.scale, 1.4826 * apart / 2**0.5)
    live = local[fit.used > 0]
    return max(float(np.nanquantile(live, 0.25)), 1e-4) if len(live) else 1e-3


def _best_cut(x: Array, y: Array, tolerance: float) -> tuple[int, float, int] | None:
    """Where to cut one clock's offsets so that most come into line; None if no cut is good enough."""
    n = len(x)
    slope = _lagged_slope(x, y)
    z = y - slope * x
    whole = int((np.abs(z - np.median(z)) <= tolerance).sum())
    left, right = _inliers(z, tolerance), _inliers(z[::-1], tolerance)[::-1]
    best = max(range(SIDE, n - SIDE + 1), key=lambda i: (left[i][0] + right[i][0], -i), default=None)
    if best is None:
        return None
    best = _sharpened(z, best, left[best][1], right[best][1])
    (a, ma), (b, mb) = left[best], right[best]
    gain = a + b - whole
    good = a >= max(SIDE, INLINE * best) and b >= max(SIDE, INLINE * (n - best)) and abs(ma - mb) > 2 * tolerance
    return (best, slope, gain) if good and gain >= max(SIDE, 0.05 * n) else None


def _lagged_slope(x: Array, y: Array) -> float:
    lag = max(1, len(x) // 6)
    dx = x[lag:] - x[:-lag]
    use = dx > 1e-6
    if use.sum() < 4 or np.ptp(x) < 60:
        return 0.0
    return float(np.clip(np.median((y[lag:] - y[:-lag])[use] / dx[use]), -200e-6, 200e-6))


def _inliers(z: Array, tolerance: float) -> list[tuple[int, float]]:
    """For every prefix of z (at most 400 values): how many lie near its median, and the median."""
    found: list[tuple[int, float]] = [(0, 0.0)]
    ordered: list[float] = []
    for value in z.tolist():
        bisect.insort(ordered, value)
        middle = ordered[(len(ordered) - 1) // 2]
        near = bisect.bisect_right(ordered, middle + tolerance) - bisect.bisect_left(ordered, middle - tolerance)
        found.append((near, middle))
    return found


def _sharpened(z: Array, cut: int, before: float, behind: float) -> int:
    """Move the cut over marks that lie nearer to the other side's level."""
    while cut > 0 and abs(z[cut - 1] - behind) < abs(z[cut - 1] - before):
        cut -= 1
    while cut < len(z) and abs(z[cut] - before) < abs(z[cut] - behind):
        cut += 1
    return cut
