"""What a document states, for patterns with `on: fact` to read.

fact(source, lines, 41, "slurm job NODE_FAIL", host="gn42", stamp=..., job_id="4711")
-> an event on line 42 of the document; the patterns see the text `slurm job NODE_FAIL`
"""

from __future__ import annotations

from typing import Any

from postmortem.formats.excerpt import document_event, timed
from postmortem.model import Event, Source, Stamp
from postmortem.model.details import Details


def fact(
    source: Source,
    lines: list[str],
    at: int,
    signature: str,
    *,
    pid: int | None = None,
    stamp: Stamp | None = None,
    fields: Details | None = None,
    **who: Any,
) -> Event:
    """A statement of a document, with the evidence on line `at` (from 0). `signature` has the same words for all
    formats of a kind; `who`: rank, host, gpu, run, attempt, as far as the document itself names them."""
    event = document_event(source, "fact", lines, at, {**(fields or {}), "signature": signature}, pid)
    return timed(event._replace(**who), stamp)
