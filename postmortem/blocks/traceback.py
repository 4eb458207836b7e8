"""Python tracebacks: chained, prefixed, interleaved, quoted by DataLoaders, spawn and launchers.

    [rank2]: Traceback (most recent call last):
    [rank2]:   File "/opt/train/train.py", line 29, in <module>
    [rank2]:     main()
    [rank2]: AssertionError: Caught AssertionError in DataLoader worker process 0.
    [rank2]: Original Traceback (most recent call last):
    [rank2]:   File ".../fetch.py", line 54, in fetch
    [rank2]: AssertionError: label 91 outside of [0, 10)

The decisive line is the exception line, and of an exception that was carried over from another process the
line of the original. In: the excerpt of a line that opens a traceback. Out: one event of kind `exception`, or
`cut` where the log ends before the exception is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice, takewhile

from postmortem.blocks import circumstances, rank_table, utterances
from postmortem.blocks.frames import (
    before_signal,
    code_line,
    collective_in,
    collective_of,
    is_only_printed,
    is_own,
)
from postmortem.formats import boxed, carried
from postmortem.formats.excerpt import Excerpt, Line
from postmortem.library import Signature
from postmortem.model import Event
from postmortem.model.digits import whole
from postmortem.privacy import cut
from postmortem.system import lazy as late

OPENER = Signature(":traceback", r"Traceback \(most recent call last\)", after=49152, before=2048)
HEADLESS = Signature(
    ":exception-line",
    r"(?:Error|Exception|[a-z](?:NotFound|Timeout|Exceeded|Unavailable))(?:\(\w+\))?: |KeyboardInterrupt",
    after=8192,
    before=4096,
)

_FRAME = late.regex(r'\s*(?:> )?File "(?P<file>[^"]{1,400})", line (?P<line>\d+)(?:, in (?P<func>.+))?')
_RAISE = late.regex(r"\s+raise (?:\w+\.)*(\w+)\(")
_TORN = late.regex(r'[^\s"][^"]{0,400}", line \d+')
_NAMED = late.regex(
    r"^(?:[A-Za-z_]\w*\.)*[A-Z_a-z]\w*(?:Error|Exception|Interrupt|Exit|Warning|Failure|Fault|Timeout"
    r"|Refused|Exceeded|Failed|Killed|Died|Abort|"
    r"NotFound|Missing|Iteration|Cancelled)\w*(?:\(\w+\))?(?::|\s*$)"
)
_ANY = late.regex(r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:\(\w+\))?)(?:: ?(?P<message>.*))?$")
# without a message: `queue.Empty`, `socket.timeout`
_BARE = late.regex(r"(?:\w+\.)+(?:[A-Z]\w*|\w*error|timeout)\s*")
_CLASS = late.regex(r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception): ")
_CAUGHT = late.regex(r"Caught (?P<type>\w+) in (?:DataLoader worker process|pin memory thread|replica|Task)")
_ORIGINAL = late.regex(r"(?:Original )?Traceback \(most recent call last\):")
_RECORDED = late.regex(r'"message": "((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt): [^"\\]{1,16000})')
_GLUED = late.regex(r"((?:\w+\.)*[A-Z]\w{5,60}?)\1+")
# BackendCompilerFailed: backend='inductor' raised: and what it was
_QUOTING = late.regex(r"[\w.]+: (?:.{1,200} )?raised:\s*$")
_CHAIN = late.regex(r"(?:During handling of the above exception|The above exception was the direct cause)")
_SPAWNED = late.regex(  # torch < 1.6
    r"\w+: On WorkerInfo\("
    r"|Exception: (?:process \d+ terminated with (?:signal|exit code)|-- Process \d+ terminated)"
    r"|Exception: *$"
)
WRAPPERS = {
    "ChildFailedError", "ProcessRaisedException", "ProcessExitedException", "CalledProcessError",
    "SignalException", "WorkerGroupError", "TrainingFailedError", "RayTaskError", "RayActorError",
    "ActorDiedError", "WorkerCrashedError", "BrokenProcessPool", "TuneError", "ControllerError",
    "ExceptionGroup", "LauncherError",
}  # fmt: skip


@dataclass
class _Reading:
    """What was read of one traceback so far."""

    frames: list[tuple[str, int, str]] = field(default_factory=list)
    exception: Line | None = None
    carried: bool = False
    chained: bool = False
    open: bool = False  # its lines went on to the end of what was to be read
    last: int = 0
    source: str = ""  # the code that the innermost frame shows


def parse(excerpt: Excerpt) -> Iterator[Event]:
    """Read the traceback that starts here. One that the log's end cuts off accuses nobody, but is no good end."""
    opener = excerpt.envelope.body
    at = opener.find("Traceback (most recent call last)")
    lead = opener[:at].strip()
    if "[repeated " in opener:
        # Ray folds equal lines of several processes into one, later:
        # the first copy stands above with its writer's name
        return
    if lead.startswith("traceback :") or lead.endswith(("Original", '\\"', '"')) and lead != "":
        return  # a launcher's summary and a carried original are read by their own block
    reading = _read(excerpt)
    if reading.exception is not None:
        yield _of_task(excerpt, reading) or _event(excerpt, _own_line(excerpt, reading))
    elif reading.open and excerpt.to_the_end(OPENER.after):
        yield excerpt.event("cut", next(excerpt.following()), fields={"opened": excerpt.number})


