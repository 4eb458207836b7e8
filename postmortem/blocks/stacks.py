"""Stack texts of living or dead processes: py-spy, pystack, gdb.

    Process 23888: /opt/train/venv/bin/python3 -u train.py
    Thread 23888 (idle): "MainThread"
        __getitem__ (train.py:13)                                  py-spy: most recent first

    Traceback for thread 20075 [] (most recent call last):
        (Python) File "train.py", line 19, in native_op            pystack: most recent last

    #0  0x00007f.. in gather_row (table=0x0, row=3) at file.cpp:10 gdb

In: the whole document. Out: one `stack` event for the main thread of each process (gdb: a `crash`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from postmortem.blocks.faulthandler import SIGNALS, stack_fields
from postmortem.blocks.frames import code_line
from postmortem.formats.excerpt import decode, document_event
from postmortem.model import Event, Source
from postmortem.model.digits import whole
from postmortem.system import lazy as late

_PROCESS = late.regex(r"Process (?P<pid>\d{1,10}): (?P<cmd>.*)")
_SPY_THREAD = late.regex(r'Thread (?:0x[0-9a-fA-F]+|\d+) \((?P<state>idle|active)[^)]*\)(?:: "(?P<name>[^"]*)")?')
_SPY_FRAME = late.regex(r"\s+(?P<func>\S.{0,300}?) \((?P<file>[^()]{1,400}):(?P<line>\d+)\)\s*$")
_PYSTACK_THREAD = late.regex(r"Traceback for thread (?P<tid>\d{1,10})")
_PYSTACK_FRAME = late.regex(r'\s+\(Python\) File "(?P<file>[^"]{1,400})", line (?P<line>\d+), in (?P<func>.+)')
_PYSTACK_DIED = late.regex(
    r"The process died due (?:to )?a (?P<what>[a-z ]+?)(?: accessing address|\s*$|\.)", re.IGNORECASE
)
_GDB_SIGNAL = late.regex(r"Program terminated with signal (?P<signal>SIG[A-Z]+), (?P<text>[^.]+)\.")
_GDB_FRAME = late.regex(
    r"#(?P<n>\d+)\s+(?:0x[0-9a-f]+ in )?(?P<func>[\w:~<>., *&]+?) \(.*\)"
    r"(?: at (?P<file>[^:\s]+):(?P<line>\d+)| from (?P<lib>\S+))?"
)
_PID_NAME = late.regex(r"pid[_-]?(\d+)")
_CORE_PID = late.regex(r"\[New LWP (\d+)\]|core\.(\d+)|Core was generated")
_FORKED = ("_launch", "_bootstrap_inner")


def parse(source: Source, content: bytes) -> Iterator[Event]:
    """Read a document of stacks, whichever tool wrote it."""
    lines = [decode(line) for line in content[: 8 << 20].split(b"\n")]
    yield from _py_spy(source, lines)
    yield from _pystack(source, lines)
    yield from _gdb(source, lines)


def _named_pid(source: Source) -> int | None:
    m = _PID_NAME.search(source.path)
    return whole(m[1]) if m else None


def _py_spy(source: Source, lines: list[str]) -> Iterator[Event]:
    pid = _named_pid(source)
    at, name, state = -1, "", ""
    frames: list[tuple[str, int, str]] = []

    def thread() -> Iterator[Event]:
        if at >= 0 and frames and name in ("MainThread", ""):
            fields = stack_fields(frames) | {"state": state, "thread": name, "tool": "py-spy"}
            if any(func.split(".")[-1] in _FORKED or "popen_fork" in file for file, _, func in frames):
                fields["child"] = True  # a forked worker repeats its parent's frames below popen_fork
            yield document_event(source, "stack", lines, at, fields, pid)

    for i, line in enumerate(lines):
        if m := _PROCESS.match(line):
            yield from thread()
            pid, at, frames = whole(m["pid"]), -1, []
        elif m := _SPY_THREAD.match(line):
            yield from thread()
            at, name, state, frames = i, m["name"] or "", m["state"], []
        elif at >= 0 and (m := _SPY_FRAME.match(line)):
            frames.append((m["file"], whole(m["line"]), m["func"]))
    yield from thread()


def _pystack(source: Source, lines: list[str]) -> Iterator[Event]:
    died = next(((i, m) for i, line in enumerate(lines) if (m := _PYSTACK_DIED.search(line))), None)
    at, tid = -1, 0
    frames: list[tuple[str, int, str]] = []
    found: list[Event] = []
    for i, line in enumerate([*lines, "Traceback for thread 0"]):
        if m := _PYSTACK_THREAD.match(line):
            if at >= 0 and frames:
                found.append(
                    document_event(
                        source,
                        "stack",
                        lines,
                        at,
                        stack_fields(list(reversed(frames))) | {"tool": "pystack", "tid": tid},
                        tid,
                    )
                )
            at, tid, frames = i, whole(m["tid"]), []
        elif at >= 0 and (m := _PYSTACK_FRAME.match(line)):
            frames.append((m["file"], whole(m["line"]), m["func"].strip()))
    if died and found:
        at, m = died
        what = m["what"].strip()
        signal = next(
            (s for text, s in SIGNALS.items() if text.lower() in what.lower() or what.lower() in text.lower()),
            what,
        )
        fields = dict(found[0].fields) | {"signal": signal, "line": lines[at].strip()}
        yield document_event(source, "crash", lines, at, fields, found[0].pid)
    else:
        yield from found


def _gdb(source: Source, lines: list[str]) -> Iterator[Event]:
    at = next((i for i, line in enumerate(lines) if _GDB_SIGNAL.search(line)), None)
    if at is None:
        return
    m = _GDB_SIGNAL.search(lines[at])
    assert m is not None
    frames: list[tuple[str, int, str]] = []
    for line in lines[at : at + 400]:
        if (f := _GDB_FRAME.match(line)) and f["func"]:
            if f["n"] == "0" and frames:
                break  # the next thread
            frames.append((f["file"] or f["lib"] or "?", whole(f["line"] or "0"), f["func"].strip()))
    pid = _named_pid(source)
    for line in lines[:at]:
        if pid is None and (c := _CORE_PID.search(line)) and (c[1] or c[2]):
            pid = whole(c[1] or c[2])
    top = next(
        ((file, n, func) for file, n, func in frames if n and not file.startswith(("./nptl", "../sysdeps"))),
        None,
    )
    code = f"{top[0].rsplit('/', 1)[-1]}:{top[1]}" if top else code_line(list(reversed(frames)))
    fields: dict[str, object] = {
        "signal": m["signal"],
        "line": lines[at].strip(),
        "frames": tuple(frames[:40]),
        "code": code,
        "tool": "gdb",
    }
    if top:
        fields["native"] = top[2]
    yield document_event(source, "crash", lines, at, fields, pid)
