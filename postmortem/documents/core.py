"""ELF core files, as the kernel (fs/binfmt_elf.c), gdb's gcore and systemd-coredump write them; x86-64 and aarch64.

    core.python.17538.gpu-3.1795895410  ->  rank 1 (RANK in its environment), pid 17538: SIGSEGV at address 0x300, in
                                            libkernels.so+0x1149, main thread of 9, `python -u train.py`

The notes have the process (PRPSINFO), the signal (SIGINFO), the registers of each thread (PRSTATUS, that of the crash
first), the mapped files (FILE) and the auxiliary vector (AUXV). Of memory only one part is read: the strings below
AT_EXECFN, which are the environment (Linux, fs/exec.c), and of those only the names of `ENVIRONMENT` leave this module.
"""

from __future__ import annotations

import io
import re
import signal
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from postmortem.documents import crash, debugger
from postmortem.documents.parts import Parts
from postmortem.formats.excerpt import decode, source_event, timed
from postmortem.model import Event, Source, Stamp
from postmortem.model.details import Details
from postmortem.model.digits import number
from postmortem.system import lazy

ENVIRONMENT = re.compile(
    rb"(?:RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK|MASTER_ADDR|MASTER_PORT|TORCHELASTIC_\w+|SLURM_PROCID"
    rb"|SLURM_JOB_ID|SLURM_NODEID|OMPI_COMM_WORLD_RANK|PMI_RANK|HOSTNAME|CUDA_VISIBLE_DEVICES|NCCL_\w+|TORCH_\w+)"
)
SEGMENTS, NOTES, NOTED = 1 << 16, 24 << 20, 1 << 17  # program headers; bytes of notes, and their number
STRINGS, SHOWN = 2 << 20, 4096  # bytes of the environment, and of one value
MAPPINGS = 1 << 16
MACHINES = {62: (112, 16, 19), 183: (112, 32, 31)}  # e_machine -> of PRSTATUS the offset, and the place of pc and sp
PRSTATUS, PRPSINFO, AUXV, FILE, SIGINFO = 1, 3, 6, 0x46494C45, 0x53494749
AT_EXECFN = 31
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
SIGNALS = {s.value: s.name for s in signal.Signals if s.value < 32}
ADDRESSED = ("SIGILL", "SIGBUS", "SIGFPE", "SIGSEGV")
NEAR = 1 << 20  # bytes between a stack pointer and the address of an access beyond the stack's end
# core.COMM.UID.BOOT.PID.TIME (systemd), with the time in microseconds; core.%e.%p.%h.%t and the like
_SYSTEMD = lazy.regex(r"core\.[^/]+\.\d+\.[0-9a-f]{32}\.(?P<pid>\d+)\.(?P<time>\d{16})(?:\.\w+)?$")
_NAMED = lazy.regex(
    r"(?:^|[./])(?P<pid>\d{1,7})\.(?:(?P<host>[A-Za-z][\w-]*)\.)?(?P<time>1[5-9]\d{8}|2\d{9})(?:\.\w+)?$"
)


