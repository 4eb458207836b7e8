"""Timeouts with their duration -> the moment at which the waiting began,
as one more line that ranks have in common.

    [rank14]:[E304 10:12:22.014551208 ProcessGroupNCCL.cpp:629] ... ran for 600054 milliseconds ...

Ranks give up at different times, but those that wait in collective 1240 entered it with the step before.
Where a job logs nothing but NCCL's complaints, this is all that its hosts have in common: good for a second,
not for less.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from postmortem.model import Event
from postmortem.model.digits import whole

APART = 1.0  # seconds between ranks that enter the same collective


def marks(events: Iterable[Event]) -> Iterator[Event]:
    """One mark for each rank and collective."""
    seen: set[tuple[object, ...]] = set()
    for e in events:
        if e.time is None or e.rank is None or "ran_ms" not in e.fields:
            continue
        waited, number = e.fields["ran_ms"], e.fields.get("seq")
        if not (isinstance(waited, str) and waited.isdecimal() and len(waited) < 10):
            continue
        family = f"once entered collective {number} of {e.fields.get('pg') or 'its group'}"
        if number is None or (key := (e.where.source, e.rank, family)) in seen:
            continue
        seen.add(key)
        began = e.time - whole(waited) / 1000
        fields = {
            "family": family,
            "columns": 1,
            "values": array("q", [0]),
            "times": array("d", [began]),
            "lines": array("q", [0]),
        }
        yield e._replace(kind="sync", time=began, sigma=(e.sigma**2 + APART**2) ** 0.5, fields=fields)