def _of_task(excerpt: Excerpt, reading: _Reading) -> Event | None:
    """What a worker raised and Ray's driver raises again, as the worker's."""
    assert reading.exception is not None
    below = (line for line in excerpt.following() if line.number > reading.last)
    found = carried.of_task(reading.exception.envelope.body, below)
    if found is None:
        return None
    event = _event(excerpt, _Reading(found.frames, found.line, carried=True, last=found.line.number))
    later = (line for line in excerpt.following() if line.number > found.line.number)
    if all(line.envelope.key or not line.text.strip() for line in later):
        # the driver says no more; what workers had printed before comes late
        event = event._replace(fields={**event.fields, "excepthook": True})
    return event._replace(pid=found.pid, host=found.host or event.host, rank=None)


def parse_computed(excerpt: Excerpt) -> Iterator[Event]:
    """Read what a worker of Dask tells of a task that raised."""
    found = carried.of_dask(line for line in excerpt.following() if line.number > excerpt.number)
    if found is not None:
        yield _event(excerpt, _Reading(found.frames, found.line, carried=True, last=found.line.number))


def _own_line(excerpt: Excerpt, reading: _Reading) -> _Reading:
    """Of ranks that raise at once on a console without prefixes the heads stand together, and so do the
    exceptions: the third head's is the third."""
    assert reading.exception is not None
    heads = takewhile(lambda line: line.envelope.body == excerpt.envelope.body, excerpt.preceding())
    nth = sum(1 for line in heads if line.envelope.key == excerpt.envelope.key)
    below = (line for line in excerpt.following() if line.number > reading.last)
    for line in islice(below, min(nth, 64)):
        if line.envelope.key != excerpt.envelope.key or not _is_exception(line.envelope.body, True):
            break
        reading.exception, reading.last = line, line.number
    return reading


def parse_headless(excerpt: Excerpt) -> Iterator[Event]:
    """Read an exception line whose traceback's head was cut off:
    frames stand right before it, or it opens the file, as in an excerpt."""
    line = next(excerpt.following())
    body = line.envelope.body.strip()
    told = _recorded(excerpt)
    if uncaught := told[1] if told else utterances.uncaught(body):
        yield _event(excerpt, _Reading(exception=_saying(line, uncaught), last=line.number))
        return
    frames = _frames_above(excerpt, line) if _NAMED.match(body) else None
    if frames is not None:
        event = _event(excerpt, _Reading(frames=frames, exception=line, last=line.number))
        yield event._replace(fields={**event.fields, "headless": True})
    else:
        yield from parse_uttered(excerpt)


def parse_uttered(excerpt: Excerpt) -> Iterator[Event]:
    """Read an exception that a line names: an `exception` where it is its writer's last word, else
    `uttered`."""
    line = next(excerpt.following())
    said = utterances.uncaught(line.envelope.body) or utterances.said(line.envelope.body)
    if not said or _quoted_below(excerpt, line):
        return
    event = _event(excerpt, _Reading(exception=_saying(line, said), last=line.number))
    last = utterances.is_last_word(excerpt, line, utterances.OPENER.after)
    yield event._replace(kind="exception" if last else "uttered", fields={**event.fields, "headless": True})


def _quoted_below(excerpt: Excerpt, line: Line) -> bool:
    """Whether a traceback stands above whose line this is: its block has read it."""
    own = (back for back in excerpt.preceding() if back.envelope.key == line.envelope.key)
    return any(_FRAME.match(back.envelope.body) or _ORIGINAL.search(back.envelope.body) for back in islice(own, 3))


