"""The process that reads logs: its setup, its signals, and limits of time and memory for one source.

A worker is limited by its pool, which ends it; reading in the caller's own process is limited by signals.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

MEMORY = 2 << 30
INTERRUPTED = 130  # exit code after Ctrl-C
_OURS = False  # no other program's process; set by `tune`


class OutOfTime(BaseException):
    """An item took too long. No `except Exception` may catch it."""


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Limit the time and memory of one item, as in a worker. Raise OutOfTime or MemoryError.

    A signal ends a regular expression too. In another program's process there is no limit of memory, and none of
    time in other threads or where it has an alarm of its own.
    """
    if threading.current_thread() is not threading.main_thread() or not _alarm_is_free():
        yield
        return
    running = True

    def expired(_signal: int, _frame: object) -> None:
        if running:
            raise OutOfTime

    signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again and again, for code that swallows it
    try:
        with _memory_bounded():
            yield
    finally:
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _alarm_is_free() -> bool:
    return signal.getsignal(signal.SIGALRM) == signal.SIG_DFL and not any(signal.getitimer(signal.ITIMER_REAL))


@contextmanager
def _memory_bounded() -> Iterator[None]:
    """Let this process, if it is ours, grow by a worker's limit at most."""
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + _memory()
        wanted = _OURS and (soft == resource.RLIM_INFINITY or most < soft)
        if wanted:
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    except (ValueError, OSError):  # the system refuses
        wanted = False
    try:
        yield
    finally:
        if wanted:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


STOPS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@contextmanager
def stoppable() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as Ctrl-C, which reports the logs read so far; the second one ends the process.
    Signals that the caller ignores (`nohup`) or handles are left alone."""
    in_main = threading.current_thread() is threading.main_thread()
    free = [number for number in STOPS[1:] if in_main and signal.getsignal(number) == signal.SIG_DFL]
    for number in free:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number in free:
            signal.signal(number, signal.SIG_DFL)


_STOPPED = [signal.SIGINT]  # the last one ended the process


def _stop(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    _STOPPED.append(signal.Signals(number))
    raise KeyboardInterrupt


def stop_code() -> int:
    """Return the exit code of an interrupted process, as in shells: 130 for Ctrl-C."""
    return 128 + _STOPPED[-1]


@contextmanager
def delayed_signals() -> Iterator[None]:
    """Delay signals that would stop this process to the end of the block: an interrupted start of workers
    leaves an unknown child, which prints a traceback when its pipe ends."""
    received: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in STOPS if in_main}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda number, _frame: received.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])


@contextmanager
def unsignaled_children() -> Iterator[None]:
    """Block SIGINT and SIGHUP in processes that are started in the block: the parent handles both, and an
    interpreter that is just starting would print a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the search for cycles while millions of rows are made, which have none: up to half of the time.
    Nor are they searched later in a process of ours (see `tune`)."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if _OURS:
                gc.freeze()
            gc.enable()


def tune() -> None:
    """Set up this process, which runs nothing else, for reading logs.

    With these options glibc reuses blocks of a megabyte: returning each costs a tenth of the scan. The garbage
    collector looks less often for cycles: there are none in a million events, and it costs a third of the diagnosis.
    """
    global _OURS
    _OURS = True
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's linear algebra starts no threads, which nothing needs
    gc.set_threshold(200_000, 50, 100)
    with suppress(ImportError, OSError, AttributeError):  # another libc
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, 64 << 20)  # M_MMAP_THRESHOLD
        mallopt(-1, 128 << 20)  # M_TRIM_THRESHOLD
        mallopt(-2, 16 << 20)  # M_TOP_PAD
        mallopt(-8, 1)  # M_ARENA_MAX: threads take turns anyway, and each heap of their own has the pad


def load_pandas() -> None:
    """Import pandas. In a process of ours (see `tune`) without Arrow, which takes a fifth of the time and starts a
    thread; the Parquet writer loads it by itself."""
    modules: dict[str, Any] = sys.modules
    if not _OURS or "pandas" in modules or "pyarrow" in modules:
        return
    modules["pyarrow"] = None  # as if it were not installed
    try:
        import_module("pandas")
    finally:
        del modules["pyarrow"]


def begin() -> None:
    """Set up a worker: no Ctrl-C, which the parent handles; limited memory; no core file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tune()
    with suppress(ValueError, OSError):  # the system refuses
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (_memory(), resource.RLIM_INFINITY))


def may_fork() -> bool:
    """Whether this process is ours (see `tune`) and has no thread but this one, of a library's neither: a lock that
    another thread holds is never released in a copy."""
    try:
        return _OURS and len([*Path("/proc/self/task").iterdir()]) == 1
    except OSError:  # another system
        return False


def unhandled() -> None:
    """Let signals end this copy of a process that handles them."""
    for number in STOPS:
        signal.signal(number, signal.SIG_DFL)


def _memory() -> int:
    """Return the bytes that a worker may take."""
    return max(1 << 30, min(MEMORY, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4))
