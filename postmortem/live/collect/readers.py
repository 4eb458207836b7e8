"""Readers of a host's state, for hosts without the tools: each prints text, in a child process.

    read:files /proc/pressure/*  ->  ==> /proc/pressure/memory <==
                                     some avg10=0.00 ...

In a child, since a read in /proc can hang as a tool can: the output until then is saved.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from postmortem.live import proc
from postmortem.live.collect import rank_search
from postmortem.model.collected import WORDS
from postmortem.system import core_files

FILE_MAX = 1 << 20
FILES = 4096  # of one pattern
RECORDER_MAX = 64 << 20
KNOWN_PREFIXES = frozenset(WORDS["known_prefixes"].split())  # of variables whose values are saved, redacted
KNOWN_NAMES = frozenset(WORDS["known_names"].split())
JOB_CGROUP, SHARED_CGROUP = re.compile(WORDS["job_cgroup"]), re.compile(WORDS["shared_cgroup"])


def _print(text: str) -> None:
    data = text.encode("utf-8", "surrogateescape") + b"\n"
    while data:
        data = data[os.write(1, data) :]


def _text(path: str, limit: int = FILE_MAX) -> str:
    """Return the content of a file. Raise OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # no waiting for a FIFO's writer
    try:
        parts = []
        while limit > 0 and (piece := os.read(fd, min(limit, 1 << 16))):
            parts.append(piece)
            limit -= len(piece)
        return b"".join(parts).decode("utf-8", "surrogateescape")
    finally:
        os.close(fd)


def files(*patterns: str) -> None:
    """Print each file below its name."""
    for pattern in patterns:
        for path in sorted(glob.iglob(pattern))[:FILES]:
            _print(f"==> {path} <==")
            try:
                _print(_text(path).rstrip("\n"))
            except OSError as error:
                _print(f"({os.strerror(error.errno or 0)})")


def find_ranks() -> None:
    """Print a line for each candidate as soon as it is found."""
    for rank in rank_search.candidates():
        _print(json.dumps(asdict(rank)))


def environment(pid: str) -> None:
    """Print the initial environment of a process as `env` does."""
    env = rank_search.environment(int(pid)) if pid != "self" else dict(os.environ)
    for name in sorted(env):
        value = "\\n".join(env[name].splitlines())
        known = name in KNOWN_NAMES or name.partition("_")[0] in KNOWN_PREFIXES
        secret = any(word in name.upper() for word in WORDS["secret"].split())
        _print(f"{name}={value if known and not secret else '<not saved>'}")


def process(pid: str) -> None:
    """Print the kernel's view of one process."""
    names = ("status", "wchan", "stack", "syscall", "limits", "cgroup", "oom_score", "io", "schedstat")
    files(*(f"/proc/{pid}/{name}" for name in names))


def processes() -> None:
    """Print the columns of `ps -eo pid,ppid,stat,wchan:32,etime,time,rss,cmd`."""
    _print(f"{'PID':>9} {'PPID':>9} STAT {'WCHAN':32} {'ELAPSED':>11} {'TIME':>8} {'RSS':>9} CMD")
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGESIZE")
    up = float(_text("/proc/uptime").split()[0])
    for pid in rank_search.pids():
        fields = proc.stat(pid)
        if len(fields) < 22:
            continue
        state, parent = fields[0].decode(), fields[1].decode()
        used, age = _span((int(fields[11]) + int(fields[12])) // ticks), _span(int(up - int(fields[19]) / ticks))
        size = int(fields[21]) * page >> 10
        waits = proc.text(f"/proc/{pid}/wchan").strip("0") or "-"
        # in uninterruptible sleep its memory may be locked, and with it the command line
        command = "" if state == "D" else proc.text(f"/proc/{pid}/cmdline").replace("\0", " ")
        shown = " ".join(command.split()) or f"[{proc.text(f'/proc/{pid}/comm')}]"
        _print(f"{pid:>9} {parent:>9} {state:4} {waits:32} {age:>11} {used:>8} {size:>9} {shown}")


def _span(seconds: int) -> str:
    minutes, second = divmod(max(seconds, 0), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"


def cgroups(pids: str) -> None:
    """Print counters of the cgroups of these processes, and of their job's; without any, of our own."""
    texts = [proc.text(f"/proc/{pid or 'self'}/cgroup") for pid in pids.split(",")]
    for folder in sorted({folder for text in texts for folder in groups(text)}):
        files(*(f"{glob.escape(folder)}/{name}" for name in WORDS["cgroup_files"].split()))


def groups(text: str) -> Iterator[str]:
    """Yield the folders of a process's cgroups, and of its job's above them. A login session or a slice is none:
    it counts other programs too, at any time."""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and not {"memory", "pids"} & set(controllers.split(",")):
            continue
        base = f"/sys/fs/cgroup/{controllers}" if controllers else "/sys/fs/cgroup"
        parts = [part for part in path.split("/") if part]
        if not parts or not SHARED_CGROUP.fullmatch(parts[-1]):
            folder = "/".join((base, *parts))
            # a container may have its own at the root, although /proc names the host's path
            yield folder if os.path.isdir(folder) else base
        for n, part in enumerate(parts[:-1], 1):
            if JOB_CGROUP.search(part):
                yield "/".join((base, *parts[:n]))


def clock() -> None:
    """Print the host's clocks, read at the same moment."""
    now, boot, steady = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic()
    _print(f"realtime {now:.9f}\nboottime {boot:.9f}\nmonotonic {steady:.9f}")
    _print(f"utc {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(now))}\nzone {time.strftime('%z %Z')}")
    _print(f"boot_id {proc.text('/proc/sys/kernel/random/boot_id')}")
    files("/sys/devices/system/clocksource/clocksource0/current_clocksource")


def shm() -> None:
    """Print the free space of /dev/shm, and its files, the largest first."""
    _print_space("/dev/shm")
    found = []
    for folder, _folders, names in os.walk("/dev/shm"):
        for path in (f"{folder}/{name}" for name in names):
            try:
                s = os.lstat(path)
            except OSError:
                continue
            found.append((s.st_blocks * 512, s.st_size, s.st_uid, s.st_mtime, path))
    for taken, size, uid, changed, path in sorted(found, reverse=True)[:2000]:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(changed))
        _print(f"{taken:>14} {size:>14} uid={uid} {when} {path}")


def _print_space(path: str) -> None:
    s = os.statvfs(path)
    free, size = s.f_bavail * s.f_frsize, s.f_blocks * s.f_frsize
    _print(f"{path}: {free} of {size} bytes free, {s.f_favail} of {s.f_files} inodes free")


def space() -> None:
    """Print mounts, then the free space of each: network file systems last, since a server may not answer."""
    mounts = [line.split() for line in _text("/proc/mounts").splitlines()]
    for row in mounts:
        _print(" ".join(row))
    _print("")
    networked = tuple(WORDS["network_file_systems"].split())
    for row in sorted(mounts, key=lambda row: row[2].startswith(networked)):
        path = row[1].encode().decode("unicode_escape")
        if row[2].startswith(networked):
            _print(f"{path}: asking")
        try:
            _print_space(path)
        except OSError as error:
            _print(f"{path}: {os.strerror(error.errno or 0)}")


def kmsg(since: str) -> None:
    """Print the kernel's ring buffer since a time."""
    for moment, line in kernel_lines(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)):
        if moment >= float(since):
            _print(line)


