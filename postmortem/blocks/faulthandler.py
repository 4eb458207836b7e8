"""faulthandler: the stacks that CPython prints when a process crashes, or on request.

    Fatal Python error: Segmentation fault

    Current thread 0x00007f84f4890b80 (most recent call first):
      File "/opt/train/train.py", line 22 in native_op

Most recent call first, no source lines, no time, no rank. If a C++ thread crashed there is no `Current thread`.
Two faults may interleave. Out: one event of kind `crash`, or `stack` for a dump without a crash. A dump that
`postmortem run` requested has a line above it with the time, the rank and the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from postmortem.blocks.frames import Frames, code_line, collective_of, is_own
from postmortem.formats import forms, times
from postmortem.formats.excerpt import Excerpt
from postmortem.library import Signature
from postmortem.model import Event
from postmortem.model.digits import whole

OPENER = Signature(":faulthandler", r"Fatal Python error: [A-Z]", after=24576, before=4096)
DUMP = Signature(
    ":stack-dump",
    r"Timeout \(\d+:\d\d:\d\d|(?:Current thread|Thread) 0x[0-9a-f]{4,16} .{0,60}\(most recent call first\)"
    r"|rank \d{1,7} \(pid \d{1,10}\) is stopped \(state T\): ",
    after=8192,
    before=256,
)
OF_HOOK = ".stacks.txt"  # in such a file each dump has a line above it
SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
_REGEXES = forms.regexes("blocks/exceptions")
_THREAD, _FRAME, _REQUESTED = _REGEXES["thread"], _REGEXES["dumped-frame"], _REGEXES["requested"]


def parse(excerpt: Excerpt) -> Iterator[Event]:
    """Read the crash that starts on the excerpt's line."""
    m = _REGEXES["fatal"].search(excerpt.text)
    if not m:
        return
    lines = excerpt.block()
    first = next(lines)
    threads = _threads(line.envelope.body for line in lines)
    frames = next((frames for current, frames in threads if current), threads[-1][1] if threads else [])
    fields: dict[str, object] = {
        "signal": SIGNALS.get(m["signal"].strip(), m["signal"].strip()),
        "line": m[0],
        "frames": tuple(frames[:60]),
        "code": code_line(frames[::-1]),
        "collective": collective_of(frames[::-1]),
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
        stopped: dict[str, object] = {"frames": (), "state": "T"}
        yield _requested(excerpt.event("stack", next(excerpt.following()), fields=stopped), request)
        return
    current = excerpt.envelope.body.startswith("Current")
    above = next((line for line in excerpt.preceding() if line.text.strip()), None)
    if above and _FRAME.match(above.envelope.body) and (not current or excerpt.source.path.endswith(OF_HOOK)):
        return  # a later thread of a dump
    lines = excerpt.block()
    first = next(lines)
    threads = _threads([first.envelope.body, *(line.envelope.body for line in lines)])
    if not threads or not threads[-1][1]:
        return
    who = excerpt.dumper()
    fields = stack_fields(threads[-1][1])  # the main thread is dumped last
    fields |= {"writer": who.writer} if who is not None and who.writer else {}
    rank = who.rank if who is not None else None
    event = excerpt.event("stack", first, severity="warning", fields=fields, rank=rank)
    request = _REQUESTED.search(above.text) if above else None
    yield _requested(event, request, above.text) if request and above else event


def _requested(event: Event, request: re.Match[str], line: str = "") -> Event:
    """A dump that `postmortem run` requested, with the fields of the line above it. `after`: the rank that had
    failed. `still`: the seconds without output before the job was ended."""
    fields = dict(event.fields) | {"asked": request["why"]}
    if after := _REGEXES["after-end"].match(request["why"]):
        fields["after"] = whole(after[1])
    if still := _REGEXES["still"].search(request["why"]):
        fields["still"] = whole(still[1])
        event = event._replace(speaker="tool")
    event = event._replace(rank=whole(request["rank"]), pid=whole(request["pid"]), fields=fields)
    stamp = times.find(line)
    if stamp is None:
        return event
    return event._replace(time=stamp.time, clock=stamp.clock, sigma=stamp.sigma, raw_time=stamp.raw)


def stack_fields(frames: Frames) -> dict[str, object]:
    """Fields of a stack event; `frames` most recent first."""
    return {
        "frames": tuple(frames[:60]),
        "own": tuple(is_own(file) for file, _, _ in frames[:60]),
        "code": code_line(frames[::-1]),
        "collective": collective_of(frames[::-1]),
    }


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
            threads[-1][1].append((f["file"], whole(f["line"]), (f["func"] or "").strip()[:200]))
    return threads
