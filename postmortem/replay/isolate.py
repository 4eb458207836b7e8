"""A place to fail in: a private folder and, where asked and allowed, a memory cgroup,
two hosts with a wire between them.

In: what a scenario needs. Out: a `Place`, whose every resource carries one tag,
`postmortem-replay-<pid>-<random>`:

    /tmp/postmortem-replay-4711-x7k2/{job,control,logs}        the folder
    /sys/fs/cgroup/memory/postmortem-replay-4711-x7k2          the memory cgroup (v1; v2: /sys/fs/cgroup/...)
    /run/netns/postmortem-replay-4711-x7k2-a, -b               two network namespaces joined by a veth pair
    REPLAY_TAG=postmortem-replay-4711-x7k2                     in the environment of every process started

so that `close` finds all of it without a list, and `sweep` finds what a killed run has left behind: a folder
whose lock nobody holds, and what carries its tag. Small file systems (a short /dev/shm, a full disk) and host
names live in mount and UTS namespaces of their own and need no removal.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

PREFIX = "postmortem-replay-"
SUBNET = "10.77.0."
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Runs in fresh mount and UTS namespaces.
# $1 host name or "-", $2 hosts file or "-", $3 MiB of /dev/shm or 0, $4 folder, $5 its KiB or 0.
ENTER = """
set -e
[ "$1" = - ] || hostname "$1"
[ "$2" = - ] || mount --bind "$2" /etc/hosts
[ "$3" = 0 ] || mount -t tmpfs -o "size=${3}m" tmpfs /dev/shm
[ "$5" = 0 ] || mount -t tmpfs -o "size=${5}k" tmpfs "$4"
shift 5
exec "$@"
"""


class CannotIsolate(Exception):
    """This machine, or this user, cannot give what the scenario needs; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Wants:
    """What a scenario needs around it."""

    memory_mb: int = 0
    shm_mb: int = 0
    disk_kb: int = 0
    hosts: tuple[str, ...] = ()
    block: str = ""  # '' | 'all' | 'data-ports': what a packet filter between two hosts drops


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run takes place."""

    tag: str
    folder: Path
    wants: Wants
    cgroup: Path | None

    @property
    def job(self) -> Path:
        return self.folder / "job"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def control(self) -> Path:
        return self.folder / "control"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def address(self, host: int) -> str:
        return f"{SUBNET}{host + 1}" if len(self.wants.hosts) > 1 else "127.0.0.1"

    def argv(self, argv: list[str], host: int = 0) -> list[str]:
        """`argv`, inside the namespaces of a host of this place."""
        wants = self.wants
        if not (wants.hosts or wants.shm_mb or wants.disk_kb):
            return argv
        name = wants.hosts[host] if wants.hosts else "-"
        hosts = str(self.folder / "hosts") if wants.hosts else "-"
        inside = [name, hosts, str(wants.shm_mb), str(self.job / "checkpoints"), str(wants.disk_kb)]
        wrapped = ["unshare", "--uts", "--mount", "--", "sh", "-c", ENTER, "sh", *inside, *argv]
        return ["ip", "netns", "exec", f"{self.tag}-{'ab'[host]}", *wrapped] if len(wants.hosts) > 1 else wrapped


@contextlib.contextmanager
def place(wants: Wants) -> Iterator[Place]:
    """Make the place, and take it away again on every way out."""
    sweep()
    if (wants != Wants()) and os.geteuid() != 0:
        raise CannotIsolate("needs root: cgroups, namespaces and mounts cannot be made otherwise")
    with handling(_interrupt, *STOPS):
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        try:
            with _locked(folder):
                yield _made(folder, wants)
        finally:
            with handling(signal.SIG_IGN, *STOPS):
                close(folder.name, folder)


def _made(folder: Path, wants: Wants) -> Place:
    made = Place(folder.name, folder, wants, _cgroup_path(folder.name) if wants.memory_mb else None)
    for part in (made.job, made.logs, made.control, made.temporary, made.job / "checkpoints"):
        part.mkdir()
    if made.cgroup:
        _make_cgroup(made.cgroup, wants.memory_mb)
    if wants.hosts:
        lines = ["127.0.0.1 localhost", *(f"{made.address(i)} {name}" for i, name in enumerate(wants.hosts))]
        (folder / "hosts").write_text("\n".join(lines) + "\n")
    if len(wants.hosts) > 1:
        _wire(made)
    return made


# ── signals and locks ───────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def handling(
    handler: Callable[[int, FrameType | None], object] | signal.Handlers, *numbers: signal.Signals
) -> Iterator[None]:
    """These signals are handled so; one that was ignored from the start (nohup) stays ignored.
    Only the main thread may ask for it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, handler) for number in numbers if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: through the way out that takes everything away,
    and nothing disturbs it there."""
    for each in STOPS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """As long as this process lives its folder is locked, whatever becomes of its pid."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_owned(folder: Path) -> bool:
    """Does a live run hold this folder? One that has not locked it yet is known by its pid."""
    with contextlib.suppress(OSError), (folder / "lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        return False
    owner = re.match(rf"{PREFIX}([0-9]+)-", folder.name)
    return not owner or Path(f"/proc/{owner[1]}").exists()


# ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────


def _cgroup_path(tag: str) -> Path:
    return memory_hierarchy() / tag


def memory_hierarchy() -> Path:
    """Where memory cgroups are made: version 1 has a hierarchy of its own for memory,
    version 2 has one for all."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    for _, where, kind, options, *_ in mounts:
        if kind == "cgroup" and "memory" in options.split(","):
            return Path(where)
    for _, where, kind, *_ in mounts:
        if kind == "cgroup2" and "memory" in (Path(where) / "cgroup.controllers").read_text().split():
            return Path(where)
    raise CannotIsolate("needs a memory cgroup: no hierarchy with the memory controller is mounted")


def _make_cgroup(path: Path, megabytes: int) -> None:
    size = str(megabytes << 20)
    try:
        if (path.parent / "memory.limit_in_bytes").exists():
            path.mkdir()
            (path / "memory.limit_in_bytes").write_text(size)
            with contextlib.suppress(OSError):  # a kernel without swap accounting
                (path / "memory.memsw.limit_in_bytes").write_text(size)
            return
        (path.parent / "cgroup.subtree_control").write_text("+memory")
        path.mkdir()
        (path / "memory.max").write_text(size)
        with contextlib.suppress(OSError):
            (path / "memory.swap.max").write_text("0")
    except OSError as error:
        raise CannotIsolate(f"needs a memory cgroup: {error}") from error


def enter_cgroup(path: Path) -> None:
    """Called in the child, between fork and exec:
    it and all its descendants live in the cgroup from here on."""
    (path / "cgroup.procs").write_text(str(os.getpid()))


# ── two hosts ───────────────────────────────────────────────────────────────────────────────────────────────


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotIsolate(f"needs network namespaces: ip {' '.join(words)}: {done.stderr.strip()}")


def _wire(made: Place) -> None:
    a, b = f"{made.tag}-a", f"{made.tag}-b"
    _ip("netns", "add", a)
    _ip("netns", "add", b)
    _ip("link", "add", "eth0", "netns", a, "type", "veth", "peer", "name", "eth0", "netns", b)
    for index, name in enumerate((a, b)):
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "addr", "add", f"{made.address(index)}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
    if made.wants.block:
        _filter(a, {"all": [], "data-ports": ["dport", "32768-60999"]}[made.wants.block])


def _filter(namespace: str, ports: list[str]) -> None:
    """Drop what comes in for these ports, silently, as a firewall's DROP does.

    The range the kernel hands out holds the data ports, and the client's end of every connection this host
    opens. A routing rule before the `local` table does it without iptables: the lookup of an incoming packet
    fails, and a host that does not forward answers nothing.
    """
    _ip("-n", namespace, "rule", "add", "pref", "100", "lookup", "local")
    _ip("-n", namespace, "rule", "del", "pref", "0")
    _ip("-n", namespace, "rule", "add", "pref", "10", "iif", "eth0", "ipproto", "tcp", *ports, "blackhole")


# ── processes, and the way out ──────────────────────────────────────────────────────────────────────────────


def tagged(tag: str) -> list[int]:
    """The live processes started in a place,
    orphans and DataLoader workers included, by their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if f"REPLAY_TAG={tag}\0".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return sorted(found)


def close(tag: str, folder: Path) -> None:
    """Take away everything that carries the tag.
    Safe to call twice, and for a place that was only half made."""
    for _ in range(50):
        if not (pids := tagged(tag)):
            break
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    for path in Path("/run/netns").glob(f"{tag}-*"):
        subprocess.run(["ip", "netns", "del", path.name], capture_output=True, check=False)
    with contextlib.suppress(CannotIsolate, OSError):
        _remove_cgroup(_cgroup_path(tag))
    shutil.rmtree(folder, ignore_errors=True)


def _remove_cgroup(path: Path) -> None:
    for _ in range(50):  # a cgroup is busy until the last of its dead has been reaped
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.1)


def sweep() -> list[str]:
    """Remove what runs have left behind that were killed themselves; returns their tags."""
    left = [folder for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*") if not _is_owned(folder)]
    for folder in left:
        close(folder.name, folder)
    return [folder.name for folder in left]


def free_port() -> int:
    """A port nobody listens on, below the range the kernel hands out to clients."""
    for _ in range(200):
        port = 20000 + secrets.randbelow(9000)
        if is_free(port):
            return port
    raise CannotIsolate("needs a free TCP port between 20000 and 29000")


def is_free(port: int) -> bool:
    """Can this port be bound here?"""
    with contextlib.closing(socket.socket()) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
