"""What the kernel counts and says about a job: its memory cgroup, pressure, and the kernel's log.

    Memory().oom_kills()   3     processes of this cgroup that the OOM killer has ended so far
    KernelLog().new()      ["2026-11-23T07:05:12,123456+00:00 python3 invoked oom-killer: ..."]

What a host does not have, or this user may not read, is left out.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from postmortem.live.run import processes
from postmortem.live.run.processes import read

BASES = {"1": ("/sys/fs/cgroup/memory",), "2": ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")}
EVENTS = {"1": "memory.oom_control", "2": "memory.events"}
GAUGES = {  # by the name they have in a record; version 2, version 1
    "limit": ("memory.max", "memory.limit_in_bytes"),
    "peak": ("memory.peak", "memory.max_usage_in_bytes"),
    "current": ("memory.current", "memory.usage_in_bytes"),
    "pids": ("pids.current", "pids.current"),
    "pids_limit": ("pids.max", "pids.max"),
}
PRESSURE = ("memory", "cpu", "io")
KMSG = "/dev/kmsg"
MOST = 20_000  # new lines of the kernel's log


class Memory:
    """The memory cgroup that this process is in, and with it the job."""

    def __init__(self) -> None:
        self.version, self.path = processes.cgroup()
        self._folder = ""
        for base in BASES[self.version]:  # in a container its own path may not be mounted, but its root is
            for folder in (base + self.path.rstrip("/"), base):
                if not self._folder and Path(folder, EVENTS[self.version]).exists():
                    self._folder = folder

    def __bool__(self) -> bool:
        return bool(self._folder)

    def oom_kills(self) -> int:
        """How many processes of it the OOM killer has ended; 0 where nobody counts."""
        return self.events().get("oom_kill", 0) if self._folder else 0

    def holds(self, pid: int) -> bool:
        """Whether a process is in it or in one below it; one that has ended is in none any more."""
        version, path = processes.cgroup(pid)
        return version == self.version and (path + "/").startswith(self.path.rstrip("/") + "/")

    def events(self) -> dict[str, int]:
        """`memory.events`, or of version 1 `memory.oom_control`."""
        words = [line.split() for line in read(f"{self._folder}/{EVENTS[self.version]}").splitlines()]
        return {w[0].decode("ascii", "replace"): int(w[1]) for w in words if len(w) == 2 and w[1].isdigit()}

    def gauges(self) -> dict[str, int | str]:
        """Limits and peaks, in bytes; `max` is no limit."""
        found: dict[str, int | str] = {}
        for name, files in GAUGES.items():
            text = read(f"{self._folder}/{files[self.version == '1']}").decode("ascii", "replace").strip()
            if text:
                found[name] = int(text) if text.isdigit() else text[:40]
        return found


def pressure() -> dict[str, str]:
    """How long tasks waited for memory, processors and disks, as the kernel writes it (PSI)."""
    said = {name: read(f"/proc/pressure/{name}").decode("ascii", "replace").strip() for name in PRESSURE}
    return {name: text for name, text in said.items() if text}


def state(memory: Memory) -> dict[str, object]:
    """All of it, for a record."""
    found: dict[str, object] = {}
    if memory:
        found = {"cgroup": memory.path, "memory_events": memory.events(), "memory": memory.gauges()}
    if waited := pressure():
        found["pressure"] = waited
    return found


class KernelLog:
    """The kernel's log from now on. Empty for a user who may not read it."""

    def __init__(self) -> None:
        self._file = -1
        try:
            self._file = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._file, 0, os.SEEK_END)
            os.read(self._file, 1 << 13)
        except BlockingIOError:  # nothing new yet, and it may be read
            pass
        except OSError:
            self.close()

    def new(self) -> list[str]:
        """The lines since then, as `dmesg --time-format iso` writes them."""
        booted = time.time() - time.monotonic()
        lines: list[str] = []
        while self._file >= 0 and len(lines) < MOST:
            try:
                record = os.read(self._file, 1 << 13)
            except BrokenPipeError:  # the ring went over what was not read yet
                continue
            except OSError:
                break
            head, _, text = record.partition(b";")
            fields = head.split(b",")
            if len(fields) >= 3 and fields[2].isdigit():
                first = text.split(b"\n", 1)[0].decode("utf-8", "backslashreplace")
                lines.append(f"{_iso(booted + int(fields[2]) / 1e6)} {first}")
        return lines

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _iso(moment: float) -> str:
    seconds, rest = divmod(int(moment * 1e6), 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))},{rest:06d}+00:00"
