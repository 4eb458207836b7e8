"""What a system keeps of a crash: systemd-coredump's lists, and apport's reports.

           PID: 20075 (python3)                                    coredumpctl info
        Signal: 11 (SEGV)
     Timestamp: Fri 2026-11-20 20:59:37 UTC (2min ago)
  Command Line: /opt/venv/bin/python3 -u train.py
      Hostname: gpu-3
                #0  0x00007fe3e635f4be gather_row (libkernels.so + 0x24be)

TIME                          PID  UID GID SIG     COREFILE EXE                     SIZE      coredumpctl list
Fri 2026-11-20 20:59:37 UTC 20075 1000 100 SIGSEGV present  /usr/bin/python3.11     11.2M

ProblemType: Crash                                                 apport: /var/crash/*.crash
ProcEnviron:
 RANK=3
CoreDump: base64
 H4sIAAAAAAAC/0NvcmVEdW1wAA==                        the core, as lines of one gzip or zstd stream
"""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from postmortem.documents import core, crash, outline
from postmortem.documents.parts import Parts
from postmortem.formats import plain_json, times
from postmortem.formats.excerpt import decode, source_event, timed
from postmortem.formats.frames import Frames
from postmortem.model import Event, Source, Stamp
from postmortem.model.digits import number, whole
from postmortem.privacy import cut
from postmortem.system import core_files, forms

_FORMS = forms.regexes("documents/crashes")
CORE, ZSTD = b"\nCoreDump: base64\n", b"\x28\xb5\x2f\xfd"
KEYS = 64  # characters of a key
_FIELDS = {"PID": "PID", "SIGNAL_NAME": "Signal", "EXE": "Executable", "HOSTNAME": "Hostname", "TIMESTAMP": "Timestamp"}


def coredumpctl(source: Source, content: bytes) -> Iterator[Event]:
    """A crash for each process of `coredumpctl info`, `list`, `list --json`, or an entry of `journalctl -o verbose`."""
    if content[:64].lstrip().startswith((b"[", b"{")):
        yield from (_listed if content.lstrip()[:1] == b"[" else _journal)(source, content)
        return
    lines, long = outline.lines_of(source, content)
    yield from long
    lines = _without_secrets(lines)
    starts = [i for i, line in enumerate(lines) if _FORMS["coredump-start"].match(line)]
    for at, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        yield from _info(source, lines, at, end)
    for i, line in enumerate(lines):
        if m := _FORMS["coredump-row"].match(line):
            one = crash.event(source, lines, i, crash.signal_of(m["signal"]), [], "coredumpctl", whole(m["pid"]))
            yield timed(_of(one, m["exe"]), times.find(m["time"]))


def _listed(source: Source, content: bytes) -> Iterator[Event]:
    leaves, broken = outline.read(source, content)
    lines, _ = outline.lines_of(source, content)
    for _, row in outline.items(leaves, 1):
        value = {leaf.dotted: leaf.value for leaf in row}
        name, pid = crash.signal_number(number(value.get("sig", "")) or 0), number(value.get("pid", ""))
        if "sig" in value and "exe" in value:
            one = _of(crash.event(source, lines, row[0].line, name, [], "coredumpctl", pid), value["exe"])
            yield timed(one, _microseconds(value.get("time", "")))
    yield from broken


def _journal(source: Source, content: bytes) -> Iterator[Event]:
    """The entries of `journalctl -o json`, one a line, each read as `-o verbose` would show it."""
    texts, long = outline.lines_of(source, content)
    for row, line in enumerate(texts):
        try:
            entry = plain_json.loads(line.encode())
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            environment = core_files.known(str(entry.get("COREDUMP_ENVIRON")).encode().split(b"\n"))
            lines = [f"{name}={value}" for name, value in environment.items()]
            lines += [f"COREDUMP_{key}={value}" for key in _FIELDS if (value := entry.get(f"COREDUMP_{key}"))]
            lines += str(entry.get("MESSAGE")).split("\n")
            for e in _info(source, lines, 0, len(lines)):
                yield e._replace(where=e.where._replace(line=row + 1))
    yield from long


def _without_secrets(lines: list[str]) -> list[str]:
    """The lines of `journalctl -o verbose`, of an environment only what may be shown."""
    inside, out = False, []
    for line in lines:
        m = _FORMS["journal-field"].match(line)
        inside = m[1] == "ENVIRON" if m else inside
        text = line.strip().removeprefix("COREDUMP_ENVIRON=")
        out.append(line if not inside or core_files.known([text.encode()]) else "")
    return out


def _microseconds(text: str) -> Stamp | None:
    return Stamp(int(text) / 1e6, "absolute", text, 0.5) if text.isdecimal() and len(text) == 16 else None


