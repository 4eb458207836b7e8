"""faulthandler: what CPython prints when a process crashes, or when it was asked to dump its stacks.

    Fatal Python error: Segmentation fault

    Current thread 0x00007f84f4890b80 (most recent call first):
      File "/opt/train/train.py", line 22 in native_op

    Extension modules: numpy._core._multiarray_umath, ... (total: 22)

Most recent call first, no comma before `in`, no source lines, no time, no rank. If a C++ thread crashed there
is no `Current thread`. Two faults may interleave. Out: one event of kind `crash`, or `stack` for a dump
without a crash. Where `postmortem run` has asked for a dump, the line above it says when, of whom, and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from postmortem.blocks.frames import code_line, collective_of, is_own
from postmortem.formats import times
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
_THREAD = re.compile(r"(?P<current>Current thread|Thread) 0x[0-9a-f]+")
_FRAME = re.compile(r'\s+File "(?P<file>[^"]{1,400})", line (?P<line>\d+)(?: in (?P<func>.+))?')
_ASKED = re.compile(
    r"rank (?P<rank>\d{1,7}) \(pid (?P<pid>\d{1,10})\) (?P<what>dumps its stacks|is stopped \(state T\)): (?P<why>.{1,300})"
)
_AFTER = re.compile(r"rank (\d{1,7}) \(pid \d{1,10}\) (?:exited with code|killed by)")
_STILL = re.compile(r"the job had printed nothing for (\d{1,9}) s")
_FATAL = re.compile(r"Fatal Python error: (?P<signal>[^\n]{1,120})")
_TERMINATE = re.compile(
    r"terminate called after throwing an instance of '(?P<type>[^']{1,200})'"
    r"|^\s*what\(\):\s*(?P<what>.{1,600})"
)
SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}


def parse(excerpt: Excerpt) -> Iterator[Event]:
    """Read the crash that starts on the excerpt's line."""
    m = _FATAL.search(excerpt.text)
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
        "code": code_line(list(reversed(frames))),
        "collective": collective_of(list(reversed(frames))),
        "current": any(current for current, _ in threads),
    }
    for line in excerpt.preceding():
        if line.envelope.key == excerpt.envelope.key and (t := _TERMINATE.search(line.envelope.body)):
            fields.setdefault("terminate", t["type"] or t["what"])
            if t["what"]:
                fields.setdefault("what", t["what"])
    yield excerpt.event("crash", first, severity="fatal", fields=fields)


def parse_dump(excerpt: Excerpt) -> Iterator[Event]:
    """Read a stack dump of a living process (faulthandler.dump_traceback_later, SIGUSR handlers).
    Part of a crash: nothing."""
    if any("Fatal Python error" in line.text for line in excerpt.preceding()):
        return
    if (asked := _ASKED.search(excerpt.text)) and asked["what"] != "dumps its stacks":
        stopped: dict[str, object] = {"frames": (), "state": "T"}
        yield _when_asked(excerpt.event("stack", next(excerpt.following()), fields=stopped), asked)
        return
    current = excerpt.envelope.body.startswith("Current")
    over = next((line for line in excerpt.preceding() if line.text.strip()), None)
    above = over.envelope.body if over else ""
    asked = _ASKED.search(over.text) if over else None
    if _FRAME.match(above) and (not current or excerpt.source.path.endswith(OF_HOOK)):
        return  # a later thread of a dump that is read already
    lines = excerpt.block()
    first = next(lines)
    threads = _threads([first.envelope.body, *(line.envelope.body for line in lines)])
    frames = next((frames for current, frames in threads if current), threads[-1][1] if threads else [])
    main = threads[-1][1] if threads else frames  # the main thread is dumped last
    if main:
        who = excerpt.asked_by()
        fields = stack_fields(main) | ({"writer": who.writer} if who is not None and who.writer else {})
        rank = who.rank if who is not None else None
        event = excerpt.event("stack", first, severity="warning", fields=fields, rank=rank)
        yield _when_asked(event, asked, over.text if over else "") if asked else event


def _when_asked(event: Event, asked: re.Match[str], line: str = "") -> Event:
    """A dump that `postmortem run` asked for, with what the line above it says. `after`: the rank that had
    failed in that moment. `still`: for how long the job had said nothing when somebody ended it."""
    fields = dict(event.fields) | {"asked": asked["why"]}
    if after := _AFTER.match(asked["why"]):
        fields["after"] = whole(after[1])
    if still := _STILL.search(asked["why"]):  # what it saw from outside, as py-spy
        fields["still"] = whole(still[1])
        event = event._replace(speaker="tool")
    event = event._replace(rank=whole(asked["rank"]), pid=whole(asked["pid"]), fields=fields)
    stamp = times.find(line)
    if stamp is None:
        return event
    return event._replace(time=stamp.time, clock=stamp.clock, sigma=stamp.sigma, raw_time=stamp.raw)


def stack_fields(frames: list[tuple[str, int, str]]) -> dict[str, object]:
    """Fields of a stack event; `frames` most recent first."""
    oldest_first = list(reversed(frames))
    return {
        "frames": tuple(frames[:60]),
        "own": tuple(is_own(file) for file, _, _ in frames[:60]),
        "code": code_line(oldest_first),
        "collective": collective_of(oldest_first),
    }


def _threads(bodies: Iterator[str] | list[str]) -> list[tuple[bool, list[tuple[str, int, str]]]]:
    """Threads of one dump as (is current, frames most recent first). Behind another line a new dump begins."""
    threads: list[tuple[bool, list[tuple[str, int, str]]]] = []
    between = False
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
