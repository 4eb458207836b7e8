"""Minidumps, as Breakpad and Crashpad write them on Linux (minidump_format.h of Breakpad).

    MDMP, streams: the exception, the modules, copies of /proc/PID/status, cmdline and environ

The code of the exception is the number of the signal. Of the environment only the names of `core_files.ENVIRONMENT`
leave this module.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from postmortem.documents import core
from postmortem.documents.parts import Parts
from postmortem.formats.excerpt import decode
from postmortem.model import Event, Source, Stamp
from postmortem.model.digits import whole
from postmortem.system.core_files import ADDRESSED, Core, known

MODULES, EXCEPTION, STATUS, COMMAND, ENVIRON = 4, 6, 0x47670004, 0x47670006, 0x47670007
STREAMS, BYTES = 256, 1 << 20  # the most of a file, and of a stream
MODULE, AMD64, RIP = 108, 1232, 248  # sizes of a module and of a context; the place of rip in it
_PID = re.compile(rb"(?m)^Pid:\s*(\d{1,9})$")
_NAME = re.compile(rb"(?m)^Name:\s*(.{1,64})$")


def parse(source: Source, parts: Parts, _stacks: str = "") -> Iterator[Event]:
    """Read one minidump: an `identity` and a `crash`."""
    found = Core(threads=1)
    when = 0
    try:
        _, _, count, table, _, when = struct.unpack("<4s5I", parts.take(0, 24))
        rows = parts.take(table, 12 * min(count, STREAMS))
        streams = {kind: parts.take(at, min(size, BYTES)) for kind, size, at in struct.iter_unpack("<3I", rows)}
        _read(found, parts, streams)
    except struct.error:
        found.faults.append(f"a minidump, and damaged near offset {parts.at:,}")
    yield from core.events(source, source.path, found, Stamp(when, "absolute", str(when), 1.0) if when else None)


def _read(found: Core, parts: Parts, streams: dict[int, bytes]) -> None:
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
