"""The crash of a process, as texts about it state it: the signal, the frames, the user's function among them."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from postmortem.formats.excerpt import document_event
from postmortem.formats.frames import Frames, is_own, stack_fields
from postmortem.model import Event, Source
from postmortem.model.details import Details
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
