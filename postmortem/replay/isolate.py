"""A place for a run: a private folder and, where asked and allowed, a memory cgroup and two hosts joined by a wire.

In: the needs of a scenario. Out: a `Place`. Each of its resources has one tag,
`postmortem-replay-<pid>-<random>`:

    /tmp/postmortem-replay-4711-x7k2/{job,control,logs}        the folder
    /sys/fs/cgroup/memory/postmortem-replay-4711-x7k2          the memory cgroup (v1; v2: /sys/fs/cgroup/...)
    /run/netns/postmortem-replay-4711-x7k2-a, -b               two network namespaces joined by a veth pair
    REPLAY_TAG=postmortem-replay-4711-x7k2                     in the environment of every process started

so that `close` finds all of it without a list, and `clean_up` finds the remains of a killed run: a folder with a
free lock, and everything with its tag. Small file systems (a short /dev/shm, a full disk) and host names are in
mount and UTS namespaces of their own and need no removal.
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
ENTER = Path(__file__).with_name("enter.sh")
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CannotIsolate(Exception):
    """This machine, or this user, cannot provide the needs of the scenario; the text names them."""


@dataclass(frozen=True, slots=True)
class Wants:
    """The surroundings that a scenario needs."""

    memory_mb: int = 0
    shm_mb: int = 0
    disk_kb: int = 0
    hosts: tuple[str, ...] = ()
    block: str = ""  # '' | 'all' | 'data-ports': dropped by a packet filter between two hosts


@dataclass(frozen=True, slots=True)
class Place:
    """The resources of one run."""

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

    def address(self, host: int) -> str:
        return f"{SUBNET}{host + 1}" if len(self.wants.hosts) > 1 else "127.0.0.1"

    def argv(self, argv: list[str], host: int = 0) -> list[str]:
        """Return `argv`, inside the namespaces of a host of this place."""
        wants = self.wants
        if not (wants.hosts or wants.shm_mb or wants.disk_kb):
            return argv
        name = wants.hosts[host] if wants.hosts else "-"
        hosts = str(self.folder / "hosts") if wants.hosts else "-"
        inside = [name, hosts, str(wants.shm_mb), str(self.job / "checkpoints"), str(wants.disk_kb)]
        wrapped = ["unshare", "--uts", "--mount", "--", "sh", str(ENTER), *inside, *argv]
        return ["ip", "netns", "exec", f"{self.tag}-{'ab'[host]}", *wrapped] if len(wants.hosts) > 1 else wrapped


@contextlib.contextmanager
def place(wants: Wants) -> Iterator[Place]:
    """Make the place, and remove it on every way out."""
    clean_up()
    if wants != Wants() and os.geteuid() != 0:
        raise CannotIsolate("needs root: cgroups, namespaces and mounts cannot be made otherwise")
    with handling(_interrupt, *STOPS):
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        try:
            # The lock, and not the pid, shows that this run is alive: in containers pids repeat.
            with (folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield _made(folder, wants)
        finally:
            with handling(signal.SIG_IGN, *STOPS):
                close(folder.name, folder)


def _made(folder: Path, wants: Wants) -> Place:
    made = Place(folder.name, folder, wants, memory_hierarchy() / folder.name if wants.memory_mb else None)
    for part in ("job", "job/checkpoints", "job/flight_recorder", "logs", "control", "tmp"):
        (folder / part).mkdir()
    if made.cgroup:
        _make_cgroup(made.cgroup, wants.memory_mb)
    if wants.hosts:
        lines = ["127.0.0.1 localhost", *(f"{made.address(i)} {name}" for i, name in enumerate(wants.hosts))]
        (folder / "hosts").write_text("\n".join(lines) + "\n")
    if len(wants.hosts) > 1:
        _connect_hosts(made)
    return made


@contextlib.contextmanager
def handling(
    handler: Callable[[int, FrameType | None], object] | signal.Handlers, *numbers: signal.Signals
) -> Iterator[None]:
    """Handle these signals so, in the main thread; one that was ignored from the start (nohup) stays ignored."""
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
    """End a run after SIGTERM and SIGHUP as after Ctrl-C; later signals do not disturb the removal."""
    for each in STOPS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def memory_hierarchy() -> Path:
    """Return the folder of memory cgroups: version 1 has a hierarchy of its own for memory, version 2 one for all."""
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
    first = (path.parent / "memory.limit_in_bytes").exists()  # version 1
    limits = {"memory.limit_in_bytes": size} if first else {"memory.max": size}
    swap = {"memory.memsw.limit_in_bytes": size} if first else {"memory.swap.max": "0"}
    try:
        if not first:
            (path.parent / "cgroup.subtree_control").write_text("+memory")
        path.mkdir()
        for name, value in limits.items():
            (path / name).write_text(value)
    except OSError as error:
        raise CannotIsolate(f"needs a memory cgroup: {error}") from error
    for name, value in swap.items():
        with contextlib.suppress(OSError):  # a kernel without swap accounting
            (path / name).write_text(value)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotIsolate(f"needs network namespaces: ip {' '.join(words)}: {done.stderr.strip()}")


def _connect_hosts(made: Place) -> None:
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
    """Drop incoming packets for these ports, silently, as a firewall's DROP does.

    The range the kernel hands out holds the data ports, and the client's end of every connection this host
    opens. A routing rule before the `local` table does it without iptables: the lookup of an incoming packet
    fails, and a host that does not forward answers nothing.
    """
    _ip("-n", namespace, "rule", "add", "pref", "100", "lookup", "local")
    _ip("-n", namespace, "rule", "del", "pref", "0")
    _ip("-n", namespace, "rule", "add", "pref", "10", "iif", "eth0", "ipproto", "tcp", *ports, "blackhole")


def tagged(tag: str) -> list[int]:
    """Return the live processes of a place by their environment, orphans and DataLoader workers included."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if f"REPLAY_TAG={tag}\0".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return sorted(found)


def close(tag: str, folder: Path) -> None:
    """Remove everything that carries the tag; safe to call twice, and for a place that was only half made."""
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
        _remove_cgroup(memory_hierarchy() / tag)
    shutil.rmtree(folder, ignore_errors=True)


def _remove_cgroup(path: Path) -> None:
    for _ in range(50):  # a cgroup is busy until the last of its dead has been reaped
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.1)


def clean_up() -> list[str]:
    """Remove the remains of runs that were killed themselves; return their tags."""
    left = [folder for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*") if not _is_owned(folder)]
    for folder in left:
        close(folder.name, folder)
    return [folder.name for folder in left]


def _is_owned(folder: Path) -> bool:
    """Return whether a live run holds this folder; one that has not locked it yet is known by its pid."""
    with contextlib.suppress(OSError), (folder / "lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        return False
    owner = re.match(rf"{PREFIX}([0-9]+)-", folder.name)
    return not owner or Path(f"/proc/{owner[1]}").exists()


def free_port() -> int:
    """Return a port that is free, below the range the kernel hands out to clients."""
    for _ in range(200):
        port = 20000 + secrets.randbelow(9000)
        if is_free(port):
            return port
    raise CannotIsolate("needs a free TCP port between 20000 and 29000")


def is_free(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
