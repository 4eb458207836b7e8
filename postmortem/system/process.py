"""The process that reads: how it is made ready, and what one source may take of it.

with bounded(30.0): ...      time and memory of one source, in a process without workers

A worker is bounded by its pool, which ends it; what reads in the caller's own process is bounded by signals.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = 2 << 30
INTERRUPTED = 130  # exit code after Ctrl-C
_OURS = False  # set by `tune`


class OutOfTime(BaseException):
    """An item took too long. No `except Exception` on its way may take it for something else."""


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Time and memory for one item, as a worker has them. Raise OutOfTime; a lack of memory is a MemoryError.

    A signal ends a regular expression too. In another program's process its own alarms go first, its other
    threads have no such signal, and its memory is its own business.
    """
    if threading.current_thread() is not threading.main_thread() or not _alarm_is_free():
        yield
        return
    running = True

    def late(_signal: int, _frame: object) -> None:
        if running:
            raise OutOfTime

    signal.signal(signal.SIGALRM, late)
    # again and again, for code that swallows it
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        with _memory_bounded():
            yield
    finally:
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _alarm_is_free() -> bool:
    if not hasattr(signal, "setitimer"):
        return False
    return signal.getsignal(signal.SIGALRM) == signal.SIG_DFL and not any(signal.getitimer(signal.ITIMER_REAL))


@contextmanager
def _memory_bounded() -> Iterator[None]:
    """Let this process, if it is ours, grow by no more than a worker may take."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + _memory()
        wanted = _OURS and (soft == resource.RLIM_INFINITY or most < soft)
        if wanted:
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    except (ImportError, ValueError, OSError):  # no such limits on this system
        wanted = False
    try:
        yield
    finally:
        if wanted:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


STOPS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and SIGHUP end this process as Ctrl-C does: with a report of what was read. The second one ends
    it at once. What the caller ignores (`nohup`) or handles stays so."""
    numbers = [number for number in STOPS if number != signal.SIGINT]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    free = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in free:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number in free:
            signal.signal(number, signal.SIG_DFL)


_STOPPED = [signal.SIGINT]  # the last is what ended it


def _stop(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    _STOPPED.append(signal.Signals(number))
    raise KeyboardInterrupt


def stop_code() -> int:
    """The exit code of a process that was interrupted, as shells have it: 130 for Ctrl-C."""
    return 128 + _STOPPED[-1]


@contextmanager
def undivided() -> Iterator[None]:
    """A signal that would stop this process waits for the end of the block: a start of workers that is cut in
    the middle leaves a child that nobody knows of, and it prints a traceback when its pipe ends."""
    came: list[int] = []
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in STOPS}
    held = {number: handler for number, handler in before.items() if callable(handler)}
    for number in held:
        signal.signal(number, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        for number in came[:1]:
            signal.raise_signal(number)


@contextmanager
def deaf_children() -> Iterator[None]:
    """Processes started here do not hear Ctrl-C nor a terminal that closes, from their first moment on: both
    are the parent's to handle, and an interpreter that is just starting would print a traceback."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for cycles while millions of rows are made, which have none: it takes up to half of the
    time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def tune() -> None:
    """Make this process, which is ours alone, one that reads logs.

    glibc keeps blocks of a megabyte for the next one: giving each back and taking it again costs a tenth of
    the scan. The garbage collector looks less often for cycles: there are none in a million events, and
    looking costs a third of the diagnosis.
    """
    global _OURS
    _OURS = True
    gc.set_threshold(200_000, 50, 100)
    try:
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, 64 << 20)  # M_MMAP_THRESHOLD
        mallopt(-1, 128 << 20)  # M_TRIM_THRESHOLD
        mallopt(-2, 16 << 20)  # M_TOP_PAD
    except (ImportError, OSError, AttributeError):  # another libc
        pass


def begin() -> None:
    """In a worker: Ctrl-C is the parent's to handle, memory is bounded, and a crash leaves no core behind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tune()
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (_memory(), resource.RLIM_INFINITY))
    except (ImportError, ValueError, OSError):  # no such limits on this system
        pass


def _memory() -> int:
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return MEMORY
    return max(1 << 30, min(MEMORY, physical // 4))
