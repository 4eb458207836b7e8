"""Python tracebacks: chained, prefixed, interleaved, quoted by DataLoaders, spawn and launchers.

    [rank2]: Traceback (most recent call last):
    [rank2]:   File "/opt/train/train.py", line 29, in <module>
    [rank2]:     main()
    [rank2]: AssertionError: Caught AssertionError in DataLoader worker process 0.
    [rank2]: Original Traceback (most recent call last):
    [rank2]:   File ".../fetch.py", line 54, in fetch
    [rank2]: AssertionError: label 91 outside of [0, 10)

The decisive line is the exception line; of an exception that another process raised, the line of the original.
Out: one event of kind `exception`, or `cut` where the log ends before the exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice, takewhile
from typing import cast

from postmortem.blocks import signs
from postmortem.formats import frames
from postmortem.formats.excerpt import Excerpt, Line, timed
from postmortem.formats.frames import (
    Frames,
    before_signal,
    collective_in,
    exception_fields,
    frame_of,
    is_only_printed,
    is_own,
    is_wrapper,
)
from postmortem.library import Signature
from postmortem.model import Event, EventKind
from postmortem.model.details import Details, Row
from postmortem.model.digits import number, whole
from postmortem.privacy import cut
from postmortem.system import forms

OPENER = Signature(":traceback", r"Traceback \(most recent call last\)", after=49152, before=2048)
HEADLESS = Signature(
    ":exception-line",
    r"(?:Error|Exception|[a-z](?:NotFound|Timeout|Exceeded|Unavailable))(?:\(\w+\))?: |KeyboardInterrupt"
    r"|(?:Assertion|NotImplemented)Error\s*$",  # `assert x` and a method to be overridden have no message
    after=8192,
    before=4096,
)
HEAD = "Traceback (most recent call last)"
PRINTED = 60  # lines of a child's output that a parent's exception may quote
_REGEXES = forms.regexes("formats/exceptions")
_FRAME, _NAMED, _ANY, _ORIGINAL = (_REGEXES[name] for name in ("frame", "named", "any", "original"))


@dataclass
class _Reading:
    """One traceback as read so far."""

    last: int
    exception: Line | None = None
    frames: Frames = field(default_factory=list)
    original: bool = False  # the traceback of another process, quoted below the exception
    chained: bool = False
    open: bool = False  # the lines ended before the traceback did
    source: str = ""  # the code of the innermost frame
    subgroup: bool = False  # the user's own call names a process group


def parse(excerpt: Excerpt) -> Iterator[Event]:
    """Read the traceback that starts here."""
    opener = excerpt.envelope.body
    prefix = opener[: opener.find(HEAD)].strip()
    # Ray folds equal lines of several processes; the first copy is above, with its writer's name
    if "[repeated " in opener or prefix.startswith("traceback :") or prefix.endswith(("Original", '"')):
        return  # or part of a launcher's block, or of another traceback
    reading = _read(excerpt)
    if reading.exception is not None:
        # ranks that raise at once on a console without prefixes write their heads together, and their exceptions: the
        # third exception belongs to the third head
        heads = takewhile(lambda line: line.envelope.body == excerpt.envelope.body, excerpt.preceding())
        nth = sum(1 for line in heads if line.envelope.key == excerpt.envelope.key)
        for line in islice(excerpt.behind(reading.last), min(nth, 64)):
            if line.envelope.key != excerpt.envelope.key or not _is_exception(line.envelope.body, True):
                break
            reading.exception, reading.last = line, line.number
        yield _event(excerpt, reading)
    elif reading.open and excerpt.to_the_end(OPENER.after):
        ignored: Details = {"ignored": True} if excerpt.handled("", excerpt.number) == "ignored" else {}
        yield excerpt.event("cut", excerpt.first, fields={"opened": excerpt.number, **ignored})


def parse_headless(excerpt: Excerpt) -> Iterator[Event]:
    """Read an exception line without the head of its traceback: below frames, or as the first line of a file."""
    line = excerpt.first
    above = next(excerpt.preceding(), None)
    recorded = _REGEXES["recorded"].match(excerpt.envelope.body.strip())
    # in the JSON over several lines that torchelastic's error handler prints
    if recorded and above and above.text.rstrip().endswith('"message": {'):
        yield _event(excerpt, _Reading(line.number, line.with_body(recorded[1])))
        return
    frames = _frames_above(excerpt, line) if _NAMED.match(line.envelope.body.strip()) else None
    kind: EventKind = "exception"
    if frames is None:
        named = _named_in(line.envelope.body)
        own = (back.envelope.body for back in excerpt.preceding() if back.envelope.key == line.envelope.key)
        if not named or any(_FRAME.match(body) or _ORIGINAL.search(body) for body in islice(own, 3)):
            return  # it is part of a traceback above, of which the block has read it
        frames, kind = [], "exception" if _is_last(excerpt, line) else "mentioned"
        line = line.with_body(named)
    reading = _Reading(line.number, line, frames)
    below = excerpt.behind(line.number) if _REGEXES["caught"].search(line.envelope.body) else iter(())
    all(_take(reading, x, x.envelope.body) for x in takewhile(lambda x: x.text.strip(), below))
    event = _event(excerpt, reading)
    yield event._replace(kind=kind, fields={**event.fields, "headless": True})


def _named_in(body: str) -> str:
    """The exception that a line names, as `Class: message`: alone, by a logger, or by an excepthook. Empty if the
    line has none, or dismisses it. Programs log caught exceptions too, so such a line counts as an exception only
    where it is its writer's last, and else where nothing else explains the failure (`mentioned`)."""
    m = _REGEXES["uncaught"].search(body)
    if m is None:
        m = _REGEXES["alone"].match(body.strip()) or _REGEXES["logged"].search(body)
        dismissed = m is None or _REGEXES["dismissed"].search(body) or _REGEXES["news"].search(m["text"].split(":")[0])
        if m is None or dismissed:
            return ""
    as_code = _REGEXES["repr"].match(m["text"])
    return f"{as_code['type']}: {as_code['message']}" if as_code else m["text"]


