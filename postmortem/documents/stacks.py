"""Stacks of a process: by py-spy, whose dumps are read here, or by a debugger (see `debugger`).

Process 23888: /opt/train/venv/bin/python3 -u train.py               py-spy: most recent first
Thread 23888 (idle): "MainThread"
    __getitem__ (train.py:13)

Traceback for thread 20075 [] (most recent call last):               pystack: most recent last
    (Python) File "train.py", line 19, in native_op

#0  0x00007f.. in gather_row (table=0x0, row=3) at file.cpp:10       gdb
"""

from __future__ import annotations

from collections.abc import Iterator

from postmortem.documents import debugger
from postmortem.formats.excerpt import decode, document_event
from postmortem.formats.frames import Frames, frame_of, stack_fields
from postmortem.model import Event, Source
from postmortem.model.digits import whole
from postmortem.system import forms

_REGEXES = forms.regexes("formats/exceptions")
_FORKED = ("_launch", "_bootstrap_inner")


def parse(source: Source, content: bytes) -> Iterator[Event]:
    """Read a document of stacks of any tool."""
    lines = [decode(line) for line in content[: 8 << 20].split(b"\n")]
    m = _REGEXES["pid-in-path"].search(source.path)
    pid = whole(m[1]) if m else None
    yield from py_spy(source, lines, pid)
    yield from debugger.pystack(source, lines)
    yield from debugger.gdb(source, lines, pid)


def py_spy(source: Source, lines: list[str], pid: int | None) -> Iterator[Event]:
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
