"""Our own verdict in the log of a job, where `postmortem run`, a recipe or a hook printed it (report/terminal.py).

    INCIDENT  host memory · established

    Rank 3 on node-b was killed by the kernel's OOM killer at 21:13:48; …

      culprit  rank 3 · host node-b · pid 29502
      proof    node-b/dmesg.txt:81  [ 2240.704416] Memory cgroup out of memory: Killed …

It quotes what stands elsewhere, so none of it is evidence: an event that was read from it would prove itself.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from postmortem.formats.excerpt import Excerpt
from postmortem.library import Signature
from postmortem.model import Event

OPENER = Signature(":own-verdict", r"\b(?:INCIDENT|RECOVERED|UNDETERMINED)  \w", after=8192)

_HEAD = re.compile(r"(?:INCIDENT|RECOVERED|UNDETERMINED)  \w[^:=]*$")
_FIELD = re.compile(r"  (?:culprit|where|proof|because|do|missing|report)  +\S")
_KIND = "own-verdict"


def parse(excerpt: Excerpt) -> Iterator[Event]:
    """One event that covers the verdict, from its first line to its last field."""
    lines = excerpt.block()
    if not _HEAD.match(next(lines).envelope.body):
        return
    fields, last, paragraph = False, excerpt.number, 0
    for line in lines:
        body = line.envelope.body
        paragraph += not body.strip()
        if paragraph > 2 or (fields and not body.startswith("  ")):
            break
        fields = fields or (paragraph == 2 and bool(_FIELD.match(body)))
        if fields:
            last = line.number
    if fields:
        yield excerpt.event(_KIND, next(excerpt.following()), end=last)


def left_out(events: Sequence[Event]) -> list[Event]:
    """The events that stand outside of our own verdicts."""
    spans = sorted((e.where.line or 0, e.where.end_line or 0) for e in events if e.kind == _KIND)
    if not spans:
        return list(events)
    starts = [start for start, _ in spans]

    def quoted(line: int | None) -> bool:
        place = bisect_right(starts, line) if line is not None else 0
        return bool(place) and line is not None and line <= spans[place - 1][1]

    return [e for e in events if not quoted(e.where.line)]
