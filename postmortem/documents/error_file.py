"""torchelastic's error file, of a rank under @record.

{"message": {"message": "RuntimeError: …", "extraInfo": {"py_callstack": "…", "timestamp": "1795208014"}}}
"""

from __future__ import annotations

from collections.abc import Iterator

from postmortem.formats import plain_json
from postmortem.formats.excerpt import source_event, timed
from postmortem.formats.frames import exception_fields, frame_of, is_wrapper
from postmortem.model import Event, Source, Stamp
from postmortem.privacy import cut
from postmortem.system import forms

SIGMA = 0.6  # of a time in whole seconds
_FRAME = forms.regexes("formats/exceptions")["frame"]


def parse(source: Source, content: bytes) -> Iterator[Event]:
    """Read an error.json."""
    try:
        record = plain_json.loads(content, "backslashreplace")
    except (ValueError, RecursionError) as e:
        if content.strip() and not str(e).startswith("Extra data"):
            yield source_event(source, "unreadable", f"The error file cannot be read: {plain_json.reason(e)}.")
        return
    message = record.get("message") if isinstance(record, dict) else None
    extra = message.get("extraInfo") if isinstance(message, dict) else None
    text = message.get("message") if isinstance(message, dict) else message
    if not isinstance(text, str):
        return
    extra = extra if isinstance(extra, dict) else {}
    stack = extra.get("py_callstack")
    rows = stack.rstrip().split("\n") if isinstance(stack, str) else []
    frames = [frame_of(m) for row in rows[:2000] if (m := _FRAME.match(row)) and m["func"]]
    raw = str(extra.get("timestamp") or "")
    stamp = Stamp(float(raw), "absolute", raw, SIGMA) if raw.isdecimal() and len(raw) <= 11 else None
    last = next((row for row in reversed(rows) if row and not row[0].isspace()), "")
    first = text.split("\n", 1)[0]
    decisive = last if last and ": " in last and "Caught " in first else first
    kind, _, detail = decisive.partition(": ")
    fields = exception_fields(kind[:200], detail, decisive, frames)
    fields |= {"reported_by": "error-file", "local_rank": source.local_rank}
    fields |= {"wrapper": True} if is_wrapper(kind) else {}
    event = source_event(source, "exception", cut(decisive, 4000), severity="fatal", fields=fields)
    yield timed(event, stamp)
