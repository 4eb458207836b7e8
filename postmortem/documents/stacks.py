"""Stacks by py-spy, pystack or gdb: a `stack` for each dump, and a `crash` where a signal ended the process.

Process 23888: /opt/train/venv/bin/python3 -u train.py               py-spy: most recent first
Thread 23888 (idle): "MainThread"
    __getitem__ (train.py:13)

Traceback for thread 20075 [] (most recent call last):               pystack: most recent last
    (Python) File "train.py", line 19, in native_op

#0  0x00007f.. in gather_row (table=0x0, row=3) at file.cpp:10       gdb
"""

from __future__ import annotations

from collections.abc import Iterator

from postmortem.formats.excerpt import decode, document_event
from postmortem.formats.frames import Frames, code_line, frame_of, stack_fields
from postmortem.model import Event, Source
from postmortem.model.details import Details
from postmortem.model.digits import whole
from postmortem.system import forms

_REGEXES = forms.regexes("formats/exceptions")
_SIGNALS: dict[str, str] = forms.rows("formats/exceptions")["signals"]["names"]  # by their description
_FORKED = ("_launch", "_bootstrap_inner")


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
