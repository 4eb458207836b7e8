"""The events of each attempt of one job, on the job's clock.

An attempt lasts from one restart to the next (torchrun's attempt_N, or a cut of `cuts.py`). A line without an attempt
(of a kernel log, of a launcher) belongs to the one that has its text, its pid or its time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from postmortem.align.place import moment
from postmortem.formats.lineform import gist
from postmortem.model import Event

Copy = tuple[str, str, int | None]


def separated(events: Sequence[Event]) -> dict[int, list[Event]]:
    """The events of each attempt. A line without an attempt belongs to the attempt of its pid or its copy (the second
    such line to the second of several), else to the one whose time it falls in, else to all."""
    known = sorted({e.attempt for e in events if e.attempt is not None})
    return {n: [*events] for n in known} if len(known) < 2 else _joined(events, known)


def _joined(events: Sequence[Event], known: Sequence[int]) -> dict[int, list[Event]]:
    copies: dict[Copy, set[int]] = defaultdict(set)
    starts: dict[int, float] = {}
    pids: dict[int, int] = {}
    for e in events:
        if e.attempt is not None:
            copies[_copy(e)].add(e.attempt)
            if (at := moment(e)) is not None:
                starts[e.attempt] = min(at, starts.get(e.attempt, at))
            if (pid := e.fields.get("pid", e.pid)) is not None:
                pids.setdefault(pid, e.attempt)
    order = sorted((at, attempt) for attempt, at in starts.items())
    out: dict[int, list[Event]] = {n: [] for n in known}
    seen: Counter[tuple[str, Copy]] = Counter()
    for e in events:
        own = e.attempt
        if own is None:
            nth = (e.where.source, _copy(e))
            own = _by_pid(e, pids)
            own = _by_copy(e, sorted(copies.get(nth[1], ())), seen[nth], starts) if own is None else own
            own = _by_time(e, order) if own is None else own
            seen[nth] += 1
        for attempt in out if own is None else (own,):
            out[attempt].append(e)
    return out


def _copy(e: Event) -> Copy:
    """What the copies of a line in other logs have in common with it."""
    return e.kind, gist(e.text), e.rank


def _by_pid(e: Event, pids: Mapping[int, int]) -> int | None:
    if e.pid is not None and e.kind == "exit" and e.pid in pids:
        return pids[e.pid]
    return pids.get(e.fields.get("pid") or 0)


def _by_copy(e: Event, found: Sequence[int], before: int, starts: Mapping[int, float]) -> int | None:
    """The attempt of its copy; `before`: how many such lines without an attempt are above it in its log."""
    if len(found) == 1 or (found and (e.at is None or not starts.keys() >= {*found})):
        return found[min(before, len(found) - 1)]
    return None


def _by_time(e: Event, order: Sequence[tuple[float, int]]) -> int | None:
    """The last attempt that had begun; `order`: start and number of each."""
    at = moment(e)
    if at is None or not order:
        return None
    begun = bisect_right(order, at + e.at_sigma, key=lambda start: start[0])
    return order[max(begun - 1, 0)][1]
