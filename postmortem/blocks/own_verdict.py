"""Our own verdict (report/terminal.py), printed into the log of a job by a recipe or a hook: not evidence.

INCIDENT  host memory · established

Rank 3 on node-b was killed by the kernel's OOM killer at 21:13:48; …

  culprit  rank 3 · host node-b · pid 29502
"""

from __future__ import annotations

from collections.abc import Iterator

from postmortem.formats.excerpt import Excerpt
from postmortem.library import Signature
from postmortem.model import Event, EventKind
from postmortem.system import forms

OPENER = Signature(":own-verdict", r"\b(?:INCIDENT|RECOVERED|UNDETERMINED)  \w|\bHEALTHY(?:[\"\\\s]|$)", after=8192)
KIND: EventKind = "own-verdict"
_REGEXES = forms.regexes("formats/excerpts")


def parse(excerpt: Excerpt) -> Iterator[Event]:
    """One event from the first line of the verdict to its last field."""
    lines = excerpt.block()
    if not _REGEXES["verdict"].match(next(lines).envelope.body):
        return
    last, paragraph = 0, 0
    for line in lines:
        body = line.envelope.body
        paragraph += not body.strip()
        if paragraph > 2 or (last and not body.startswith("  ")):
            break
        if last or (paragraph == 2 and _REGEXES["verdict-field"].match(body)):
            last = line.number
    if last:
        yield excerpt.event(KIND, excerpt.first, end=last)


def without(events: list[Event]) -> list[Event]:
    """The events outside of our own verdicts."""
    spans = [(e.line, e.where.end_line or 0) for e in events if e.kind == KIND]
    return [e for e in events if not any(a <= e.line <= b for a, b in spans)] if spans else events
