"""The crash of a process, as texts about it state it: the signal, the frames, the user's function among them.

Program terminated with signal SIGSEGV, Segmentation fault.                                  gdb: innermost first
#0  0x00007f311055c67e in gather_row (table=0x0, row=3, dim=64) at kernels.cpp:11
[Current thread is 1 (Thread 0x7f3111877b80 (LWP 17538))]

* thread #1, name = 'python3', stop reason = signal SIGSEGV                       lldb; eu-stack; minidump-stackwalk
  * frame #0: 0x00007f311055c67e libkernels.so`gather_row(table=0x0000000000000000) at kernels.cpp:11:3

pid: 17589 ppid: 17584 sid: 17589                                                            pystack: innermost last
The process died due a segmentation fault accessing address: 0xa0
Traceback for thread 17591 [Has the GIL] (most recent call last):
    (Python) File "/opt/train/train.py", line 24, in <module>
    (C) File "/opt/train/kernels.cpp", line 11, in gather_row (libkernels.so)
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from postmortem.formats.excerpt import document_event
from postmortem.formats.frames import Frames, frame_of, is_own, stack_fields
from postmortem.model import Event, Source
from postmortem.model.details import Details
from postmortem.model.digits import whole
from postmortem.privacy import cut
from postmortem.system import forms

_REGEXES = forms.regexes("documents/crashes")
_SIGNALS: dict[str, str] = forms.rows("formats/exceptions")["signals"]["names"]  # by their description
NATIVE = re.compile(r"\.(?:cu|cuh|c|cc|cpp|cxx|h|hh|hpp|inl|rs)$")


def signal_of(text: str) -> str:
    """`SIGSEGV` for `a segmentation fault`, `11 (SEGV)`, `receiving signal SIGSEGV`."""
    if m := _REGEXES["signal"].search(text):
        return "SIG" + m[1]
    text = text.strip().lower()
    return next((s for name, s in _SIGNALS.items() if name.lower() in text or text in name.lower()), text)


def signal_number(number: int) -> str:
    """`SIGSEGV` for 11."""
    return next((s.name for s in signal.Signals if s.value == number), f"signal {number}")


def is_users(file: str) -> bool:
    """Whether a source file of a native frame is the user's, and none of Python, the C library or torch."""
    return bool(NATIVE.search(file)) and not _REGEXES["built"].search(file)


def _is_own_python(file: str) -> bool:
    return file.endswith(".py") and is_own(file)


def detail_of(frames: Frames, arguments: Sequence[str] = ()) -> tuple[str, str | None]:
    """`in gather_row (kernels.cpp:10), table=NULL` and `kernels.cpp:10`, by the innermost frame of the user's native
    code, or of the user's Python; else the innermost function and its library. `frames` innermost first."""
    users = [is_users(file) and line > 0 for file, line, _ in frames]
    users = users if any(users) else [_is_own_python(file) for file, _, _ in frames]
    at = users.index(True) if any(users) else None
    if at is not None:
        file, line, function = frames[at]
        place = f"{file.rpartition('/')[2]}:{line}"
        null = _REGEXES["null"].findall(arguments[at]) if at < len(arguments) else []
        text = f"in {_function(function)} ({place})" + "".join(f", {name}=NULL" for name in null[:3])
        python = next((f for f in frames[at + 1 :] if _is_own_python(f[0])), None) if is_users(file) else None
        return text + (f", called from {python[0].rpartition('/')[2]}:{python[1]}" if python else ""), place
    named = next(((file, f) for file, _, f in frames if f.strip("? ") and not _REGEXES["abort"].search(f)), None)
    if named is None:
        return "", None
    library = named[0].rpartition("/")[2]
    return f"in {_function(named[1])}" + (f" ({library})" if ".so" in library else ""), None


def stack(frames: Frames) -> Details:
    """The fields of a stack of native and Python frames, innermost first."""
    own = tuple(is_users(file) or _is_own_python(file) for file, _, _ in frames[:60])
    return stack_fields(frames) | {"own": own, "code": detail_of(frames)[1]}


def _function(name: str) -> str:
    return cut(name.split("(")[0].strip() or name, 100)


def event(
    source: Source, lines: list[str], at: int, name: str, frames: Frames, tool: str, pid: int | None = None,
    detail: str = "", arguments: Sequence[str] = (), **who: int | str | None,
) -> Event:  # fmt: skip
    """A `crash` with its decisive line `at` (from 0). `frames` are innermost first."""
    found = detail_of(frames, arguments)[0]
    fields: Details = stack(frames) | {"tool": tool, "signal": name}
    fields |= {
        "line": lines[at].strip(),
        "signature": f"crash {name} {' '.join(filter(None, (detail, found)))}".rstrip(),
    }
    fields |= {} if pid is None else {"pid": pid}
    return document_event(source, "crash", lines, at, fields, pid)._replace(**who)  # type: ignore[arg-type]