def _is_last(excerpt: Excerpt, line: Line) -> bool:
    """Whether it is the last line of its writer, or right below it an end is reported."""
    for other in islice(excerpt.following(), 1, None):
        if not other.text.strip():
            continue
        if _REGEXES["epilogue"].search(other.text):
            return True
        if other.envelope.key == line.envelope.key:
            return False
    return excerpt.to_the_end(HEADLESS.after)


def _frames_above(excerpt: Excerpt, line: Line) -> Frames | None:
    """The frames right before an exception's line. None if the line is prose, or if the head of the traceback is
    there too: then its own block reads the line."""
    frames: Frames = []
    tail = ""  # of a broken frame
    flat = 0  # code and carets without indentation
    raised = False  # by the code of the last frame, which may be unreadable itself
    mixed = _REGEXES["doubled"].match(line.envelope.body.strip())  # with the code and carets of another process
    margin = line.envelope.body[: -len(line.envelope.body.lstrip())]  # of an indented traceback
    for back in _single_spaced(excerpt.preceding()):
        if back.envelope.key != line.envelope.key:
            continue
        if not back.envelope.body.startswith(margin):
            break
        body, tail = back.envelope.body[len(margin) :] + tail, ""
        if not (frames or flat) and (code := _REGEXES["raise"].match(body)):
            raised = line.envelope.body.strip().split(":")[0].split(".")[-1] == code[1]
        if _ORIGINAL.search(body):
            return None
        if frame := _FRAME.match(body):
            if (flat and not mixed) if body[:1].isspace() else margin:
                break
            frames.append(frame_of(frame))
            flat = 0
        elif _REGEXES["broken-frame"].match(body):
            tail = body[:1000]
        elif _REGEXES["quoting"].match(body) and not frames:
            continue
        elif body.strip() and body[:1] not in (" ", "\t") and flat < 2:
            flat += 1
        elif body[:1] not in (" ", "\t") or not body.strip():
            break
    else:
        first = not margin and excerpt.number - len(excerpt.before) <= 1
        if first and not frames and not flat and _REGEXES["class"].match(line.envelope.body):
            return []
    return frames[::-1] or ([] if raised else None)


def _single_spaced(lines: Iterator[Line]) -> Iterator[Line]:
    """The lines without the empty lines that a paste has put between each two of them."""
    first = list(islice(lines, 6))
    doubled = len(first) > 3 and all(bool(line.text.strip()) == bool(i % 2) for i, line in enumerate(first))
    return (line for line in chain(first, lines) if not doubled or line.text.strip())


