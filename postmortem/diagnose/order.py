"""Which of two findings came first, how far apart they lie, and how sure that is.

    2.24 s later (± 0.14 s)          which came first is not determined (0.02 s apart, ± 0.14 s)

The margin is twice the joint standard deviation of both times. Nothing is called earlier or later inside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from postmortem.align.place import UNSEEN
from postmortem.model import Event, Finding

BUFFERED = 0.05  # seconds by which two processes of one host may write late
PLACED = 30.0  # standard deviation from which on a time orders nothing


def margin(a: Event, b: Event) -> float:
    """How far two events have to lie apart for their order to be certain: on one clock only their stamps count, and of two hosts
    each may print late for good."""
    if a.host is not None and b.host is not None and a.host != b.host:
        return 2 * math.hypot(a.at_sigma, b.at_sigma, UNSEEN, UNSEEN)
    same = a.host is not None and a.clock == b.clock != "none"
    return 2 * (math.hypot(a.sigma, b.sigma) if same else math.hypot(a.at_sigma, b.at_sigma)) + BUFFERED


def first_of(f: Finding) -> Event | None:
    return min((e for e in f.events if e.at is not None), key=lambda e: e.at or 0.0, default=None)


def earlier(a: Finding, b: Finding) -> int:
    """-1 or 1 where the clocks settle the order, 0 where they do not."""
    ea, eb = first_of(a), first_of(b)
    if ea is None or eb is None or (gap := _gap(ea, eb)) is None:
        return 0
    if abs(gap) <= margin(ea, eb):
        if ea.where.source == eb.where.source and ea.where.line and eb.where.line:
            return -1 if ea.where.line < eb.where.line else 1
        return 0
    return -1 if gap > 0 else 1


def later(root: Finding, f: Finding) -> str:
    """`0.41 s later (± 0.09 s)`; by their place, where both stand in one file."""
    a, b = first_of(root), first_of(f)
    if a is None or b is None or (gap := _gap(a, b)) is None or gap <= margin(a, b):
        return "later in the file"
    return told(a, b)


def elsewhere(root: Finding, f: Finding) -> str:
    """How a finding of another host lies to the root in time; empty where they are of one host, or have no time, or where the root
    is what a comparison of ranks showed: then its line is a proof, not the moment."""
    a, b = first_of(root), first_of(f)
    compared = (root.pattern.derived or root.derived_confidence) and root.event.kind != "exit"
    if compared or a is None or b is None or a.host is None or b.host is None or a.host == b.host:
        return ""
    return told(a, b)


def first_elsewhere(root: Finding, findings: Iterable[Finding]) -> Finding | None:
    """The earliest of the findings that another host than the root's has."""
    timed = [
        (e.at, f)
        for f in findings
        if elsewhere(root, f) and (e := first_of(f)) is not None and e.at is not None
    ]
    return min(timed, key=lambda x: (x[0], str(x[1].event.where)), default=(0.0, None))[1]


def told(a: Event, b: Event) -> str:
    """How b lies to a; empty where one of them has no time."""
    if (gap := _gap(a, b)) is None:
        return ""
    error = margin(a, b)
    if abs(gap) <= error:
        return f"which came first is not determined ({abs(gap):.2f} s apart, ± {error:.2f} s)"
    return f"{abs(gap):.2f} s {'later' if gap > 0 else 'earlier'} (± {error:.2f} s)"


def _gap(a: Event, b: Event) -> float | None:
    return None if a.at is None or b.at is None or a.at_sigma > PLACED or b.at_sigma > PLACED else b.at - a.at
