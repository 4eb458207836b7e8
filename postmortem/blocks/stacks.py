"""Stacks by CPython's faulthandler: a `crash`, and a `stack` for each dump of a process that lives on.

    Fatal Python error: Segmentation fault

    Current thread 0x00007f84f4890b80 (most recent call first):
      File "/opt/train/train.py", line 22 in native_op

faulthandler prints the most recent call first, no source lines, no time and no rank. If a C++ thread crashed there
is no `Current thread`. Two faults may interleave. A dump that `postmortem run` requested has a line above it with
the time, the rank and the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from postmortem.formats import times
from postmortem.formats.excerpt import Excerpt, timed
from postmortem.formats.frames import Frames, frame_of, stack_fields
from postmortem.library import Signature
from postmortem.model import Event
from postmortem.model.details import Details
from postmortem.model.digits import whole
from postmortem.system import forms

OPENER = Signature(":faulthandler", r"Fatal Python error: [A-Z]", after=24576, before=4096)
DUMP = Signature(
    ":stack-dump",
    r"Timeout \(\d+:\d\d:\d\d|(?:Current thread|Thread) 0x[0-9a-f]{4,16} .{0,60}\(most recent call first\)"
    r"|rank \d{1,7} \(pid \d{1,10}\) is stopped \(state T\): ",
    after=8192,
    before=256,
)
OF_HOOK = ".stacks.txt"  # in such a file each dump has a line above it
_ROWS, _REGEXES = forms.rows("formats/exceptions"), forms.regexes("formats/exceptions")
_THREAD, _FRAME, _REQUESTED = _REGEXES["thread"], _REGEXES["dumped-frame"], _REGEXES["requested"]
_SIGNALS: dict[str, str] = _ROWS["signals"]["names"]  # by their description


# ── faulthandler ────────────────────────────────────────────────────────────────────────────────────────────


def parse_crash(excerpt: Excerpt) -> Iterator[Event]:
    """Read the crash that starts on the excerpt's line."""
    m = _REGEXES["fatal"].search(excerpt.text)
    if not m:
        return
    lines = excerpt.block()
    first = next(lines)
    threads = _threads(line.envelope.body for line in lines)
    frames = next((frames for current, frames in threads if current), threads[-1][1] if threads else [])
    fields = stack_fields(frames) | {
        "signal": _SIGNALS.get(m["signal"].strip(), m["signal"].strip()),
        "line": m[0],
        "current": any(current for current, _ in threads),
    }
    for line in excerpt.preceding():
        own = line.envelope.key == excerpt.envelope.key
        if own and (t := _REGEXES["terminate"].search(line.envelope.body)):
            fields.setdefault("terminate", t["type"] or t["what"])
            if t["what"]:
                fields.setdefault("what", t["what"])
    yield excerpt.event("crash", first, severity="fatal", fields=fields)


def parse_dump(excerpt: Excerpt) -> Iterator[Event]:
    """Read a stack dump of a living process (faulthandler.dump_traceback_later, SIGUSR handlers)."""
    if any("Fatal Python error" in line.text for line in excerpt.preceding()):
        return  # part of a crash
    if (request := _REQUESTED.search(excerpt.text)) and request["what"] != "dumps its stacks":
        stopped: Details = {"frames": (), "state": "T"}
        yield _requested(excerpt.event("stack", excerpt.first, fields=stopped), request)
        return
    current = excerpt.envelope.body.startswith("Current")
    above = excerpt.above()
    if above and _FRAME.match(above.envelope.body) and (not current or excerpt.source.path.endswith(OF_HOOK)):
        return  # a later thread of a dump
    threads = _threads(line.envelope.body for line in excerpt.block())
    if not threads or not threads[-1][1]:
        return
    dumper = excerpt.dumper()
    fields = stack_fields(threads[-1][1])  # the main thread is dumped last
    fields |= {"writer": dumper.writer} if dumper is not None and dumper.writer else {}
    rank = None if dumper is None else dumper.rank
    event = excerpt.event("stack", excerpt.first, severity="warning", fields=fields, rank=rank)
    request = _REQUESTED.search(above.text) if above else None
    yield _requested(event, request, above.text) if request and above else event


def _requested(event: Event, request: re.Match[str], line: str = "") -> Event:
    """A dump that `postmortem run` requested, with the fields of the line above it. `after`: the rank that had
    failed. `still`: the seconds without output before the job was ended."""
    fields: Details = {**event.fields, "asked": request["why"]}
    if after := _REGEXES["after-end"].match(request["why"]):
        fields["after"] = whole(after[1])
    if still := _REGEXES["still"].search(request["why"]):
        fields["still"] = whole(still[1])
        event = event._replace(speaker="tool")
    event = event._replace(rank=whole(request["rank"]), pid=whole(request["pid"]), fields=fields)
    return timed(event, times.find(line))


def _threads(bodies: Iterable[str]) -> list[tuple[bool, Frames]]:
    """Threads of one dump: whether it is the current one, and its frames, most recent first."""
    threads: list[tuple[bool, Frames]] = []
    between = False  # behind another line a new dump begins
    for body in bodies:
        if body.startswith("Extension modules:"):
            break
        between = between or (bool(threads) and body[:1].strip() != "" and not _THREAD.match(body))
        if m := _THREAD.match(body):
            current = m["current"] == "Current thread"
            if between or (current and any(known for known, _ in threads)):
                break
            threads.append((current, []))
        elif threads and (f := _FRAME.match(body)):
            threads[-1][1].append(frame_of(f))
    return threads