@dataclass
class _Core:
    """What the notes and the environment state."""

    parts: Parts
    segments: list[tuple[int, int, int]] = field(default_factory=list)  # address, offset, size
    machine: int = 0
    process: tuple[int, str, str] | None = None  # pid, name, command
    parent: int = 0
    threads: list[int] = field(default_factory=list)
    signal: int = 0
    siginfo: bytes = b""
    pc: int = 0
    sp: int = 0
    mappings: list[tuple[int, int, int, str]] = field(default_factory=list)  # start, end, offset, file
    execfn: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The size that the headers state."""
        return max((offset + size for _, offset, size in self.segments), default=0)


def parse(source: Source, parts: Parts, stacks: str = "") -> Iterator[Event]:
    """Read one core: an `identity` and a `crash`; `unreadable` where a part of it is missing or damaged. `stacks` is
    what pystack printed of it."""
    core = _Core(parts)
    try:
        _read(core)
    except Exception as error:  # pyelftools raises errors of all kinds on damaged structures
        core.faults.append(f"damaged near offset {parts.at:,} ({type(error).__name__})")
    if parts.ended and parts.at < core.size:
        core.faults.append(f"cut: the file ends before its {core.size:,} bytes, which the headers state")
    yield from _events(source, core, stacks)
    for fault in dict.fromkeys(core.faults):
        yield source_event(source, "unreadable", f"The core file is {fault}.", severity="warning")


# ── the file ────────────────────────────────────────────────────────────────────────────────────────────────


def _read(core: _Core) -> None:
    from elftools.elf.elffile import ELFFile

    head = core.parts.take(0, 64)
    size, number_of = struct.unpack_from("<HH", head, 54) if len(head) == 64 else (0, 0)
    table = struct.unpack_from("<Q", head, 32)[0] if len(head) == 64 else 0
    if head[4:6] != b"\2\1" or size != 56 or not number_of:
        core.faults.append("of a kind that is not read: no 64-bit little-endian core with program headers")
        return
    rows = core.parts.take(table, 56 * min(number_of, SEGMENTS))
    # an image of the headers alone: pyelftools never sees the sections, whose count may be hostile
    image = head[:32] + struct.pack("<QQ", 64, 0) + head[48:58] + bytes(6) + rows
    elf: Any = ELFFile(io.BytesIO(image))
    core.machine = struct.unpack_from("<H", head, 18)[0]
    notes = []
    for kind, _, offset, address, _, stored, _, _ in struct.iter_unpack("<IIQQQQQQ", rows[: len(rows) // 56 * 56]):
        if kind == 4:
            notes.append((offset, stored))
        elif kind == 1 and stored:
            core.segments.append((address, offset, stored))
    if not notes:
        core.faults.append("without notes: nothing tells the process")
    for offset, stored in notes[:8]:
        data = core.parts.take(offset, min(stored, NOTES))
        if len(data) < stored:
            core.faults.append(f"incomplete: of {stored:,} bytes of notes at offset {offset:,} there are {len(data):,}")
        _read_notes(core, elf, data)
    _read_environment(core)


def _read_notes(core: _Core, elf: Any, data: bytes) -> None:
    at = 0
    for _ in range(NOTED):
        if at + 12 > len(data):
            return
        names, size, kind = struct.unpack_from("<III", data, at)
        start = at + 12 + (names + 3 & ~3)
        if start + size > len(data):
            core.faults.append(f"damaged: a note of {size:,} bytes is larger than the rest")
            return
        if data[at + 12 : at + 16] == b"CORE":
            _take_note(core, elf, kind, data[start : start + size])
        at = start + (size + 3 & ~3)


def _take_note(core: _Core, elf: Any, kind: int, data: bytes) -> None:
    if kind == PRSTATUS and len(data) >= 336 and core.machine in MACHINES:
        if not core.threads:
            base, pc, sp = MACHINES[core.machine]
            core.signal = struct.unpack_from("<H", data, 12)[0] or struct.unpack_from("<I", data)[0]
            core.pc, core.sp = (struct.unpack_from("<Q", data, base + 8 * n)[0] for n in (pc, sp))
        core.threads.append(struct.unpack_from("<I", data, 32)[0])
    elif kind == PRPSINFO and core.process is None:
        info = elf.structs.Elf_Prpsinfo.parse(data)
        core.parent = info["pr_ppid"]
        words = (decode(text.split(b"\0")[0]).strip() for text in (info["pr_fname"], info["pr_psargs"]))
        core.process = (info["pr_pid"], *words)
    elif kind == SIGINFO and not core.siginfo:
        core.siginfo = data[:128]
    elif kind == AUXV:
        pairs = dict(struct.iter_unpack("<QQ", data[: len(data) // 16 * 16]))
        core.execfn = pairs.get(AT_EXECFN, 0)
    elif kind == FILE and not core.mappings and len(data) >= 16:
        if struct.unpack_from("<Q", data)[0] > MAPPINGS:
            core.faults.append("damaged: its list of mapped files has more rows than a process may have")
            return
        found = elf.structs.Elf_Nt_File.parse(data)
        rows = zip(found["Elf_Nt_File_Entry"], found["filename"], strict=False)
        core.mappings = [
            (row["vm_start"], row["vm_end"], row["page_offset"] * found["page_size"], decode(name))
            for row, name in rows
        ]


def _read_environment(core: _Core) -> None:
    """The strings right below that of AT_EXECFN, back to the first that is no NAME=value."""
    holds = ((a, offset) for a, offset, size in core.segments if a < core.execfn < a + size)
    address, offset = next(holds, (0, 0))
    if not address:
        core.faults.append("without the segment that has the environment, so its rank is not known from it")
        return
    low = max(address, core.execfn - STRINGS)
    data = core.parts.take(offset + low - address, core.execfn - low)
    if len(data) < core.execfn - low:
        far = "" if core.parts.ended else " (far into a compressed file: decompress it)"
        core.faults.append(f"without the part that has the environment{far}, so its rank is not known from it")
        return
    for text in reversed(data.removesuffix(b"\0").split(b"\0")):
        name, found, value = text.partition(b"=")
        if not found:
            return
        if ENVIRONMENT.fullmatch(name):
            core.environment[name.decode()] = decode(value[:SHOWN])


# ── what it states ──────────────────────────────────────────────────────────────────────────────────────────


def _events(source: Source, core: _Core, stacks: str) -> Iterator[Event]:
    environment = core.environment
    pid, comm, command = core.process or (None, "", "")
    named = _SYSTEMD.search(source.path) or _NAMED.search(source.path)
    if pid is None and named:
        pid = number(named["pid"])
    rank = next((n for key in RANKS if (n := number(environment.get(key, ""))) is not None), source.rank)
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
        if core.process:
            text = f"A core of pid {pid} (`{command}`) that no signal caused: a copy of a living process."
            yield source_event(source, "line", text, **who)
        return
    frames = debugger.crashed(stacks.split("\n"), core.threads[0], pid) if stacks else []
    detail = ", ".join(filter(None, (_detail(core, name), crash.detail_of(frames)[0])))
    text = f"pid {pid} (`{command or comm}`): {name}{' ' + detail if detail else ''}{_thread(core, pid)}"
    fields |= {
        "signal": name,
        "comm": comm,
        "command": command,
        "ppid": str(core.parent),
        "detail": detail,
        "tool": "core",
    }
    fields |= {"line": text, "says": f"crash {name} {detail}".rstrip()}
    states = "environment: " + " ".join(f"{key}={value}" for key, value in sorted(environment.items()))
    context = (text, states) if environment else (text,)
    fields |= crash.stack(frames) if frames else {}
    died = source_event(source, "crash", text, **who, severity="fatal", fields=fields, context=context)
    when = named["time"] if named else ""
    yield timed(died, Stamp(int(when) / (1e6 if len(when) == 16 else 1), "absolute", when, 0.5) if when else None)


def _detail(core: _Core, name: str) -> str:
    """`at address 0x300 in libkernels.so`; who sent the signal, where a process did."""
    found = []
    if len(core.siginfo) >= 24:
        code, sender = struct.unpack_from("<i", core.siginfo, 8)[0], struct.unpack_from("<I", core.siginfo, 16)[0]
        if name in ADDRESSED and code > 0 and code != 128:  # SI_KERNEL has no address
            address = struct.unpack_from("<Q", core.siginfo, 16)[0]
            file = _mapped(core.mappings, address) if name == "SIGBUS" else ""
            found.append(f"at address {address:#x}" + (f" of the mapped file {file}" if file else ""))
            if name == "SIGSEGV" and abs(address - core.sp) < NEAR <= address:
                found[0] += ", at the end of its stack (overflow),"
        elif code == 0 and sender and core.process and sender != core.process[0]:
            found.append(f"sent by pid {sender}")
    if place := _place(core.mappings, core.pc):
        found.append(f"in {place}")
    return " ".join(found)


def _mapped(mappings: list[tuple[int, int, int, str]], address: int) -> str:
    """The file behind an address; the name of one in memory has no secret, and says that it is in /dev/shm."""
    return next((file for start, end, _, file in mappings if start <= address < end), "")


def _place(mappings: list[tuple[int, int, int, str]], pc: int) -> str:
    """The mapped file of an instruction, and the offset in it."""
    for start, end, offset, file in mappings:
        if start <= pc < end:
            return f"{file.rpartition('/')[2]}+{pc - start + offset:#x}"
    return ""


def _thread(core: _Core, pid: int | None) -> str:
    which = "main thread" if core.threads[0] == pid else f"thread {core.threads[0]}"
    return f", {which} of {len(core.threads)}" if len(core.threads) > 1 else ""
