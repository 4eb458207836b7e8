"""Our own readers of a host's state, for hosts without the tools: each writes text as it goes, in a child
process.

    read:files /proc/pressure/*  ->  ==> /proc/pressure/memory <==
                                     some avg10=0.00 ...

A child, because a read in /proc can hang as a tool can: what was written until then is kept.
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

from postmortem.live.collect import ranks

FILE_MAX = 1 << 20
FILES = 4096  # of one pattern
RECORDER_MAX = 64 << 20
# Of these the values are saved, behind redaction; of all others only the names.
KNOWN = re.compile(
    r"(?:TORCH|PYTORCH|NCCL|GLOO|UCX|FI|OMPI|PMI|PMIX|MPI|OMP|MKL|CUDA|NVIDIA|HIP|ROCR|RCCL|XLA|SLURM|SLURMD"
    r"|KUBERNETES|RAY|ACCELERATE|DEEPSPEED|FSDP|PET|TP|PYTHON|LD|MALLOC|GROUP|ROLE|LOCAL|MASTER|WORLD)(?:_\w+)?"
    r"|RANK|PATH|HOSTNAME|HOME|USER|PWD|LANG|LC_\w+|TZ|TMPDIR|XDG_CACHE_HOME|VIRTUAL_ENV|CONDA_PREFIX"
)
SECRET = re.compile(r"TOKEN|SECRET|PASS|KEY|CRED|AUTH|COOKIE|PRIVATE|JWT", re.IGNORECASE)
UNSAVED = "<not saved>"
LIBRARY = re.compile(
    r"/[^/]*(?:nccl|rccl|torch|cuda|cudnn|gloo|mpi|ucp|ucs|ibverbs|rdmacm|efa|fabric|libc)[^/]*\.so[^/]*$"
)


def _say(text: str) -> None:
    data = text.encode("utf-8", "surrogateescape") + b"\n"
    while data:
        data = data[os.write(1, data) :]


def _text(path: str, most: int = FILE_MAX) -> str:
    # no waiting for a FIFO's writer
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        parts = []
        while most > 0 and (piece := os.read(fd, min(most, 1 << 16))):
            parts.append(piece)
            most -= len(piece)
        return b"".join(parts).decode("utf-8", "surrogateescape")
    finally:
        os.close(fd)


def files(*patterns: str) -> None:
    """The text of each file, below its name."""
    for pattern in patterns:
        for path in sorted(glob.iglob(pattern))[:FILES]:
            _file(path)


def _file(path: str) -> None:
    _say(f"==> {path} <==")
    try:
        _say(_text(path).rstrip("\n"))
    except OSError as error:
        _say(f"({os.strerror(error.errno or 0)})")


def find_ranks() -> None:
    """A line for each candidate, as it is found."""
    for rank in ranks.candidates():
        _say(json.dumps(asdict(rank)))


def environment(pid: str) -> None:
    """What a process was started with, as `env` prints it."""
    env = ranks.environment(int(pid)) if pid != "self" else dict(os.environ)
    for name in sorted(env):
        value = "\\n".join(env[name].splitlines())
        known = KNOWN.fullmatch(name) and not SECRET.search(name)
        _say(f"{name}={value if known else UNSAVED}")


def process(pid: str) -> None:
    """What the kernel says of one process."""
    for name in ("status", "wchan", "stack", "syscall", "limits", "cgroup", "oom_score", "io", "schedstat"):
        _file(f"/proc/{pid}/{name}")


def processes() -> None:
    """The columns of `ps -eo pid,ppid,stat,wchan:32,etime,time,rss,cmd`."""
    _say(f"{'PID':>9} {'PPID':>9} STAT {'WCHAN':32} {'ELAPSED':>11} {'TIME':>8} {'RSS':>9} CMD")
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGESIZE")
    up = float(_text("/proc/uptime").split()[0])
    for pid in ranks.processes():
        try:
            name, _, rest = _text(f"/proc/{pid}/stat").partition("(")[2].rpartition(")")
            fields = rest.split()
            state, parent = fields[0], fields[1]
            used, age = (int(fields[11]) + int(fields[12])) // ticks, int(up - int(fields[19]) / ticks)
            size = int(fields[21]) * page >> 10
            waits = _quiet(f"/proc/{pid}/wchan").strip("0") or "-"
            # in uninterruptible sleep its memory may be locked, and with it the command line
            command = "" if state == "D" else _quiet(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
        except (OSError, ValueError, IndexError):
            continue
        shown = " ".join(command.split()) or f"[{name}]"
        _say(f"{pid:>9} {parent:>9} {state:4} {waits:32} {_span(age):>11} {_span(used):>8} {size:>9} {shown}")


def _quiet(path: str) -> str:
    try:
        return _text(path, 1 << 14)
    except OSError:
        return ""


def _span(seconds: int) -> str:
    minutes, second = divmod(max(seconds, 0), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}"


GROUP_FILES = (
    "memory.events", "memory.events.local", "memory.peak", "memory.current", "memory.max",
    "memory.oom_control", "memory.max_usage_in_bytes", "memory.limit_in_bytes", "memory.failcnt",
    "pids.events", "pids.current", "pids.peak", "pids.max",
)  # fmt: skip
JOB_GROUP = re.compile(r"job_\d+|pod[0-9a-f_-]{8,}")
SHARED = re.compile(
    r"session-\w+\.scope|user-\d+\.slice|user@\d+\.service|(?:init|app)\.scope|\w+\.slice|sshd?\.service"
)


def cgroups(pids: str) -> None:
    """Counters of the cgroups of these processes, and of their job's; of our own where there are none."""
    texts = [_quiet(f"/proc/{pid or 'self'}/cgroup") for pid in pids.split(",")]
    for folder in sorted({folder for text in texts for folder in groups(text)}):
        for name in GROUP_FILES:
            path = f"{folder}/{name}"
            if os.path.exists(path):
                _file(path)