def _read(excerpt: Excerpt) -> _Reading:
    reading = _Reading(excerpt.number)
    block = iter(excerpt.block())
    opener = next(block).envelope.body
    lines = (
        frames.unboxed(opener, block) if frames.opens_box(opener) else _same_prefix(block, opener.partition(HEAD)[0])
    )
    indent = len(opener) - len(opener.lstrip()) if opener.lstrip().startswith("Traceback") else 0
    for line in lines:
        body = line.envelope.body
        if not body.strip():
            if reading.exception is not None and not reading.original:
                reading.chained = any(_REGEXES["chain"].match(below.envelope.body) for below in islice(lines, 2))
                return reading
            continue
        if not _take(reading, line, body[indent:] if body[:indent].isspace() else body):
            return reading
    reading.open = True
    return reading


def _same_prefix(lines: Iterator[Line], prefix: str) -> Iterator[Line]:
    """The lines without a prefix that no envelope knows (`stderr: `, `trainer-1  | `); lines without it are
    skipped."""
    led: bool | None = None if prefix.strip() else False
    for line in lines:
        body = line.envelope.body
        if led is None and body.strip():
            led = body.startswith(prefix)
        if not led:
            yield line
        elif body.startswith(prefix.rstrip()):
            yield line.with_body(body[len(prefix) :])


def _take(reading: _Reading, line: Line, body: str) -> bool:
    """Add one line to the reading; False when the traceback is over."""
    done = reading.exception is not None and not reading.original
    if frame := _FRAME.match(body):
        if done:
            return False
        reading.frames.append(frame_of(frame))
        reading.source = ""
        if reading.original:  # the line that it raised may be cut off
            reading.last = line.number
    elif not reading.source and reading.frames and reading.exception is None and body[0] in " \t":
        reading.source = cut(body.strip(), 200)
        reading.subgroup |= is_own(reading.frames[-1][0]) and bool(_REGEXES["subgroup"].search(body))
    elif _REGEXES["chain"].match(body):
        reading.chained = True
        return False
    elif _ORIGINAL.match(body):
        if reading.exception is not None and _REGEXES["caught"].search(reading.exception.envelope.body):
            reading.original, reading.frames = True, []
        else:
            return not reading.frames and reading.exception is None  # the head of another rank
    elif body[0] not in " \t" and _is_exception(body, bool(reading.frames)):
        if done:
            return False
        reading.exception, reading.last = line, line.number
        if reading.original:
            return False
    elif line.envelope.stamp is not None and reading.exception is not None and body[0] not in " \t":
        return False  # another record
    return True


def _is_exception(body: str, framed: bool) -> bool:
    """Whether a line is that of an exception. Below frames any class before a colon is (`queue.Empty: `)."""
    if _NAMED.match(body):
        return True
    m = _ANY.match(body)
    if not framed or m is None or len(m["type"]) >= 120:
        return False
    return m["message"] is not None or bool(_REGEXES["bare"].fullmatch(body))


# ── the event ───────────────────────────────────────────────────────────────────────────────────────────────


def _event(excerpt: Excerpt, reading: _Reading) -> Event:
    assert reading.exception is not None
    body = _REGEXES["copies"].sub("", reading.exception.envelope.body).strip()
    m = _ANY.match(body)
    kind = m["type"] if m else body.split(":")[0]
    if doubled := _REGEXES["doubled"].fullmatch(kind):
        kind, body = doubled[1], doubled[1] + _once(body[len(kind) :])
        m = _ANY.match(body)
    fields = exception_fields(kind, m["message"] or "" if m else "", body, reading.frames)
    fields["collective"] = fields["collective"] or collective_in(reading.source)
    fields["opened"] = excerpt.number
    if fields["collective"]:
        fields["own"] = tuple(is_own(file) for file, _, _ in reading.frames[-60:])
        fields.update({"subgroup": True} if reading.subgroup else {})
    if reading.source:
        fields["source"] = reading.source
    if table := _rank_table(line for line in excerpt.block() if line.number > reading.last):
        fields["table"] = table
    handled = excerpt.handled(fields["message"], reading.last)
    hooked = "[rank" in "".join(excerpt.envelope.key)  # torch >= 2.2 prefixes an uncaught exception (its excepthook)
    own_helper = hooked and kind.endswith("CalledProcessError")  # a rank is no launcher
    flags = {
        "ignored": is_only_printed(reading.frames),
        "interrupted": len(before_signal(reading.frames)) < len(reading.frames),
        "wrapper": not own_helper and _is_wrapper(excerpt, reading, kind, body),
        "chained": reading.chained,
        **({handled: True} if handled else {}),
        "excepthook": hooked,
        "stepped": not hooked and _goes_on(excerpt, reading.last),
    }
    fields |= cast(Details, {name: True for name, flag in flags.items() if flag})
    rank = _reported_rank(excerpt)
    pid = _reported_pid(excerpt, bool(reading.frames)) if rank is None else None
    if rank is not None or pid is not None:
        fields["reported_by"] = "parent"
    elif call := _remote_call(excerpt):
        fields["ran_on"] = whole(call["rank"])
        rank = None if call["raised"] else fields["ran_on"]
    elif reading.exception.envelope.rank is None and (logger := excerpt.logger()) is not None:
        rank = logger.rank
        fields |= {"writer": logger.writer} if logger.writer else {}
    event = excerpt.event(
        "exception", reading.exception, severity="fatal", fields=fields, end=reading.last, rank=rank, pid=pid
    )
    return event if event.time is not None else timed(event, excerpt.envelope.stamp)