def _saying(line: Line, said: str) -> Line:
    return Line(line.number, line.text, line.envelope._replace(body=said))


def _recorded(excerpt: Excerpt) -> re.Match[str] | None:
    """What torchelastic's error handler prints of an exception, as JSON over several lines;
    its call stack is one string."""
    above = next(excerpt.preceding(), None)
    if above is None or not above.text.rstrip().endswith('"message": {'):
        return None
    return _RECORDED.match(excerpt.envelope.body.strip())


def _frames_above(excerpt: Excerpt, line: Line) -> list[tuple[str, int, str]] | None:
    """The frames that stand right before an exception's line.
    None where it is prose, or where their head is there: its block reads it."""
    frames: list[tuple[str, int, str]] = []
    tail = ""  # of a frame that the edge of a terminal broke in two
    flat = 0  # code and carets that lost their indentation, as their frame did
    raised = False  # by the code that the last frame shows; that frame itself may be torn beyond reading
    # of a traceback that stands indented as a whole
    margin = line.envelope.body[: -len(line.envelope.body.lstrip())]
    for back in _single_spaced(excerpt.preceding()):
        if back.envelope.key != line.envelope.key:
            continue
        if not back.envelope.body.startswith(margin):
            break
        body, tail = back.envelope.body[len(margin) :] + tail, ""
        if not (frames or flat) and (code := _RAISE.match(body)):
            raised = line.envelope.body.strip().split(":")[0].split(".")[-1] == code[1]
        if _ORIGINAL.search(body):
            return None
        if frame := _FRAME.match(body):
            if flat if body[:1].isspace() else margin:
                break
            frames.append((frame["file"], whole(frame["line"]), (frame["func"] or "").strip()[:200]))
            flat = 0
        elif _TORN.match(body):
            tail = body[:1000]
        elif _QUOTING.match(body) and not frames:
            continue
        elif body.strip() and body[:1] not in (" ", "\t") and flat < 2:
            flat += 1
        elif body[:1] not in (" ", "\t") or not body.strip():
            break
    else:
        first = not margin and excerpt.number - len(excerpt.before) <= 1
        if first and not frames and not flat and _CLASS.match(line.envelope.body):
            return []
    return frames[::-1] or ([] if raised else None)


def _single_spaced(lines: Iterator[Line]) -> Iterator[Line]:
    """The lines without the empty ones that a paste has put between each two of them."""
    first = list(islice(lines, 6))
    doubled = len(first) > 3 and all(bool(line.text.strip()) == bool(i % 2) for i, line in enumerate(first))
    return (line for line in chain(first, lines) if not doubled or line.text.strip())


def _read(excerpt: Excerpt) -> _Reading:
    reading = _Reading(last=excerpt.number)
    block = iter(excerpt.block())
    opener = next(block)
    body = opener.envelope.body
    lines = (
        boxed.unboxed(body, block)
        if boxed.opens(body)
        else _same_lead(block, opener.envelope.body.partition("Traceback (most recent call last)")[0])
    )
    indent = (
        len(opener.envelope.body) - len(opener.envelope.body.lstrip())
        if opener.envelope.body.lstrip().startswith("Traceback")
        else 0
    )
    for line in lines:
        body = line.envelope.body
        if not body.strip():
            if reading.exception is not None and not reading.carried:
                reading.chained = _chained(lines)
                return reading
            continue
        if not _take(reading, line, body[indent:] if body[:indent].isspace() else body):
            return reading
    reading.open = True
    return reading


def _same_lead(lines: Iterator[Line], lead: str) -> Iterator[Line]:
    """Take off what a collector puts before every line and no envelope knows (`stderr: `, `trainer-1  | `);
    others' lines are passed by."""
    led: bool | None = None if lead.strip() else False
    for line in lines:
        body = line.envelope.body
        if led is None and body.strip():
            led = body.startswith(lead)
        if not led:
            yield line
        elif body.startswith(lead.rstrip()):
            yield Line(line.number, line.text, line.envelope._replace(body=body[len(lead) :]))