def groups(text: str) -> Iterator[str]:
    """The folders of a process's cgroups, and of its job's above them.

    What a login session or a slice counts, other programs did, at any time: it accuses nobody.
    """
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and not {"memory", "pids"} & set(controllers.split(",")):
            continue
        base = f"/sys/fs/cgroup/{controllers}" if controllers else "/sys/fs/cgroup"
        parts = [part for part in path.split("/") if part]
        if not parts or not SHARED.fullmatch(parts[-1]):
            folder = "/".join((base, *parts))
            # a container may have its own at the root, and still be told the host's path
            yield folder if os.path.isdir(folder) else base
        for n, part in enumerate(parts[:-1], 1):
            if JOB_GROUP.search(part):
                yield "/".join((base, *parts[:n]))


def clock() -> None:
    """Moments of this host's clocks, read at once."""
    now, boot, steady = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic()
    _say(f"realtime {now:.9f}\nboottime {boot:.9f}\nmonotonic {steady:.9f}")
    _say(f"utc {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(now))}\nzone {time.strftime('%z %Z')}")
    _say(f"boot_id {_quiet('/proc/sys/kernel/random/boot_id').strip()}")
    files("/sys/devices/system/clocksource/clocksource0/current_clocksource")


def shm() -> None:
    """Space of /dev/shm, and its files, the largest first."""
    _space("/dev/shm")
    found = []
    for folder, _folders, names in os.walk("/dev/shm"):
        for name in names:
            path = f"{folder}/{name}"
            try:
                s = os.lstat(path)
            except OSError:
                continue
            found.append((s.st_blocks * 512, s.st_size, s.st_uid, s.st_mtime, path))
    for taken, size, uid, changed, path in sorted(found, reverse=True)[:2000]:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(changed))
        _say(f"{taken:>14} {size:>14} uid={uid} {when} {path}")