def _goes_on(excerpt: Excerpt, last: int) -> bool:
    """Whether the lines above and below are steps of the same writer, one after the other: a program that prints what
    the code of a model raises. A run that is started again counts from 0, or from a checkpoint."""
    above = next((line.envelope for line in excerpt.preceding() if line.text.strip()), excerpt.envelope)
    below = next((line.envelope for line in excerpt.behind(last) if line.text.strip()), excerpt.envelope)
    before, after = (signs.step(x.body) if x.key == excerpt.envelope.key else None for x in (above, below))
    return before is not None and after is not None and before < after


def _once(message: str) -> str:
    """What two processes wrote at once behind their exceptions' classes: `: : invalid syntaxinvalid syntax`."""
    m = _REGEXES["doubled-message"].fullmatch(message)
    return f": {m[1]}" if m else message


def _rank_table(below: Iterator[Line]) -> tuple[Row, ...]:
    """The rows (rank, value, line, line in the file, text) of a table with one value for each of several ranks."""
    found: dict[int, Row] = {}
    for apart, line in enumerate(islice(below, 4096)):
        if m := _REGEXES["rank-row"].match(line.envelope.body):
            value = " ".join(m["value"].split()).rstrip(".,;")
            row = (whole(m["rank"]), value, line.number, line.envelope.line, line.text[:1000])
            found.setdefault(whole(m["rank"]), row)
        elif found or apart >= 8:
            break
    return tuple(found[rank] for rank in sorted(found)) if len(found) > 2 else ()


def _is_wrapper(excerpt: Excerpt, reading: _Reading, kind: str, body: str) -> bool:
    """Whether an exception only reports that another process failed."""
    if is_wrapper(kind) or _REGEXES["spawned"].match(body):
        return True
    if reading.source.startswith("raise value") and "ray/_private/worker.py" in reading.frames[-1][0]:
        return True
    if not _REGEXES["returned"].search(body):
        return False
    # the exit code of a program, and below it the output of that program with a traceback
    printed = takewhile(lambda line: line.envelope.stamp is None, islice(excerpt.behind(reading.last), PRINTED))
    return any(HEAD in line.envelope.body for line in printed)


def _reported_rank(excerpt: Excerpt) -> int | None:
    """The rank that raised, where its parent reports the exception."""
    m = _REGEXES["gathered"].search(excerpt.text)
    m = m or next(filter(None, map(_REGEXES["spawn"].search, reversed(excerpt.before))), None)
    return number(m["rank"]) if m else None


def _remote_call(excerpt: Excerpt) -> re.Match[str] | None:
    """The line above an exception that a call on another rank raised: in the output of the rank that ran it, or in the
    message of the exception that the caller raised from it."""
    return next(filter(None, map(_REGEXES["remote"].search, excerpt.before[-3:])), None)


def _reported_pid(excerpt: Excerpt, framed: bool) -> int | None:
    """The process that raised, where Ray's driver shows the exception of an actor."""
    if not any("ray::" in text for text in excerpt.before):
        return None
    for line in islice(excerpt.preceding(), 40):
        if m := _REGEXES["ray-actor"].search(line.text):
            return number(m["pid"])
        if framed and _REGEXES["end-of-task"].search(line.text):
            return None
    return None
