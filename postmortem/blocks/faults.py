r"""Errors of the system, by the structure of the line: the library, the call, the error's number or text.

    misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.5<36541> failed : No route to host
                                                                      nccl socket/connect EHOSTUNREACH
    |CCL_ERROR| base_thread.cpp:36 start: error while creating worker thread #0 pthread_create returns 22
                                                                      oneccl thread/pthread_create EINVAL
    OSError: [Errno 27] File too large: 'state.pkl'                   - file/- EFBIG path
    INFO: task python3:15902 blocked for more than 122 seconds.       kernel/hung_task.c
    Call Trace:
     nfs4_proc_getattr+0x7f/0xb0 [nfsv4]                              kernel wait/nfs

C libraries end a message with strerror(errno), Python with `[Errno N] text`, Rust with `(os error N)`. torch
repeats NCCL's last warning below `Last error:` (torch/csrc/distributed/c10d/NCCLUtils.cpp); there it counts as
the warning that it was. In a kernel stack the innermost function of a known holder (a file system, a device or a
driver) decides; `schedule` and `io_schedule` belong to none.

Out: events of kind `fault`; patterns `on: fault` read `signature`. Retries and remarks (`NCCL INFO`) are no faults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from postmortem.formats.excerpt import Excerpt, Line
from postmortem.library import Signature
from postmortem.model import Event
from postmortem.model.details import Details
from postmortem.model.digits import number, whole
from postmortem.privacy import cut
from postmortem.system import forms, lazy

_ROWS, _REGEXES = forms.rows("blocks/faults"), forms.regexes("blocks/faults")
_ERRORS = {name: row for name, row in _ROWS.items() if "error" in row}
_FILES, _SOCKETS = ({name for name, row in _ERRORS.items() if row.get("of") == of} for of in ("file", "socket"))
_NUMBER = {row["error"]: name for name, row in _ERRORS.items()}
_NAME = {text: name for name, row in _ERRORS.items() for text in row["texts"]}
_LIBRARIES = [(name, _REGEXES[name]) for name, row in _ROWS.items() if "library" in row]
_CALLS = [(row["call"], _REGEXES[name]) for name, row in _ROWS.items() if "call" in row]
_HOLDERS = [(row["held_by"], _REGEXES[name]) for name, row in _ROWS.items() if "held_by" in row]
_KNOWN_ALONE = ("verbs", "thread")  # calls that are known without the library

OPENER = Signature(
    ":system-error",
    f"(?:{'|'.join(re.escape(text) for text, name in _NAME.items() if name in _FILES)})",
    after=512,
    before=512,
)
LIBRARY = Signature(":library-complaint", _ROWS["complaint"]["regex"], after=4096, before=512)
WAITING = Signature(":waiting-task", _ROWS["waiting-opener"]["regex"], after=8192, before=512)
FAR = 8  # lines below `Last error:` in which its text starts
DEPTH = 60  # lines of a kernel stack
# an error's text is behind the failed call, or alone; in the middle of a sentence it is prose
_TEXT = lazy.regex(_ROWS["text"]["regex"].replace("{{texts}}", "|".join(sorted(_NAME, key=len, reverse=True))))


class Fault(NamedTuple):
    """One error of the system. `reason` is the errno's name, or CUDA's words in quotes."""

    library: str
    domain: str
    call: str
    reason: str
    peer: str = ""
    path: str = ""

    @property
    def summary(self) -> str:
        """`nccl socket/connect ECONNREFUSED peer:link-local`, for patterns."""
        tail = f" peer:{_kind_of(self.peer)}" if self.peer else " path" if self.path else ""
        return f"{self.library or '-'} {self.domain}/{self.call or '-'} {self.reason}{tail}"


def parse(excerpt: Excerpt) -> Iterator[Event]:
    """Read a line with the text of a file error, if it is a complaint."""
    body = excerpt.envelope.body
    if excerpt.envelope.kernel or excerpt.source.kind == "kernel" or library_of(body)[0]:
        return
    text_removed = _TEXT.sub(" ", body[:4000])  # `Input/output error` is no level
    loud = _REGEXES["of-tool"].match(body) or _REGEXES["loud"].search(text_removed)
    if loud and not _REGEXES["remark"].search(body) and (found := read(body)) is not None:
        yield excerpt.event("fault", excerpt.first, fields=fields_of(found))


def parse_library(excerpt: Excerpt) -> Iterator[Event]:
    """Read a communication library's complaint, or the last of them as torch repeats it."""
    if last := _REGEXES["last"].search(excerpt.envelope.body):
        if (line := _last_error(excerpt, last.end())) is not None:
            text = line.envelope.body.strip()
            warned = cut(f"x.cc:0 NCCL WARN {text}", 2000)
            yield excerpt.event("fault", line, fields={**fields_of(read(text, "nccl")), "warned": warned})
        return
    library, text = library_of(excerpt.envelope.body)
    if not library or _REGEXES["again"].search(text):
        return
    # NCCL warns of each attempt to connect, and announces the next one below
    below = islice(excerpt.block(), 1, 3)
    retried = any(_REGEXES["retries"].search(line.envelope.body) for line in below)
    if not retried and (found := read(text, library)) is not None:
        yield excerpt.event("fault", excerpt.first, fields=fields_of(found))