def _space(path: str) -> None:
    s = os.statvfs(path)
    _say(
        f"{path}: {s.f_bavail * s.f_frsize} of {s.f_blocks * s.f_frsize} bytes free, "
        f"{s.f_favail} of {s.f_files} inodes free"
    )


NETWORKED = ("nfs", "fuse", "lustre", "ceph", "gpfs", "beegfs", "cifs", "smb", "wekafs", "9p", "afs")


def space() -> None:
    """Mounts, then the free space of each: network file systems last, since their server may not answer."""
    mounts = [line.split() for line in _text("/proc/mounts").splitlines()]
    for row in mounts:
        _say(" ".join(row))
    _say("")
    for row in sorted(mounts, key=lambda row: row[2].startswith(NETWORKED)):
        path = row[1].encode().decode("unicode_escape")
        try:
            if row[2].startswith(NETWORKED):
                _say(f"{path}: asking")
            _space(path)
        except OSError as error:
            _say(f"{path}: {os.strerror(error.errno or 0)}")


def kmsg(since: str) -> None:
    """The kernel's ring buffer since a time, in the form of `dmesg --time-format iso`."""
    fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    booted = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    while True:
        try:
            record = os.read(fd, 8192)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno == errno.EPIPE:  # overwritten while we read: the next record is there
                continue
            raise
        head, _, text = record.partition(b";")
        micro = booted * 1e6 + int(head.split(b",")[2])
        if micro < float(since) * 1e6:
            continue
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(micro // 1e6))
        line = text.split(b"\n")[0].decode("utf-8", "surrogateescape")
        _say(f"{when},{int(micro % 1e6):06}+00:00 {line}")


def libraries(pid: str) -> None:
    """Libraries that a process has loaded, and the version of its PyTorch."""
    paths = {line.split(None, 5)[5] for line in _text(f"/proc/{pid}/maps", 16 << 20).splitlines() if line.count("/")}
    for path in sorted(path for path in paths if LIBRARY.search(path)):
        _say(path)
    for folder in sorted({path.partition("/torch/lib/")[0] for path in paths if "/torch/lib/" in path}):
        version = re.search(r"__version__ = '([\w.+-]{1,60})'", _quiet(f"{folder}/torch/version.py"))
        if version:
            _say(f"torch=={version[1]}")


def system() -> None:
    """Kernel, distribution, drivers, devices."""
    _say(" ".join(os.uname()))
    files(
        "/etc/os-release", "/proc/cmdline", "/proc/uptime", "/proc/driver/nvidia/version",
        "/sys/module/*/version", "/sys/class/net/*/operstate", "/sys/class/net/*/mtu",
        "/sys/class/net/*/speed",
    )  # fmt: skip


def dumps(*asked: str) -> None:
    """A line for each flight-recorder dump of a user that was written since a time."""
    for row in asked:
        prefix, uid, since = json.loads(row)
        for path in sorted(glob.iglob(glob.escape(prefix) + "[0-9]*")):
            try:
                s = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISREG(s.st_mode) and s.st_uid == uid and s.st_mtime >= since:
                _say(json.dumps([path, uid]))


def copy(path: str, uid: str) -> None:
    """A flight-recorder dump, if it is a file of the rank's user: a link there may lead to what is root's."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    s = os.fstat(fd)
    if not stat.S_ISREG(s.st_mode) or s.st_uid != int(uid):
        raise PermissionError(errno.EPERM, "no file of the rank's user", path)
    left = RECORDER_MAX
    while left > 0 and (piece := os.read(fd, min(left, 1 << 20))):
        left -= len(piece)
        while piece:
            piece = piece[os.write(1, piece) :]


READERS: dict[str, Callable[..., Any]] = {
    "files": files,
    "ranks": find_ranks,
    "environment": environment,
    "process": process,
    "processes": processes,
    "cgroups": cgroups,
    "clock": clock,
    "shm": shm,
    "space": space,
    "kmsg": kmsg,
    "libraries": libraries,
    "system": system,
    "dumps": dumps,
    "copy": copy,
}
