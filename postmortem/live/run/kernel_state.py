"""Counters of the kernel for a job: its memory cgroup and pressure; and the kernel's log.

    Memory().oom_kills()    3     processes of this cgroup that the OOM killer has ended so far

Files that a host does not have, or that this user may not read, are left out.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from postmortem.live import proc
from postmortem.live.collect.readers import kernel_lines
from postmortem.live.run import processes
from postmortem.live.run.journal import print_line

BASES = {"1": ("/sys/fs/cgroup/memory",), "2": ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")}
EVENTS = {"1": "memory.oom_control", "2": "memory.events"}
GAUGES = {  # name in a record: files of version 2 and of version 1
    "limit": ("memory.max", "memory.limit_in_bytes"),
    "peak": ("memory.peak", "memory.max_usage_in_bytes"),
    "current": ("memory.current", "memory.usage_in_bytes"),
    "pids": ("pids.current", "pids.current"),
    "pids_limit": ("pids.max", "pids.max"),
}
PRESSURE = ("memory", "cpu", "io")
MOST_LINES = 20_000  # new lines of the kernel's log


class Memory:
    """The memory cgroup of this process and of the job."""

    def __init__(self) -> None:
        self.version, self.path = processes.cgroup()
        # in a container its own path may not be mounted, but its root is
        folders = [folder for base in BASES[self.version] for folder in (base + self.path.rstrip("/"), base)]
        self._folder = next((f for f in folders if Path(f, EVENTS[self.version]).exists()), "")

    def __bool__(self) -> bool:
        return bool(self._folder)

    def oom_kills(self) -> int:
        """Return how many of its processes the OOM killer has ended; 0 where there is no counter."""
        return self.events().get("oom_kill", 0) if self._folder else 0

    def holds(self, pid: int) -> bool:
        """Return whether a process is in it or in one below it; one that has ended is in none."""
        version, path = processes.cgroup(pid)
        return version == self.version and (path + "/").startswith(self.path.rstrip("/") + "/")

    def events(self) -> dict[str, int]:
        """Return the counters of `memory.events`, or in version 1 of `memory.oom_control`."""
        rows = [line.split() for line in proc.text(f"{self._folder}/{EVENTS[self.version]}").splitlines()]
        return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}

    def gauges(self) -> dict[str, int | str]:
        """Return limits and peaks in bytes; `max` is no limit."""
        texts = {name: proc.text(f"{self._folder}/{files[self.version == '1']}") for name, files in GAUGES.items()}
        return {name: int(text) if text.isdecimal() else text[:40] for name, text in texts.items() if text}


def state(memory: Memory) -> dict[str, object]:
    """Return all counters for a record; pressure (PSI) as the kernel writes it."""
    found: dict[str, object] = {}
    if memory:
        found = {"cgroup": memory.path, "memory_events": memory.events(), "memory": memory.gauges()}
    pressure = {name: text for name in PRESSURE if (text := proc.text(f"/proc/pressure/{name}"))}
    return found | ({"pressure": pressure} if pressure else {})


class KernelLog:
    """The kernel's log from now on; empty for a user who may not read it."""

    def __init__(self) -> None:
        self._file = -1
        try:
            self._file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError:
            pass

    def save(self, folder: Path | None) -> None:
        """Write the new lines, if any, to `dmesg.txt`."""
        if self._file < 0:
            return
        try:
            lines = [line for _, line in islice(kernel_lines(self._file), MOST_LINES)]
        except (OSError, ValueError, IndexError):
            lines = []
        os.close(self._file)
        if folder and lines:
            try:
                (folder / "dmesg.txt").write_text("\n".join(lines) + "\n", "utf-8", "backslashreplace")
            except OSError as error:
                print_line(f"no dmesg.txt in {folder}: {error.strerror}")
