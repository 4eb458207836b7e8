"""Limits of an input: its own files, no process, no network, little time, little memory."""

from __future__ import annotations

import os
import resource
import signal
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from postmortem.system import cache

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 2.0  # of processor time for one input of 32 KiB
MEMORY = 1 << 30
FORBIDDEN = (
    "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn", "os.kill", "os.symlink", "os.link", "os.chmod",
    "os.chown", "socket.", "pickle.", "ftplib.", "http.", "urllib.", "smtplib.", "webbrowser.",
)  # fmt: skip
PARSERS = (
    "<frozen importlib._bootstrap>",
    "postmortem/replay/catalogue.py",
    "postmortem/replay/script.py",
    "jinja2/lexer.py",
)
CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "shutil.", "tempfile.")


class Escape(BaseException):
    """An input caused a forbidden call. No `except Exception` hides it."""


class Slow(BaseException):
    """An input took too long."""


class _Watch:
    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        self.own: tuple[str, ...] = ()
        self.readable: tuple[str, ...] = ()


_WATCH = _Watch()


def _hook(event: str, args: tuple[object, ...]) -> None:
    if not _WATCH.on:
        return
    if event == "open":
        path, _, flags = args
        _opened(path, int(flags) if isinstance(flags, int) else 0)
    elif event.startswith(FORBIDDEN) or event.startswith(CHANGES) and not str(args[0]).startswith(_WATCH.own):
        _escaped(f"{event}{args!r}")
    elif event == "compile" and args[1] in ("<string>", b"<string>", "<unknown>") and not _importing():
        _escaped(f"compile of {str(args[0])[:80]!r}")


def _importing() -> bool:
    """Whether a module is imported, replay parses a job of its own, or Jinja reads the numbers of a template."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.endswith(PARSERS):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _opened(path: object, flags: int) -> None:
    if isinstance(path, int) or path is None:
        return
    name = os.path.realpath(os.fsdecode(path) if isinstance(path, bytes | os.PathLike) else str(path))
    writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    if not name.startswith(_WATCH.own if writes else (*_WATCH.own, *_WATCH.readable)):
        _escaped(f"open of {name} ({'to write' if writes else 'to read'})")


def _escaped(what: str) -> None:
    _WATCH.seen.append(what)
    raise Escape(what[:300])


@contextmanager
def watched(*own: Path) -> Iterator[None]:
    """Raise Escape for a forbidden call; files may be written and read in the folders `own` only."""
    if not _WATCH.readable:
        sys.addaudithook(_hook)
        sys.dont_write_bytecode = True  # of modules that an input imports first
        system = (sys.prefix, sys.base_prefix, str(ROOT), "/proc/", "/usr/share/zoneinfo", "/sys/")
        paths = {*map(str, sysconfig.get_paths().values()), *system}
        _WATCH.readable = tuple(os.path.realpath(p) for p in paths)
    _WATCH.own = tuple(str(p.resolve()) for p in (*own, cache.folder()))
    _WATCH.seen.clear()
    _WATCH.on = True
    try:
        yield
    finally:
        _WATCH.on = False
    if _WATCH.seen:  # it was raised, and swallowed
        raise Escape(_WATCH.seen[0])


@contextmanager
def in_time(seconds: float = SECONDS) -> Iterator[None]:
    """Raise Slow after so much processor time."""

    def expired(_signal: int, _frame: object) -> None:
        raise Slow(f"more than {seconds} s")

    before = signal.signal(signal.SIGVTALRM, expired)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def in_memory(most: int = MEMORY) -> Iterator[None]:
    """Let this process grow by no more: beyond it is a MemoryError, which counts as a find."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def folder() -> Path:
    """A folder in memory for inputs that have to be files."""
    shm = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="postmortem-fuzz-", dir=shm if os.access(shm, os.W_OK) else None))