def _take(reading: _Reading, line: Line, body: str) -> bool:
    """Take one line into the reading; False when the traceback is over."""
    if frame := _FRAME.match(body):
        if reading.exception is not None and not reading.carried:
            return False
        reading.frames.append((frame["file"], whole(frame["line"]), (frame["func"] or "").strip()[:200]))
        reading.source = ""
        if reading.carried:  # the line that it raised may be cut off
            reading.last = line.number
    elif not reading.source and reading.frames and reading.exception is None and body[0] in " \t":
        reading.source = cut(body.strip(), 200)
    elif _CHAIN.match(body):
        reading.chained = True
        return False
    elif reading.exception is not None and _ORIGINAL.match(body) and _CAUGHT.search(reading.exception.envelope.body):
        reading.carried, reading.frames = True, []
    elif _ORIGINAL.match(body):
        return not reading.frames and reading.exception is None  # another rank's head, where the heads stand together
    elif body[0] not in " \t" and _is_exception(body, bool(reading.frames)):
        if reading.exception is not None and not reading.carried:
            return False
        reading.exception, reading.last = line, line.number
        if reading.carried:
            return False
    elif line.envelope.stamp is not None and reading.exception is not None and body[0] not in " \t":
        return False  # another record; a collector stamps the code of a carried traceback, too
    return True


def _is_exception(body: str, framed: bool) -> bool:
    """The exception line ends the frames.
    A class need not be called …Error (`queue.Empty`), but then it stands before a colon."""
    if _NAMED.match(body):
        return True
    m = _ANY.match(body)
    return (
        framed and m is not None and (m["message"] is not None or bool(_BARE.fullmatch(body))) and len(m["type"]) < 120
    )


def _chained(lines: Iterator[Line]) -> bool:
    return any(_CHAIN.match(line.envelope.body) for _, line in zip(range(2), lines, strict=False))


def _event(excerpt: Excerpt, reading: _Reading) -> Event:
    assert reading.exception is not None
    body = reading.exception.envelope.body.strip()
    m = _ANY.match(body)
    kind = m["type"] if m else body.split(":")[0]
    if glued := _GLUED.fullmatch(kind):  # two processes wrote it at once
        kind, body = glued[1], glued[1] + body[len(kind) :]
    short = kind.split("(")[0].rsplit(".", 1)[-1]
    outside = before_signal(reading.frames)
    fields: dict[str, object] = {
        "type": kind,
        "message": cut(m["message"] or "" if m else "", 2000),
        "line": cut(body, 2000),
        "frames": tuple(reading.frames[-60:]),
        "code": code_line(outside),
        "collective": collective_of(outside) or collective_in(reading.source),
        "opened": excerpt.number,
    }
    if fields["collective"]:
        fields["own"] = tuple(is_own(file) for file, _, _ in reading.frames[-60:])
    if reading.source:
        fields["source"] = reading.source
    if len(outside) < len(reading.frames):
        fields["interrupted"] = True
    wraps = short in WRAPPERS or circumstances.is_handed_on(reading.frames, reading.source)
    if wraps or _SPAWNED.match(body) or circumstances.of_a_child(excerpt, body, reading.last):
        fields["wrapper"] = True
    below = (line for line in excerpt.block() if line.number > reading.last)
    if table := rank_table.rows(reading.exception, below):
        fields["table"] = tuple(tuple(row) for row in table)
    if reading.chained:
        fields["chained"] = True
    if announced := excerpt.announced() or excerpt.told_again(str(fields["message"]), reading.last):
        fields[announced] = True
    if is_only_printed(reading.frames):
        fields["ignored"] = True
    if reading.carried:
        fields["carried"] = True
    if "[rank" in "".join(excerpt.envelope.key):  # torch >= 2.2 prefixes what nobody caught (its excepthook)
        fields["excepthook"] = True
    fields |= circumstances.around(excerpt)
    rank = circumstances.told_rank(excerpt)
    actor = circumstances.told_pid(excerpt, bool(reading.frames)) if rank is None else None
    if rank is not None or actor is not None:
        fields["reported_by"] = "parent"  # who tells of it is not who raised it
    logger = excerpt.logged_by() if rank is None and actor is None else None
    if logger is not None and reading.exception.envelope.rank is None:
        rank = logger.rank
        fields |= {"writer": logger.writer} if logger.writer else {}
    event = excerpt.event(
        "exception",
        reading.exception,
        severity="fatal",
        fields=fields,
        end=reading.last,
        rank=rank,
        pid=actor,
    )
    if event.time is None and excerpt.envelope.stamp is not None:
        stamp = excerpt.envelope.stamp
        event = event._replace(time=stamp.time, clock=stamp.clock, sigma=stamp.sigma, raw_time=stamp.raw)
    return event
