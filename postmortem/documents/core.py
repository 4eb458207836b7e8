"""Core files: what `system.core_files` reads of them, and what `postmortem collect` saved of one, as events.

core.python.17538.gpu-3.1795895410  ->  rank 1 (RANK in its environment), pid 17538: SIGSEGV at address 0x300, in
                                        libkernels.so+0x1149, main thread of 9, `python -u train.py`

{"core_file": "/scratch/core.17538", "written": 1795895410.2, "pid": 17538, "signal": 11, "address": 768, ...}

Minidumps, as Breakpad and Crashpad write them on Linux (minidump_format.h of Breakpad), are streams behind MDMP: the
exception, whose code is the number of the signal, the modules, copies of /proc/PID/status, cmdline and environ.
Of the environment only the names of `core_files.ENVIRONMENT` leave this module.
"""

from __future__ import annotations

import re
import signal
import struct
from collections.abc import Iterator
from dataclasses import fields as fields_of
from typing import Any

from postmortem.documents import crash
from postmortem.documents.parts import Parts
from postmortem.formats import plain_json
from postmortem.formats.excerpt import decode, source_event, timed
from postmortem.model import Event, Source, Stamp
from postmortem.model.details import Details
from postmortem.model.digits import number, whole
from postmortem.privacy import cut
from postmortem.system import lazy
from postmortem.system.core_files import ADDRESSED, SHOWN, Core, known, rank_of, read

SIGNALS = {s.value: s.name for s in signal.Signals if s.value < 32}
# core.COMM.UID.BOOT.PID.TIME (systemd), with the time in microseconds; core.%e.%p.%h.%t and the like
_SYSTEMD = lazy.regex(r"core\.[^/]+\.\d+\.[0-9a-f]{32}\.(?P<pid>\d+)\.(?P<time>\d{16})(?:\.\w+)?$")
_NAMED = lazy.regex(
    r"(?:^|[./])(?P<pid>\d{1,7})\.(?:(?P<host>[A-Za-z][\w-]*)\.)?(?P<time>1[5-9]\d{8}|2\d{9})(?:\.\w+)?$"
)


def parse(source: Source, parts: Parts, stacks: str = "") -> Iterator[Event]:
    """Read one core: an `identity` and a `crash`; `unreadable` where a part of it is missing or damaged. `stacks` is
    what pystack printed of it."""
    yield from events(source, source.path, read(parts), None, stacks)


def head(source: Source, content: bytes) -> Iterator[Event]:
    """Read what `postmortem collect` saved of a core."""
    try:
        record = plain_json.loads(content)
    except (ValueError, RecursionError) as error:
        record = plain_json.reason(error)
    if not isinstance(record, dict):
        text = f"What was collected of a core cannot be read: {record}."
        yield source_event(source, "unreadable", cut(text, 300), severity="warning")
        return
    core = Core()
    for one in fields_of(Core):
        value, default = record.get(one.name), getattr(core, one.name)
        if type(value) is type(default):
            setattr(core, one.name, decode(value.encode("utf-8", "replace")) if isinstance(value, str) else value)
    core.environment = {str(key): str(value)[:SHOWN] for key, value in list(core.environment.items())[:1000]}
    core.faults = [str(fault)[:SHOWN] for fault in core.faults[:20]]
    at = record.get("written")
    written = Stamp(at, "absolute", str(at), 2.0) if isinstance(at, float) and 0 < at < 1e11 else None
    yield from events(source, cut(str(record.get("core_file")), SHOWN), core, written, "")


def events(source: Source, path: str, core: Core, written: Stamp | None = None, stacks: str = "") -> Iterator[Event]:
    """What a core states: who it was, how it ended, and what is missing."""
    yield from _crash(source, path, core, written, stacks)
    for fault in core.faults:
        yield source_event(source, "unreadable", f"The core file is {fault}.", severity="warning")