def _info(source: Source, lines: list[str], at: int, end: int) -> Iterator[Event]:
    values: dict[str, tuple[int, str]] = {}
    for i in range(at, end):
        key, _, value = lines[i].partition(": ")
        if m := _FORMS["coredump-field"].match(lines[i]):
            key, value = _FIELDS[m["key"]], m["value"]
        if len(key) < KEYS:
            values.setdefault(key.strip(), (i, value.strip()))
    if "Signal" not in values or "PID" not in values:
        return
    frames: Frames = []
    for i in range(at, end):
        if m := _FORMS["coredump-frame"].match(lines[i]):
            if m["n"] == "0" and frames:
                break  # the next thread: the first is the one that crashed
            frames.append((m["lib"] or "?", 0, m["func"].replace("n/a", "??")))
    pid = whole(values["PID"][1].split()[0])
    row, signal = values["Signal"]
    host, when = values.get("Hostname", (0, ""))[1] or source.host, values.get("Timestamp", (0, ""))[1]
    rank = core_files.rank_of(core_files.known(line.strip().encode() for line in lines[at:end]))
    who = {"host": host} if rank is None else {"host": host, "rank": rank}
    one = crash.event(source, lines, row, crash.signal_of(signal), frames, "coredumpctl", pid, **who)
    yield timed(_of(one, values.get("Executable", (0, ""))[1]), _microseconds(when) or times.find(when))


def _of(event: Event, program: str) -> Event:
    """The crash with the name of the program, which decides whether it may be a rank."""
    return event._replace(fields={**event.fields, "comm": program.rpartition("/")[2]}) if program else event


def apport(source: Source, parts: Parts, stacks: str = "") -> Iterator[Event]:
    """The crash of an apport report, and what its core states."""
    text, found, _ = parts.take(0, 8 << 20).partition(CORE)
    yield from _report(source, [decode(line) for line in text.split(b"\n")])
    if found:
        stream = Parts(_Encoded(parts, len(text) + len(found)))
        date = times.find(text.partition(b"\nDate: ")[2][:40].partition(b"\n")[0].decode("latin-1"))
        yield from (e if e.time is not None else timed(e, date) for e in core.parse(source, stream, stacks))


def abrt(source: Source, content: bytes) -> Iterator[Event]:
    """What a file of an abrt folder states: `reason` the signal, `environ` the rank."""
    m = _FORMS["abrt-folder"].search(source.path)
    if m is None:
        return
    lines, pid = [decode(line) for line in content[: 1 << 20].split(b"\n")], whole(m["pid"])
    if m["file"] == "environ":
        environment = core_files.known(content[: 1 << 20].replace(b"\0", b"\n").split(b"\n"))
        rank = core_files.rank_of(environment)
        host = environment.get("HOSTNAME")
        yield from [] if rank is None else [source_event(source, "identity", "", rank=rank, pid=pid, host=host)]
    elif m["file"] == "reason":
        one = crash.event(source, lines, 0, crash.signal_of(lines[0]), [], "abrt", pid)
        yield timed(_of(one, lines[0].split(" ")[0]), times.find(f"{m['day']}T{m['time']}"))


class _Encoded:
    """The stream in the lines of base64 from `at` on (problem_report.py)."""

    def __init__(self, parts: Parts, at: int) -> None:
        self._parts, self._at, self._rest = parts, at, b""
        self._unpack: Any = None
        self._ready = bytearray()

    def read(self, n: int, /) -> bytes:
        while len(self._ready) < n and (piece := self._parts.take(self._at, 1 << 16)):
            self._at += len(piece)
            *lines, self._rest = (self._rest + piece).split(b"\n")
            try:
                self._ready += b"".join(map(self._decoded, takewhile(lambda line: line[:1] == b" ", lines)))
            except Exception as error:  # each codec has errors of its own
                raise OSError(str(error)) from None
        out = bytes(self._ready[:n])
        del self._ready[:n]
        return out

    def _decoded(self, line: bytes) -> bytes:
        data = binascii.a2b_base64(line)
        if self._unpack is None:
            import zstandard

            self._unpack = zstandard.ZstdDecompressor().decompressobj() if data[:4] == ZSTD else zlib.decompressobj(31)
        return bytes(self._unpack.decompress(data))

    def read_at(self, at: int, n: int, /) -> None:
        return None

    def pass_over(self, n: int, /) -> int:
        return len(self.read(min(n, 1 << 20)))


def _report(source: Source, lines: list[str]) -> Iterator[Event]:
    places = {key: i for i, line in enumerate(lines) if line[:1].isalpha() for key in [line.partition(":")[0]]}
    values = {key: lines[i].partition(":")[2].strip() for key, i in places.items()}
    signal = values.get("SignalName") or values.get("Signal")
    if not signal:
        return
    environment = dict(line.strip().partition("=")[::2] for line in _block(lines, places, "ProcEnviron"))
    rank = source.rank if (found := core_files.rank_of(environment)) is None else found
    status = (line.split() for line in _block(lines, places, "ProcStatus"))
    pid = next((number(words[1]) for words in status if len(words) == 2 and words[0] == "Pid:"), None)
    thread = max(crash.threads_of(_block(lines, places, "Stacktrace")), key=lambda t: len(t.frames), default=None)
    frames, arguments = (thread.frames, thread.arguments) if thread else ([], [])
    at = places.get("SignalName", places.get("Signal", 0))
    name = crash.signal_of(signal) if not signal.isdecimal() else crash.signal_number(whole(signal))
    one = crash.event(source, lines, at, name, frames, "apport", pid, arguments=arguments, rank=rank)
    one = _of(one, cut(values.get("ExecutablePath", ""), 300))
    yield timed(one, times.find(values.get("Date", "")))


def _block(lines: list[str], places: dict[str, int], key: str) -> list[str]:
    """The lines below a key, without the space before each."""
    start = places.get(key, len(lines)) + 1
    end = next((i for i in range(start, len(lines)) if not lines[i].startswith(" ")), len(lines))
    return [line[1:] for line in lines[start:end]]
