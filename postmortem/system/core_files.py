"""Core files: where the kernel writes them on this machine, and what one states of its process.

    find(17538, "/scratch/job")              ->  "/scratch/job/core.17538"
    read(File("/scratch/job/core.17538"))    ->  Core(pid=17538, signal=11, address=0x300, place="libkernels.so+0x1149",
                                                      environment={"RANK": "1", "WORLD_SIZE": "4"}, ...)

ELF cores of x86-64 and aarch64, as the kernel (fs/binfmt_elf.c), gdb's gcore and systemd-coredump write them. The notes
have the process (PRPSINFO), the signal (SIGINFO), the registers of each thread (PRSTATUS, that of the crash first), the
mapped files (FILE) and the auxiliary vector (AUXV). Of memory only one part is read: the strings below AT_EXECFN, which
are the environment (fs/exec.c), and of those only the names of `ENVIRONMENT` leave this module.

Runs on Python 3.8 with the standard library only: `postmortem collect` sends this module to other hosts.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, Any

ENVIRONMENT = re.compile(
    rb"(?:RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK|MASTER_ADDR|MASTER_PORT|TORCHELASTIC_\w+|SLURM_PROCID"
    rb"|SLURM_JOB_ID|SLURM_NODEID|OMPI_COMM_WORLD_RANK|PMI_RANK|HOSTNAME|CUDA_VISIBLE_DEVICES|NCCL_\w+|TORCH_\w+)"
)
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")  # of launchers
SEGMENTS, NOTES, NOTED = 1 << 16, 24 << 20, 1 << 17  # program headers; bytes of notes, and their number
STRINGS, SHOWN = 2 << 20, 4096  # bytes of the environment, and of one value
MAPPINGS = 1 << 16
MACHINES = {62: (112, 16, 19), 183: (112, 32, 31)}  # e_machine -> of PRSTATUS the offset, and the place of pc and sp
PRSTATUS, PRPSINFO, AUXV, FILE, SIGINFO = 1, 3, 6, 0x46494C45, 0x53494749
AT_ENTRY, AT_EXECFN = 9, 31
ADDRESSED = (4, 7, 8, 11)  # SIGILL, SIGBUS, SIGFPE, SIGSEGV: siginfo has the address
SI_KERNEL, SI_TKILL = 128, -6
NEAR = 1 << 20  # bytes between a stack pointer and the address of an access beyond the stack's end
PACKED = {".gz": "gzip", ".xz": "lzma", ".zst": "zstandard", ".lz4": "lz4.frame"}
HANDLERS = ("/var/lib/systemd/coredump", "/var/lib/apport/coredump", "/var/crash")  # where programs put what they get
ENTRIES, NEWEST = 10_000, 64  # of a folder


@dataclass
class Core:
    """What a core states. 0, -1 and the empty text are unknown."""

    pid: int = 0
    parent: int = 0
    name: str = ""
    command: str = ""
    program: str = ""  # the mapped file that was started
    thread: int = 0  # that raised the signal
    threads: int = 0
    signal: int = 0
    address: int = -1  # of a failed access
    sender: int = 0  # pid
    raised: bool = False  # again, by a handler of its own, as those of faulthandler and of DataLoader workers do
    overflow: bool = False  # the address is at the end of the stack
    place: str = ""  # file and offset of the instruction
    mapped: str = ""  # the file at the address, of SIGBUS
    size: int = 0  # that the headers state
    environment: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def read(parts: Any) -> Core:
    """Read a core in parts: `parts.take(at, n)`, `parts.at` and `parts.ended` as of `documents.parts.Parts`."""
    reader = _Reader(parts)
    core = reader.core
    try:
        reader.read()
        reader.conclude()
    except (struct.error, ValueError, IndexError) as error:
        core.faults.append(f"damaged near offset {parts.at:,} ({type(error).__name__})")
    core.size = max((offset + size for _, offset, size in reader.segments), default=0)
    if parts.ended and parts.at < core.size:
        core.faults.append(f"cut: the file ends before its {core.size:,} bytes, which the headers state")
    core.faults = list(dict.fromkeys(core.faults))
    return core


class _Reader:
    def __init__(self, parts: Any) -> None:
        self.parts, self.core = parts, Core()
        self.segments: list[tuple[int, int, int]] = []  # address, offset, size
        self.mappings: list[tuple[int, int, int, str]] = []  # start, end, offset, file
        self.machine = self.pc = self.sp = self.execfn = self.entry = 0
        self.siginfo = b""

    def read(self) -> None:
        faults, head = self.core.faults, self.parts.take(0, 64)
        size, count = struct.unpack_from("<HH", head, 54) if len(head) == 64 else (0, 0)
        if head[4:6] != b"\2\1" or size != 56 or not count:
            faults.append("of a kind that is not read: no 64-bit little-endian core with program headers")
            return
        self.machine = struct.unpack_from("<H", head, 18)[0]
        rows = self.parts.take(struct.unpack_from("<Q", head, 32)[0], 56 * min(count, SEGMENTS))
        notes = []
        for kind, _, offset, address, _, stored, _, _ in struct.iter_unpack("<IIQQQQQQ", rows[: len(rows) // 56 * 56]):
            if kind == 4:
                notes.append((offset, stored))
            elif kind == 1 and stored:
                self.segments.append((address, offset, stored))
        if not notes:
            faults.append("without notes: nothing tells the process")
        for offset, stored in notes[:8]:
            data = self.parts.take(offset, min(stored, NOTES))
            if len(data) < stored:
                faults.append(f"incomplete: of {stored:,} bytes of notes at offset {offset:,} there are {len(data):,}")
            self._read_notes(data)
        self._read_environment()

    def _read_notes(self, data: bytes) -> None:
        at = 0
        for _ in range(NOTED):
            if at + 12 > len(data):
                return
            names, size, kind = struct.unpack_from("<III", data, at)
            start = at + 12 + (names + 3 & ~3)
            if start + size > len(data):
                self.core.faults.append(f"damaged: a note of {size:,} bytes is larger than the rest")
                return
            if data[at + 12 : at + 16] == b"CORE":
                self._take_note(kind, data[start : start + size])
            at = start + (size + 3 & ~3)

    def _take_note(self, kind: int, data: bytes) -> None:
        core = self.core
        if kind == PRSTATUS and len(data) >= 336 and self.machine in MACHINES:
            if not core.threads:
                base, pc, sp = MACHINES[self.machine]
                core.signal = struct.unpack_from("<H", data, 12)[0] or struct.unpack_from("<I", data)[0]
                self.pc, self.sp = (struct.unpack_from("<Q", data, base + 8 * n)[0] for n in (pc, sp))
                core.thread = struct.unpack_from("<I", data, 32)[0]
            core.threads += 1
        elif kind == PRPSINFO and len(data) >= 136 and not core.pid:
            core.pid, core.parent = struct.unpack_from("<II", data, 24)
            core.name, core.command = (_text(data[at:end].split(b"\0")[0]).strip() for at, end in ((40, 56), (56, 136)))
        elif kind == SIGINFO and not self.siginfo:
            self.siginfo = data[:128]
        elif kind == AUXV:
            pairs = dict(struct.iter_unpack("<QQ", data[: len(data) // 16 * 16]))
            self.execfn, self.entry = pairs.get(AT_EXECFN, 0), pairs.get(AT_ENTRY, 0)
        elif kind == FILE and not self.mappings and len(data) >= 16:
            self._take_files(data)

    def _take_files(self, data: bytes) -> None:
        count, page = struct.unpack_from("<QQ", data)
        if count > MAPPINGS:
            self.core.faults.append("damaged: its list of mapped files has more rows than a process may have")
            return
        names = data[16 + 24 * count :].split(b"\0")
        rows = struct.iter_unpack("<QQQ", data[16 : 16 + 24 * count])
        self.mappings = [(start, end, at * page, _text(name)) for (start, end, at), name in zip(rows, names)]  # noqa: B905

    def _read_environment(self) -> None:
        """The strings right below that of AT_EXECFN, back to the first that is no NAME=value."""
        holds = ((a, offset) for a, offset, size in self.segments if a < self.execfn < a + size)
        address, offset = next(holds, (0, 0))
        if not address:
            self.core.faults.append("without the segment that has the environment, so its rank is not known from it")
            return
        low = max(address, self.execfn - STRINGS)
        data = self.parts.take(offset + low - address, self.execfn - low)
        if len(data) < self.execfn - low:
            far = "" if self.parts.ended else " (far into a compressed file: decompress it)"
            self.core.faults.append(f"without the part that has the environment{far}, so its rank is not known from it")
            return
        for text in reversed(data[: len(data) - data.endswith(b"\0")].split(b"\0")):
            if b"=" not in text:
                return
            self.core.environment.update(known([text]))

    def conclude(self) -> None:
        """The address, the sender, and the files that the addresses are in."""
        core, info = self.core, self.siginfo
        if len(info) >= 24:
            code, sender = struct.unpack_from("<i", info, 8)[0], struct.unpack_from("<I", info, 16)[0]
            if core.signal in ADDRESSED and code > 0 and code != SI_KERNEL:
                core.address = struct.unpack_from("<Q", info, 16)[0]
                core.mapped = self._file(core.address)[0] if core.signal == ADDRESSED[1] else ""
                core.overflow = core.signal == ADDRESSED[-1] and abs(core.address - self.sp) < NEAR <= core.address
            elif core.signal in ADDRESSED and code == SI_TKILL and sender == core.pid:
                core.raised = True
            elif code == 0 and core.pid not in (0, sender):
                core.sender = sender
        file, offset = self._file(0 if core.raised else self.pc)
        core.place = f"{file.rpartition('/')[2]}+{offset:#x}" if file else ""
        core.program = self._file(self.entry)[0]

    def _file(self, address: int) -> tuple[str, int]:
        """The mapped file of an address, and the offset in it."""
        rows = ((file, address - start + at) for start, end, at, file in self.mappings if start <= address < end)
        return next(rows, ("", 0))


def known(strings: Iterable[bytes]) -> dict[str, str]:
    """Return the variables that may be shown."""
    pairs = (text.partition(b"=") for text in strings)
    return {name.decode(): _text(value[:SHOWN]) for name, _, value in pairs if ENVIRONMENT.fullmatch(name)}


def rank_of(environment: Mapping[str, str]) -> int | None:
    """Return the rank that a launcher gave to a process; None without one."""
    values = (environment.get(name, "") for name in RANKS)
    return next((int(value) for value in values if value.isascii() and value.isdigit() and len(value) < 8), None)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


# ── on disk ─────────────────────────────────────────────────────────────────────────────────────────────────


class File:
    """Parts of a core on disk, which may be compressed. Raises OSError; ImportError where its codec is missing."""

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        self.status, self.at, self.ended = os.fstat(fd), 0, False
        self._raw: IO[bytes] = os.fdopen(fd, "rb")
        codec = PACKED.get(Path(path).suffix)
        self._file: Any = import_module(codec).open(self._raw, "rb") if codec else self._raw

    def take(self, at: int, n: int) -> bytes:
        """Return n bytes from `at` on; fewer where they are out of reach."""
        data = b""
        if 0 <= at < 1 << 62 and n > 0:
            with suppress(Exception):  # each codec has errors of its own for what is cut or damaged
                self._file.seek(at)
                data = self._file.read(n)
            self.at, self.ended = max(self.at, at + len(data)), self.ended or len(data) < n
        return data

    def is_core(self) -> bool:
        """Return whether it is an ELF core of a regular file."""
        head = self.take(0, 18) if stat.S_ISREG(self.status.st_mode) else b""
        return head[:4] == b"\x7fELF" and head[16:] == b"\4\0"

    def close(self) -> None:
        self._raw.close()


def head(path: str, uid: int | None = None) -> str:
    """Return what a core states, as JSON. Raise PermissionError if it is no core of that user."""
    file = File(path)
    try:
        if not file.is_core() or uid not in (None, file.status.st_uid):
            raise PermissionError(errno.EPERM, "no core of the rank's user", path)
        facts = {"core_file": path, "bytes": file.status.st_size, "written": file.status.st_mtime}
        return json.dumps({**facts, **asdict(read(file))}, indent=1) + "\n"
    finally:
        file.close()


def pattern() -> str:
    """Return core_pattern; empty if it cannot be read, or the kernel writes no cores."""
    try:
        return Path("/proc/sys/kernel/core_pattern").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def lacking() -> str:
    """Return why the core of a child is not to be had here; empty if it is."""
    to = pattern()
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        return "the hard limit on core files is 0 (ulimit -H -c)"
    if to.startswith("|"):
        program = to[1:].split(" ")[0].rpartition("/")[2]
        return "" if program in ("systemd-coredump", "apport") else f"core_pattern gives them to `{program}`"
    if not to or ("/" in to and not os.access(Path(to).parent, os.W_OK)):
        return f"core_pattern `{to}` names no folder that can be written"
    return ""


def places(folder: str) -> list[str]:
    """Return the folders where the core of a process that ran in `folder` may be."""
    to = pattern().replace("%h", os.uname().nodename)
    own = [] if to.startswith("|") else [str(Path(folder, to).parent)]
    return [place for place in dict.fromkeys([*own, *HANDLERS]) if Path(place).is_dir()]


def newest(folder: str, since: float) -> Iterator[tuple[str, File]]:
    """Yield the cores in a folder that were written since then, the newest first; each is open for one turn."""
    found = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, ENTRIES):
            with suppress(OSError):
                s = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(s.st_mode) and s.st_mtime >= since and s.st_size:
                    found.append((s.st_mtime, entry.path))
    for _, path in sorted(found, reverse=True)[:NEWEST]:
        with suppress(OSError, ImportError):
            file = File(path)
            try:
                if file.is_core():
                    yield path, file
            finally:
                file.close()


def find(pid: int, folder: str, since: float = 0.0) -> str:
    """Return the path of the core of a process that ran in `folder`; empty if it is not found."""
    return next((path for place in places(folder) for path, file in newest(place, since) if read(file).pid == pid), "")
