"""Which of two claims came first, how far apart they lie, and how sure that is.

    2.24 s later (± 0.14 s)          which came first is not determined (0.02 s apart, ± 0.14 s)

The margin is twice the joint standard deviation of both times. Nothing is called earlier or later inside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from postmortem.align.place import UNSEEN
from postmortem.diagnose.case import moment
from postmortem.diagnose.claims import Claim
from postmortem.model import Event

ONE_REPORT = 3  # lines
BUFFERED = 0.05  # seconds by which two processes of one host may write late


def margin(a: Event, b: Event) -> float:
    """How far two events have to lie apart for their order to be certain: on one clock only their stamps
    count, and of two hosts each may print late for good."""
    if a.host is not None and b.host is not None and a.host != b.host:
        return 2 * math.hypot(a.at_sigma, b.at_sigma, UNSEEN, UNSEEN)
    same = a.host is not None and a.clock == b.clock != "none"
    return 2 * (math.hypot(a.sigma, b.sigma) if same else math.hypot(a.at_sigma, b.at_sigma)) + BUFFERED


def first_of(claim: Claim) -> Event | None:
    """The earliest of its events that has a time."""
    return min((e for e in claim.events if e.at is not None), key=lambda e: e.at or 0.0, default=None)


def surely_before(a: Claim, b: Claim) -> bool:
    """Whether the clocks leave no doubt that `a` came before `b`."""
    ea, eb = first_of(a), first_of(b)
    if ea is None or eb is None:
        return False
    gap = _gap(ea, eb)
    return gap is not None and gap > margin(ea, eb)


def above(a: Claim, b: Claim) -> bool:
    """Whether `a` is above `b` in the same file, where clocks cannot decide. Lines of one report have no order in time:
    the kernel prints `oom-kill:constraint=` right above `Killed process` (mm/oom_kill.c)."""
    ea, eb = first_of(a) or a.event, first_of(b) or b.event
    if ea.where.source != eb.where.source or ea.where.line is None or eb.where.line is None:
        return False
    return ea.where.line + ONE_REPORT < eb.where.line and not surely_before(b, a)


def came_before(a: Event, b: Event) -> bool:
    """Whether an event surely came before another: in one file by its place, else by the clocks."""
    if a.where.source == b.where.source:
        return (a.where.line or 0) < (b.where.line or 0)
    gap = _gap(a, b)
    return gap is not None and gap > margin(a, b)


def before(a: Claim, b: Claim) -> bool:
    return surely_before(a, b) or above(a, b)


def later(root: Claim, claim: Claim) -> str:
    """`0.41 s later (± 0.09 s)`; by their place, where both stand in one file."""
    a, b = first_of(root), first_of(claim)
    if a is None or b is None or not surely_before(root, claim):
        return "later in the file"
    return told(a, b)


def elsewhere(root: Claim, claim: Claim) -> str:
    """How a claim of another host lies to the root in time; empty where they are of one host, or have no
    time, or where the root is what a comparison of ranks showed: then its line is a proof, not the moment."""
    a, b = first_of(root), first_of(claim)
    if root.strength in ("compared", "silent") or a is None or b is None:
        return ""
    if a.host is None or b.host is None or a.host == b.host:
        return ""
    return told(a, b)


def first_elsewhere(root: Claim, claims: Iterable[Claim]) -> Claim | None:
    """The earliest of the claims that another host than the root's has."""
    timed = [(e.at, str(c.event.where), c) for c in claims if elsewhere(root, c) and (e := first_of(c)) and e.at]
    return min(timed, key=lambda x: x[:2], default=(0.0, "", None))[2]


def told(a: Event, b: Event) -> str:
    """How b lies to a; empty where one of them has no time."""
    gap = _gap(a, b)
    if gap is None:
        return ""
    error = margin(a, b)
    if abs(gap) <= error:
        return f"which came first is not determined ({abs(gap):.2f} s apart, ± {error:.2f} s)"
    return f"{abs(gap):.2f} s {'later' if gap > 0 else 'earlier'} (± {error:.2f} s)"


def _gap(a: Event, b: Event) -> float | None:
    """Seconds from a to b; None where one has no place on the clock."""
    first, second = moment(a), moment(b)
    return None if first is None or second is None else second - first
