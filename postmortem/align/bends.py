"""A drift that changes -> a line with a bend every six hours.

    hour 0  +1.2 ppm   hour 8  −3.9 ppm   hour 16  −0.4 ppm   a hall that warms and cools, an NTP daemon

Over six hours one rate is enough, over three days it is a second wrong. All clocks get the same grid of
knots; the error of each at a knot beyond its offset and rate follows from its marks, and from the usual change of
rates: where marks are few, it stays straight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any

LONG = 12 * 3600.0  # runs from which on a rate is not taken as constant
SPACING = 6 * 3600.0
KNOTS = 24
TURN = 4e-6  # one standard deviation of the change of a rate from knot to knot
LOOSE = 10.0  # seconds: offset and rate are found elsewhere, this only keeps the two from being found twice


@dataclass(frozen=True)
class Bends:
    """`extra[clock, knot]` seconds on top of offset and rate, with their variance."""

    at: Array
    extra: Array
    var: Array

    def of(self, clock: Array, x: Array) -> Array:
        """The corrections to subtract from the readings of these clocks at these moments."""
        j, f = _place(self.at, x)
        return self.extra[clock, j] * (1 - f) + self.extra[clock, j + 1] * f


def grid(x: Array) -> Array | None:
    """The knots of a run; None for one that is short."""
    span = float(np.ptp(x)) if len(x) else 0.0
    if span <= LONG:
        return None
    return np.linspace(x.min(), x.max(), min(int(np.ceil(span / SPACING)), KNOTS - 1) + 1)


def bends(at: Array, clock: Array, x: Array, rest: Array, weight: Array, clocks: int) -> Bends:
    """Fit the knots of all clocks to the residuals of offset and rate."""
    n, (j, f) = len(at), _place(at, x)
    square = np.zeros(clocks * n * n)
    side = np.zeros(clocks * n)
    for a, wa in ((j, 1 - f), (j + 1, f)):
        side += np.bincount(clock * n + a, weight * wa * rest, clocks * n)
        for b, wb in ((j, 1 - f), (j + 1, f)):
            square += np.bincount((clock * n + a) * n + b, weight * wa * wb, clocks * n * n)
    second = (np.eye(n)[:-2] - 2 * np.eye(n)[1:-1] + np.eye(n)[2:]) / (at[1] - at[0]) / TURN
    covariance = np.linalg.inv(square.reshape(clocks, n, n) + second.T @ second + np.eye(n) / LOOSE**2)
    extra = np.einsum("cij,cj->ci", covariance, side.reshape(clocks, n))
    between = (TURN * (at[1] - at[0]) / 32) ** 2  # a rate that changes between two knots
    return Bends(at, extra, np.einsum("cii->ci", covariance) + between)


def _place(at: Array, x: Array) -> tuple[Array, Array]:
    """The knot before each moment, and how far behind it as a share;
    beyond the ends the last piece goes on."""
    j = np.clip(np.searchsorted(at, x) - 1, 0, len(at) - 2)
    return j, (x - at[j]) / (at[1] - at[0])