def _crash(source: Source, path: str, core: Core, written: Stamp | None, stacks: str) -> Iterator[Event]:
    environment = core.environment
    named = _SYSTEMD.search(path) or _NAMED.search(path)
    pid = core.pid or (number(named["pid"]) if named else None)
    rank = source.rank if (found := rank_of(environment)) is None else found
    host = (named.groupdict().get("host") if named else None) or environment.get("HOSTNAME") or source.host
    who: dict[str, Any] = {"rank": rank, "pid": pid, "host": host}
    fields: Details = {} if pid is None else {"pid": pid}
    if (world := number(environment.get("WORLD_SIZE", ""))) is not None:
        fields |= {"world": world}
    if (local := number(environment.get("LOCAL_RANK", ""))) is not None:
        fields |= {"local_rank": local}
    if rank is not None and pid is not None:
        yield source_event(source, "identity", "", **who, fields={**fields})
    name = SIGNALS.get(core.signal, f"signal {core.signal}")
    if not core.threads or not core.signal:
        if core.pid:
            text = f"A core of pid {pid} (`{core.command}`) that no signal caused: a copy of a living process."
            yield source_event(source, "line", text, **who)
        return
    frames = crash.crashed(stacks.split("\n"), core.thread, pid) if stacks else []
    detail = ", ".join(filter(None, (_detail(core), crash.detail_of(frames)[0])))
    text = f"pid {pid} (`{core.command or core.name}`): {name}{' ' + detail if detail else ''}{_thread(core, pid)}"
    fields |= {"signal": name, "comm": core.name, "command": core.command, "ppid": str(core.parent)}
    verb = "raised again" if core.raised and not frames else "crash"
    fields |= {"detail": detail, "tool": "core", "line": text, "signature": f"{verb} {name} {detail}".rstrip()}
    states = "environment: " + " ".join(f"{key}={value}" for key, value in sorted(environment.items()))
    context = (text, states) if environment else (text,)
    fields |= crash.stack(frames) if frames else {}
    died = source_event(source, "crash", text, **who, severity="fatal", fields=fields, context=context)
    if named:
        seconds = int(named["time"]) / (1e6 if len(named["time"]) == 16 else 1)
        written = Stamp(seconds, "absolute", named["time"], 0.5)
    yield timed(died, written)


def _detail(core: Core) -> str:
    """`at address 0x300 in libkernels.so+0x467e`; who sent the signal, where a process did."""
    found = []
    if core.address >= 0:
        # the name of a file in memory has no secret, and shows that it is in /dev/shm
        found.append(f"at address {core.address:#x}" + (f" of the mapped file {core.mapped}" if core.mapped else ""))
        found[0] += ", at the end of its stack (overflow)," if core.overflow else ""
    elif core.sender:
        found.append(f"sent by pid {core.sender}")
    return " ".join([*found, f"in {core.place}"] if core.place else found)


def _thread(core: Core, pid: int | None) -> str:
    which = "main thread" if core.thread == pid else f"thread {core.thread}"
    return f", {which} of {core.threads}" if core.threads > 1 else ""


MODULES, EXCEPTION, STATUS, COMMAND, ENVIRON = 4, 6, 0x47670004, 0x47670006, 0x47670007
STREAMS, BYTES = 256, 1 << 20  # the most of a file, and of a stream
MODULE, AMD64, RIP = 108, 1232, 248  # sizes of a module and of a context; the place of rip in it


# ── minidumps ───────────────────────────────────────────────────────────────────────────────────────────────

_PID = re.compile(rb"(?m)^Pid:\s*(\d{1,9})$")
_NAME = re.compile(rb"(?m)^Name:\s*(.{1,64})$")


def minidump(source: Source, parts: Parts, _stacks: str = "") -> Iterator[Event]:
    """Read one minidump: an `identity` and a `crash`."""
    found = Core(threads=1)
    when = 0
    try:
        _, _, count, table, _, when = struct.unpack("<4s5I", parts.take(0, 24))
        rows = parts.take(table, 12 * min(count, STREAMS))
        streams = {kind: parts.take(at, min(size, BYTES)) for kind, size, at in struct.iter_unpack("<3I", rows)}
        _read_minidump(found, parts, streams)
    except struct.error:
        found.faults.append(f"a minidump, and damaged near offset {parts.at:,}")
    yield from events(source, source.path, found, Stamp(when, "absolute", str(when), 1.0) if when else None)


def _read_minidump(found: Core, parts: Parts, streams: dict[int, bytes]) -> None:
    status = streams.get(STATUS, b"")
    if (m := _PID.search(status)) and (n := _NAME.search(status)):
        found.pid, found.name = whole(m[1].decode()), decode(n[1])
    found.command = decode(streams.get(COMMAND, b"").rstrip(b"\0").replace(b"\0", b" ")[:80])
    found.environment = known(streams.get(ENVIRON, b"").split(b"\0"))
    if exception := streams.get(EXCEPTION):
        found.thread, _, found.signal = struct.unpack_from("<3I", exception)
        if found.signal in ADDRESSED:
            found.address = struct.unpack_from("<Q", exception, 24)[0]
        size, context = struct.unpack_from("<2I", exception, 160)
        if size == AMD64:
            found.place = _place(parts, streams.get(MODULES, b""), parts.take(context + RIP, 8))


def _place(parts: Parts, modules: bytes, rip: bytes) -> str:
    (pc,) = struct.unpack("<Q", rip)
    for at in range(4, len(modules) - MODULE + 1, MODULE):
        base, size = struct.unpack_from("<QI", modules, at)
        if base <= pc < base + size:
            (name,) = struct.unpack_from("<I", modules, at + 20)
            (length,) = struct.unpack("<I", parts.take(name, 4))
            path = parts.take(name + 4, min(length, 1024)).decode("utf-16-le", "replace")
            return f"{decode(path.encode()).rpartition('/')[2]}+{pc - base:#x}"
    return ""
