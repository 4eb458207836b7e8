"""Stacks of processes: a `crash` of CPython's faulthandler, and a `stack` for each dump of any tool.

    Fatal Python error: Segmentation fault

    Current thread 0x00007f84f4890b80 (most recent call first):          faulthandler
      File "/opt/train/train.py", line 22 in native_op

    Process 23888: /opt/train/venv/bin/python3 -u train.py               py-spy: most recent first
    Thread 23888 (idle): "MainThread"
        __getitem__ (train.py:13)

    Traceback for thread 20075 [] (most recent call last):               pystack: most recent last
        (Python) File "train.py", line 19, in native_op

    #0  0x00007f.. in gather_row (table=0x0, row=3) at file.cpp:10       gdb

faulthandler prints the most recent call first, no source lines, no time and no rank. If a C++ thread crashed there
is no `Current thread`. Two faults may interleave. A dump that `postmortem run` requested has a line above it with
the time, the rank and the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from postmortem.blocks.frames import Frames, code_line, frame_of, stack_fields
from postmortem.formats import times
from postmortem.formats.excerpt import Excerpt, decode, document_event, timed
from postmortem.library import Signature
from postmortem.model import Event, Source
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
_ROWS, _REGEXES = forms.rows("blocks/exceptions"), forms.regexes("blocks/exceptions")
_THREAD, _FRAME, _REQUESTED = _REGEXES["thread"], _REGEXES["dumped-frame"], _REGEXES["requested"]
_SIGNALS: dict[str, str] = _ROWS["signals"]["names"]  # by their description
_FORKED = ("_launch", "_bootstrap_inner")


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


# ── documents of py-spy, pystack and gdb ────────────────────────────────────────────────────────────────────


def parse(source: Source, content: bytes) -> Iterator[Event]:
    """Read a document of stacks of any tool."""
    lines = [decode(line) for line in content[: 8 << 20].split(b"\n")]
    m = _REGEXES["pid-in-path"].search(source.path)
    pid = whole(m[1]) if m else None
    yield from _py_spy(source, lines, pid)
    yield from _pystack(source, lines)
    yield from _gdb(source, lines, pid)


def _py_spy(source: Source, lines: list[str], pid: int | None) -> Iterator[Event]:
    at, name, state = -1, "", ""
    frames: Frames = []
    for i, line in enumerate([*lines, "Process 0: "]):
        process, m = _REGEXES["spy-process"].match(line), _REGEXES["spy-thread"].match(line)
        if (process or m) and at >= 0 and frames and name in ("MainThread", ""):
            fields = stack_fields(frames) | {"state": state, "tool": "py-spy"}
            if any(func.split(".")[-1] in _FORKED or "popen_fork" in file for file, _, func in frames):
                fields["child"] = True  # a forked worker has its parent's frames below popen_fork
            yield document_event(source, "stack", lines, at, fields, pid)
        if process:
            pid, at, frames = whole(process["pid"]), -1, []
        elif m:
            at, name, state, frames = i, m["name"] or "", m["state"], []
        elif at >= 0 and (m := _REGEXES["spy-frame"].match(line)):
            frames.append(frame_of(m))


def _pystack(source: Source, lines: list[str]) -> Iterator[Event]:
    at, tid = -1, 0
    frames: Frames = []
    found: list[Event] = []
    for i, line in enumerate([*lines, "Traceback for thread 0"]):
        if m := _REGEXES["pystack-thread"].match(line):
            if at >= 0 and frames:
                fields = stack_fields(frames[::-1]) | {"tool": "pystack"}
                found.append(document_event(source, "stack", lines, at, fields, tid))
            at, tid, frames = i, whole(m["tid"]), []
        elif at >= 0 and (m := _REGEXES["pystack-frame"].match(line)):
            frames.append(frame_of(m))
    at, m = next(((i, m) for i, line in enumerate(lines) if (m := _REGEXES["pystack-died"].search(line))), (0, None))
    if not m or not found:
        yield from found
        return
    text = m["what"].strip().lower()
    signal = next((s for name, s in _SIGNALS.items() if name.lower() in text or text in name.lower()), text)
    crash: Details = {**found[0].fields, "signal": signal, "line": lines[at].strip()}
    yield document_event(source, "crash", lines, at, crash, found[0].pid)


def _gdb(source: Source, lines: list[str], pid: int | None) -> Iterator[Event]:
    at, m = next(((i, m) for i, line in enumerate(lines) if (m := _REGEXES["gdb-signal"].search(line))), (0, None))
    if m is None:
        return
    frames: Frames = []
    for line in lines[at : at + 400]:
        if (f := _REGEXES["gdb-frame"].match(line)) and f["func"]:
            if f["n"] == "0" and frames:
                break  # the next thread
            frames.append((f["file"] or f["lib"] or "?", whole(f["line"] or "0"), f["func"].strip()))
    for line in lines[:at]:
        if pid is None and (core := _REGEXES["core-pid"].search(line)) and (core[1] or core[2]):
            pid = whole(core[1] or core[2])
    own = ((file, n) for file, n, _ in frames if n and not file.startswith(("./nptl", "../sysdeps")))
    file, number = next(own, ("", 0))
    fields: Details = {
        "signal": m["signal"],
        "line": lines[at].strip(),
        "frames": tuple(frames[:40]),
        "code": f"{file.rsplit('/', 1)[-1]}:{number}" if file else code_line(frames[::-1]),
        "tool": "gdb",
    }
    yield document_event(source, "crash", lines, at, fields, pid)
