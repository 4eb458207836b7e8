"""The order of two events or claims in time, their distance, and its certainty.

    2.24 s later (± 0.14 s)          which came first is not determined (0.02 s apart, ± 0.14 s)

`relation` is the one rule: the clocks decide beyond a slack, else the lines of one log. Without another slack it is the
margin, twice the joint standard deviation of both times. Where not the order but a distance counts, there is `gap`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from postmortem.align.place import UNSEEN
from postmortem.diagnose.case import moment
from postmortem.diagnose.claim import Claim
from postmortem.model import Event

ONE_REPORT = 3  # lines
BUFFERED_S = 0.05  # two processes of one host may write this late
WHOLE_S = 1.0  # a slack for stamps of whole seconds, as Slurm's and many loggers'
Order = Literal["before", "after", "together", "unknown"]


def margin(a: Event, b: Event) -> float:
    """The distance in seconds from which on the order of two events is certain. On one clock only their stamps count;
    on two hosts each may print late for good."""
    if a.host is not None and b.host is not None and a.host != b.host:
        return 2 * math.hypot(a.at_sigma, b.at_sigma, UNSEEN, UNSEEN)
    same = a.host is not None and a.clock == b.clock != "none"
    return 2 * (math.hypot(a.sigma, b.sigma) if same else math.hypot(a.at_sigma, b.at_sigma)) + BUFFERED_S


def relation(a: Event, b: Event, slack: float | None = None, lines: int = ONE_REPORT) -> Order:
    """Whether `a` came before or after `b`, by more than `slack` seconds (None: the margin), else by more than `lines`
    of one log. Lines of one report came together: the kernel prints `oom-kill:constraint=` right above `Killed process`."""
    apart, x, y = gap(a, b), a.where, b.where
    if apart is not None and abs(apart) > (margin(a, b) if slack is None else slack):
        return "before" if apart > 0 else "after"
    if x.source == y.source and x.line is not None and y.line is not None and abs(y.line - x.line) > lines:
        return "before" if x.line < y.line else "after"
    return "unknown" if apart is None else "together"


def before(a: Claim, b: Claim) -> bool:
    """Whether `a` surely came before `b`, or is above it in the same file where clocks cannot decide."""
    return relation(a.first or a.event, b.first or b.event) == "before"


def surely_before(a: Claim, b: Claim) -> bool:
    """Whether the clocks leave no doubt that `a` came before `b`."""
    x, y = a.first, b.first
    apart = None if x is None or y is None else gap(x, y)
    return x is not None and y is not None and apart is not None and apart > margin(x, y)


def later(root: Claim, claim: Claim) -> str:
    """`0.41 s later (± 0.09 s)`, or by their place in the file."""
    a, b = root.first, claim.first
    if a is None or b is None or not surely_before(root, claim):
        return "later in the file"
    return in_words(a, b)


def elsewhere(root: Claim, claim: Claim) -> str:
    """The distance in time between the root and a claim of another host. Empty where one has no time, and for a
    comparison of ranks, whose lines are its proof and not its time."""
    a, b = root.first, claim.first
    if root.strength in ("compared", "silent") or a is None or b is None:
        return ""
    return "" if a.host is None or b.host is None or a.host == b.host else in_words(a, b)


def first_elsewhere(root: Claim, claims: Iterable[Claim]) -> Claim | None:
    """The earliest of the claims of other hosts."""
    timed = [(e.at, str(c.event.where), c) for c in claims if elsewhere(root, c) and (e := c.first) and e.at]
    return min(timed, key=lambda x: x[:2], default=(0.0, "", None))[2]


def in_words(a: Event, b: Event) -> str:
    """The time from a to b in words; empty where one of them has no time."""
    apart, error = gap(a, b), margin(a, b)
    if apart is None:
        return ""
    if abs(apart) <= error:
        return f"which came first is not determined ({abs(apart):.2f} s apart, ± {error:.2f} s)"
    return f"{abs(apart):.2f} s {'later' if apart > 0 else 'earlier'} (± {error:.2f} s)"


def gap(a: Event, b: Event) -> float | None:
    """Seconds from a to b; None where one has no place on the clock."""
    first, second = moment(a), moment(b)
    return None if first is None or second is None else second - first