def kernel_lines(fd: int) -> Iterator[tuple[float, str]]:
    """Yield the unread records of /dev/kmsg with their times, as `dmesg --time-format iso` prints them."""
    booted = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    while True:
        try:
            record = os.read(fd, 8192)
        except BlockingIOError:
            return
        except BrokenPipeError:  # overwritten meanwhile: the next record is there
            continue
        head, _, text = record.partition(b";")
        moment = booted + int(head.split(b",")[2]) / 1e6
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
        line = text.split(b"\n")[0].decode("utf-8", "surrogateescape")
        yield moment, f"{when},{int(moment % 1 * 1e6):06}+00:00 {line}"


def libraries(pid: str) -> None:
    """Print the libraries that a process has loaded, and the version of its PyTorch."""
    paths = {line.split(None, 5)[5] for line in _text(f"/proc/{pid}/maps", 16 << 20).splitlines() if line.count("/")}
    names = WORDS["libraries"].split()
    for path in sorted(paths):
        library, dot, _ = os.path.basename(path).partition(".so")
        if dot and any(name in library for name in names):
            _print(path)
    for folder in sorted({path.partition("/torch/lib/")[0] for path in paths if "/torch/lib/" in path}):
        version = re.search(r"__version__ = '([\w.+-]{1,60})'", proc.text(f"{folder}/torch/version.py"))
        if version:
            _print(f"torch=={version[1]}")


def dumps(*searches: str) -> None:
    """Print a line for each flight-recorder dump of a user that was written since a time."""
    for row in searches:
        prefix, uid, since = json.loads(row)
        for path in sorted(glob.iglob(glob.escape(prefix) + "[0-9]*")):
            try:
                s = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISREG(s.st_mode) and s.st_uid == uid and s.st_mtime >= since:
                _print(json.dumps([path, uid]))


def copy(path: str, uid: str) -> None:
    """Copy a flight-recorder dump if it is a file of the rank's user: a link there may lead to a file of root."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    s = os.fstat(fd)
    if not stat.S_ISREG(s.st_mode) or s.st_uid != int(uid):
        raise PermissionError(errno.EPERM, "no file of the rank's user", path)
    left = RECORDER_MAX
    while left > 0 and (piece := os.read(fd, min(left, 1 << 20))):
        left -= len(piece)
        while piece:
            piece = piece[os.write(1, piece) :]


def cores(*searches: str) -> None:
    """Print a line for each core of a user that was written since a time, of these jobs, or else of any rank."""
    seen = set()
    for row in searches:
        folder, uid, since, jobs, job = json.loads(row)
        for place in core_files.places(folder):
            for path, file in core_files.newest(place, since):
                core, owner = core_files.read(file), file.status.st_uid
                known = " ".join(core.environment.get(name, "") for name in rank_search.JOB)
                is_rank = any(name in core.environment for name, _ in rank_search.NUMBERS)
                own = known in jobs if jobs else is_rank and (not job or job in known.split())
                if path not in seen and owner in (0, uid) and (own or core.faults):
                    seen.add(path)
                    _print(json.dumps([path, owner, core.pid, core.program]))


def core(path: str, uid: str) -> None:
    """Print what a core states if it is a file of the rank's user."""
    _print(core_files.head(path, int(uid)))


_ALL = (environment, process, processes, cgroups, clock, shm, space, kmsg, libraries, dumps, copy, cores, core, files)
READERS: dict[str, Callable[..., Any]] = {"ranks": find_ranks, **{reader.__name__: reader for reader in _ALL}}