def library_of(body: str) -> tuple[str, str]:
    """The library that wrote a line, and its message; without one an empty name and the line."""
    for name, form in _LIBRARIES:
        if m := form.search(body[:4000]):
            return name, next(filter(None, m.groups()), "").strip()
    return "", body


def _last_error(excerpt: Excerpt, at: int) -> Line | None:
    """The line of the last error: below the words, or behind them where a logger wrote it in one line."""
    lines = excerpt.block()
    first = next(lines)
    rest = first.envelope.body[at:].replace("\\n", "\n").strip(" \n\"'")
    if rest:
        return first.with_body(rest.split("\n")[0])
    return next((line for line in islice(lines, FAR) if line.envelope.body.strip()), None)


def read(text: str, library: str = "", inner: str = "") -> Fault | None:
    """The error in a complaint, or None. `inner` is the innermost frame of an exception."""
    text = cut(text, 2000)
    if m := _REGEXES["cuda-error"].search(text):
        return Fault(library, "cuda", "", f"'{m['text']}'")
    reason, at = _reason(text)
    if not reason:
        return None
    domain, call = _call(text[:at] if at else text, reason)
    if not library and reason not in _FILES and domain not in _KNOWN_ALONE:
        return None
    if m := _REGEXES["call-shm"].search(text):  # Python names the file behind the reason
        domain, call = "shm", _name_of(m[1])
    elif library and domain == "file" and "device" in _ERRORS[reason]:
        domain = "verbs"  # a communication library's device, not a disk
    elif not library and domain not in _KNOWN_ALONE:
        sockets = _REGEXES["of-sockets"].search(inner) and reason in ("ENOTCONN", "ESHUTDOWN")
        domain = "socket" if sockets else "file"
    peer = _REGEXES["peer"].search(text)
    path = None if peer else _REGEXES["path"].search(text)
    named = [next(filter(None, m.groups()), "") if m else "" for m in (peer, path)]
    return Fault(library, domain, call, reason, *named)


def _reason(text: str) -> tuple[str, int]:
    """The error's name, and its offset."""
    if m := _TEXT.search(text):
        return _NAME[m[1]], m.start(1)
    if m := _REGEXES["code"].search(text):
        return _NUMBER.get(whole(m[1]), ""), m.start(1)
    return "", 0


def _call(text: str, reason: str) -> tuple[str, str]:
    """The part of the system that failed, and the call."""
    for domain, form in _CALLS:
        if m := form.search(text):
            socket = reason in _SOCKETS and domain in ("memory", "file")
            return "socket" if socket else domain, _name_of(m[1])
    return ("socket" if reason in _SOCKETS else "file" if reason in _FILES else "system"), ""


def _name_of(call: str) -> str:
    return call.lower().split()[0].strip("/")


def _kind_of(peer: str) -> str:
    """The kind of an address. No other host reaches a `link-local` one; 127.0.1.1 is the host itself on Debian."""
    if peer.startswith("169.254.") or peer.lower().startswith("fe80:"):
        return "link-local"
    if peer.startswith("127.") and not peer.startswith("127.0.0.1"):
        return "loopback-alias"
    return "loopback" if peer.startswith(("127.", "::1", "localhost")) else "address"


def fields_of(found: Fault | None) -> Details:
    """The fields of a fault's event; patterns read `signature`."""
    if found is None:
        return {}
    detail = _ERRORS[found.reason]["texts"][0] if found.reason in _ERRORS else found.reason.strip("'")
    fields: Details = {"signature": found.summary, "detail": detail, "library": found.library or "-"}
    fields |= {"peer": found.peer} if found.peer else {}
    return fields | ({"path": found.path} if found.path else {})


# ── kernel stacks of waiting tasks ──────────────────────────────────────────────────────────────────────────


def parse_waiting(excerpt: Excerpt) -> Iterator[Event]:
    """Read the stack below the first line of a waiting task; of /proc/PID/stack, its first line."""
    if "[<0>]" in excerpt.text and any("[<0>]" in line.text for line in islice(excerpt.preceding(), 2)):
        return
    task = _REGEXES["waiting-task"].search(excerpt.text)
    stack = _stack(excerpt, task)
    holder = next((name for text in stack for name, form in _HOLDERS if form.search(text)), "")
    if not holder:
        return
    fields: Details = {"signature": f"kernel wait/{holder.replace(' ', '-')}", "detail": holder}
    pid = number(task["pid"]) if task else None
    if task:
        fields |= {"comm": task["comm"], "pid": pid}
    yield excerpt.event("fault", excerpt.first, severity="warning", fields=fields, pid=pid)


def _stack(excerpt: Excerpt, task: re.Match[str] | None) -> Iterator[str]:
    """The functions of one task's stack, innermost first, up to the next task."""
    seen = False
    for n, line in enumerate(islice(excerpt.following(), DEPTH)):
        if n and _REGEXES["waiting"].search(line.text):
            other = _REGEXES["waiting-task"].search(line.text)
            if seen or task is None or other is None or task["pid"] != other["pid"]:
                return
        if _REGEXES["kernel-frame"].search(line.text):
            seen = True
            yield line.text
        elif seen and "</TASK>" in line.text:
            return