# ── debuggers ───────────────────────────────────────────────────────────────────────────────────────────────

_EXCEPTIONS = forms.regexes("formats/exceptions")
FRAMES = 400
_NATIVE = [form for name, form in _REGEXES.items() if name.startswith("frame ")]


@dataclass
class Thread:
    """One thread's stack; line `at` (from 0) is its first."""

    at: int
    lwp: int | None = None
    gil: bool = False
    frames: Frames = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)


def gdb(source: Source, lines: list[str], pid: int | None) -> Iterator[Event]:
    """A crash with the stack of the thread that raised it; of a live process a stack of its main thread.
    Of any debugger that prints native frames innermost first."""
    threads = threads_of(lines)
    if not threads:
        return
    live = any(line.startswith("[New Thread ") for line in lines)  # of a program that gdb started
    lwps = [] if live else [whole(m) for line in lines for m in _REGEXES["lwp"].findall(line)]
    attached = next((whole(m[1]) for line in lines if (m := _REGEXES["attached"].match(line))), None)
    named = next((whole(m[1]) for line in lines if (m := _REGEXES["core-name"].search(line))), None)
    pid = attached or pid or named or min(lwps, default=None)  # threads are younger than their process
    died = next(((i, m[m.lastgroup or 0]) for i, x in enumerate(lines) if (m := _REGEXES["died"].search(x))), None)
    if died is None:
        main = next((t for t in threads if t.lwp == pid), threads[-1])
        yield document_event(source, "stack", lines, main.at, stack_fields(main.frames) | {"tool": "gdb"}, pid)
        return
    current = next((whole(m[1]) for line in lines if (m := _REGEXES["current"].match(line))), None)
    first = threads[0].frames[0]  # gdb prints the innermost frame of the thread that it chose, then all threads
    same = [t for t in threads if t.lwp == current] if current else []
    same += [t for t in threads if t.frames[0] == first]
    raised = max(same, key=lambda t: (t.lwp == current or not current, len(t.frames)))
    yield event(source, lines, died[0], died[1], raised.frames, "gdb", pid, arguments=raised.arguments)


def threads_of(lines: list[str]) -> list[Thread]:
    """The stacks in what gdb printed."""
    threads: list[Thread] = []
    lwp: int | None = None
    for i, line in enumerate(lines):
        if m := _REGEXES["thread"].match(line):
            lwp = whole(m[m.lastgroup or 0]) if m.lastgroup in ("gdb", "eu") else None
        elif (f := next((f for form in _NATIVE if (f := form.match(line))), None)) and f["func"]:
            if f["n"] == "0":
                threads.append(Thread(i, lwp))
            if threads and len(threads[-1].frames) < FRAMES:
                threads[-1].frames.append((f["file"] or f["lib"] or "?", whole(f["line"] or "0"), f["func"].strip()))
                threads[-1].arguments.append(line)
    return threads


def pystack(source: Source, lines: list[str]) -> Iterator[Event]:
    """A crash, or a stack of the process: of the thread that has the GIL, else of its main thread."""
    threads = _pystack_threads(lines)
    if not threads:
        return
    pid = next((whole(m[1]) for line in lines[:40] if (m := _REGEXES["pystack-pid"].match(line))), None)
    main = next((t for t in threads if t.lwp == pid), threads[0])
    shown = next((t for t in threads if t.gil), main)
    for i, line in enumerate(lines):
        if m := _EXCEPTIONS["pystack-died"].search(line):
            address = _REGEXES["address"].search(line)
            detail = f"at address {address[1]}" if address else ""
            deep = next((t for t in threads if t.frames and is_users(t.frames[0][0])), shown)
            signal = signal_of(m["what"])
            yield event(source, lines, i, signal, deep.frames, "pystack", pid or main.lwp, detail)
            return
    yield document_event(
        source, "stack", lines, shown.at, stack_fields(shown.frames) | {"tool": "pystack"}, pid or main.lwp
    )


def crashed(lines: list[str], lwp: int, pid: int | None) -> Frames:
    """The frames of the thread that crashed, of the one that has the GIL, or of the main thread, innermost first."""
    threads = _pystack_threads(lines)
    wanted = [
        *(t for t in threads if t.lwp == lwp),
        *(t for t in threads if t.gil),
        *(t for t in threads if t.lwp == pid),
    ]
    return next((t.frames for t in (*wanted, *threads)), [])


def _pystack_threads(lines: list[str]) -> list[Thread]:
    threads: list[Thread] = []
    for i, line in enumerate(lines):
        if m := _EXCEPTIONS["pystack-thread"].match(line):
            threads.append(Thread(i, whole(m["tid"]), "Has the GIL" in line))
        elif threads and (m := _EXCEPTIONS["pystack-frame"].match(line)):
            threads[-1].frames.insert(0, frame_of(m))
    return [t for t in threads if t.frames]
