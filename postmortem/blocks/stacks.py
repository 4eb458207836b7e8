"""Stacks of living or dead processes from py-spy, pystack and gdb: a `stack` event for each process, or a `crash`.

Process 23888: /opt/train/venv/bin/python3 -u train.py
Thread 23888 (idle): "MainThread"
    __getitem__ (train.py:13)                                  py-spy: most recent first

Traceback for thread 20075 [] (most recent call last):
    (Python) File "train.py", line 19, in native_op            pystack: most recent last

#0  0x00007f.. in gather_row (table=0x0, row=3) at file.cpp:10 gdb
"""

from __future__ import annotations

from collections.abc import Iterator

from postmortem.blocks.faulthandler import SIGNALS, stack_fields
from postmortem.blocks.frames import Frames, code_line
from postmortem.formats import forms
from postmortem.formats.excerpt import decode, document_event
from postmortem.model import Event, Source
from postmortem.model.digits import whole

_REGEXES = forms.regexes("blocks/exceptions")
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

    def thread() -> Iterator[Event]:
        if at >= 0 and frames and name in ("MainThread", ""):
            fields = stack_fields(frames) | {"state": state, "thread": name, "tool": "py-spy"}
            if any(func.split(".")[-1] in _FORKED or "popen_fork" in file for file, _, func in frames):
                fields["child"] = True  # a forked worker has its parent's frames below popen_fork
            yield document_event(source, "stack", lines, at, fields, pid)

    for i, line in enumerate(lines):
        if m := _REGEXES["spy-process"].match(line):
            yield from thread()
            pid, at, frames = whole(m["pid"]), -1, []
        elif m := _REGEXES["spy-thread"].match(line):
            yield from thread()
            at, name, state, frames = i, m["name"] or "", m["state"], []
        elif at >= 0 and (m := _REGEXES["spy-frame"].match(line)):
            frames.append((m["file"], whole(m["line"]), m["func"]))
    yield from thread()


def _pystack(source: Source, lines: list[str]) -> Iterator[Event]:
    at, tid = -1, 0
    frames: Frames = []
    found: list[Event] = []
    for i, line in enumerate([*lines, "Traceback for thread 0"]):
        if m := _REGEXES["pystack-thread"].match(line):
            if at >= 0 and frames:
                fields = stack_fields(frames[::-1]) | {"tool": "pystack", "tid": tid}
                found.append(document_event(source, "stack", lines, at, fields, tid))
            at, tid, frames = i, whole(m["tid"]), []
        elif at >= 0 and (m := _REGEXES["pystack-frame"].match(line)):
            frames.append((m["file"], whole(m["line"]), m["func"].strip()))
    died = next(((i, m) for i, line in enumerate(lines) if (m := _REGEXES["pystack-died"].search(line))), None)
    if not died or not found:
        yield from found
        return
    at, m = died
    text = m["what"].strip().lower()
    signal = next((s for name, s in SIGNALS.items() if name.lower() in text or text in name.lower()), text)
    fields = dict(found[0].fields) | {"signal": signal, "line": lines[at].strip()}
    yield document_event(source, "crash", lines, at, fields, found[0].pid)


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
    top = next(((file, n, f) for file, n, f in frames if n and not file.startswith(("./nptl", "../sysdeps"))), None)
    fields: dict[str, object] = {
        "signal": m["signal"],
        "line": lines[at].strip(),
        "frames": tuple(frames[:40]),
        "code": f"{top[0].rsplit('/', 1)[-1]}:{top[1]}" if top else code_line(frames[::-1]),
        "tool": "gdb",
    }
    if top:
        fields["native"] = top[2]
    yield document_event(source, "crash", lines, at, fields, pid)
