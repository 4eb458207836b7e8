"""Records the uncaught exceptions of a rank, and its stacks on request.

    install("/runs/x7k2")
        rank1.pid6940.exceptions.jsonl    an uncaught exception: a JSON object with rank, host, step, stack
        rank1.pid6940.stacks.txt          its Python stacks, each time that SIGNAL arrives

Two functions and one descriptor: no thread, and no work until an exception or the signal. A hook that was there
before gets each exception afterwards. Failures here are ignored. A forked child is no rank: nothing of it is recorded.
Only the standard library, from Python 3.8 on; torch is used if the program has imported it.
"""

from __future__ import annotations

import atexit
import faulthandler
import fcntl
import json
import os
import signal
import stat
import sys
import threading
import time
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:  # not imported, since every rank would pay for it at its start
    from types import TracebackType
    from typing import Any

SIGNAL = 41  # SIGRTMIN+7: no launcher, scheduler or framework uses it. `run` and `watch` send it
STACKS = ".stacks.txt"
EXCEPTIONS = ".exceptions.jsonl"
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
STEPS = ("global_step", "step", "iteration", "iter_num", "it", "batch_idx")
MOST_CHARACTERS = 1 << 16  # characters of a stack
LARGE = 1 << 22  # bytes of a file to which no exception of a thread is added
RESERVE, FILES = 1 << 20, 100  # free bytes and files that are left to the program
HIGH = (1000, 200)  # descriptors that programs do not count on; the second where the limit is lower
_MARK = "_postmortem_hook"  # on `sys`: this file may be imported by two names

_folder = ""
_pid = 0  # the rank; a child that it forked has another one
_recorded = 0  # the identity of the main thread's exception that is recorded


def install(folder: str) -> None:
    """Install the hooks in this process; a second call does nothing."""
    global _folder, _pid
    if getattr(sys, _MARK, None) or not sys.platform.startswith("linux"):
        return
    setattr(sys, _MARK, SIGNAL)
    _folder, _pid = os.path.abspath(folder), os.getpid()
    _install_excepthooks()
    try:
        _install_handler()
    except (OSError, ValueError, RuntimeError, AttributeError):  # a full disk, no permission, no descriptor left
        pass


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 8 else None


def rank() -> int | None:
    """Return this process's rank, from its launcher or torch."""
    for name in RANKS:
        number = _number(name)
        if number is not None:
            return number
    group = sys.modules.get("torch.distributed")
    try:
        return int(group.get_rank()) if group is not None and group.is_initialized() else None
    except Exception:
        return None


def _path(suffix: str) -> str:
    number = rank()
    name = "pid%d" % os.getpid() if number is None else "rank%d.pid%d" % (number, os.getpid())
    return os.path.join(_folder, name + suffix)


def _install_handler() -> None:
    """faulthandler writes from the signal handler, so also if the interpreter is stuck."""
    if signal.getsignal(SIGNAL) != signal.SIG_DFL:
        return
    path = _path(STACKS)
    low = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    own, file = os.fstat(low), -1
    for lowest in HIGH if _has_room(low) else ():
        try:
            file = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, lowest)
            break
        except (OSError, ValueError):  # the limit of descriptors is lower
            pass
    os.close(low)
    if file < 0:
        return os.unlink(path)
    faulthandler.register(SIGNAL, file=file, all_threads=True, chain=False)
    if not faulthandler.is_enabled():
        faulthandler.enable(file=file)
    os.register_at_fork(after_in_child=lambda: _silence(file, own))
    atexit.register(_remove_if_empty, path)
    return None


def _silence(file: int, own: os.stat_result) -> None:
    """Let a forked child, whose crash is not the rank's, write its stacks nowhere."""
    try:
        if os.path.samestat(os.fstat(file), own):
            null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(null, file, inheritable=False)
            os.close(null)
    except OSError:  # the program has closed it
        pass


def _remove_if_empty(path: str) -> None:
    try:
        if _pid == os.getpid() and not os.path.getsize(path):
            os.unlink(path)
    except OSError:
        pass


def _install_excepthooks() -> None:
    before, before_in_thread = sys.excepthook, threading.excepthook

    def excepthook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        global _recorded
        _recorded = id(value)
        try:
            _record(kind, value, trace, "")
        except BaseException:
            pass
        finally:
            before(kind, value, trace)

    def in_thread(args: Any) -> None:
        try:
            if args.exc_type is not SystemExit:
                name = getattr(args.thread, "name", None) or "unknown"
                _record(args.exc_type, args.exc_value, args.exc_traceback, str(name))
        except BaseException:
            pass
        finally:
            before_in_thread(args)

    sys.excepthook, threading.excepthook = excepthook, in_thread
    atexit.register(_at_exit)


def _at_exit() -> None:
    """Record an exception that a program's own hook did not pass on to ours: Python keeps it in `sys`."""
    value = getattr(sys, "last_value", None)
    if isinstance(value, BaseException) and id(value) != _recorded:
        try:
            _record(type(value), value, value.__traceback__, "")
        except Exception:
            pass


def _cut(text: str) -> str:
    return (
        text
        if len(text) <= MOST_CHARACTERS
        else text[: MOST_CHARACTERS // 4] + "\n  ...\n" + text[-MOST_CHARACTERS * 3 // 4 :]
    )


def _formatted(kind: type[BaseException], value: BaseException | None, trace: TracebackType | None) -> tuple[str, str]:
    """Return the traceback and its last line. `__str__` of the exception, which may take seconds or return hundreds of
    megabytes, runs once, and its text is cut before it is copied."""
    found = traceback.TracebackException(kind, value, trace)  # type: ignore[arg-type]
    chain: list[Any] = [found]
    for one in chain:
        if len(chain) < 1000:
            chain.extend(filter(None, (one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ()))))
        if isinstance(getattr(one, "_str", None), str):
            one._str = _cut(one._str)
    return _cut("".join(found.format())), "".join(found.format_exception_only()).strip()[:4000]


def _record(kind: type[BaseException], value: BaseException | None, trace: TracebackType | None, thread: str) -> None:
    """Write one line of JSON for an exception; in the main thread also the file that torchrun reads.

    Nothing for Ctrl-C: Python dies of SIGINT only if no code has been evaluated since.
    """
    if os.getpid() != _pid or issubclass(kind, KeyboardInterrupt):
        return
    shown, last = _formatted(kind, value, trace)
    seconds, micros = divmod(int(time.time() * 1e6), 1000000)
    record: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + ".%06dZ" % micros,
        "host": os.uname().nodename,
        "event": "exception",
        "rank": rank(),
        "pid": os.getpid(),
        "local_rank": _number("LOCAL_RANK"),
        "world_size": _number("WORLD_SIZE"),
        "thread": thread or None,
        "in_step": _step(trace),  # not "step", which would mean that it was done
    }
    who = "process %d" % os.getpid() if record["rank"] is None else "rank %d" % record["rank"]
    where = " in thread %s" % thread[:80] if thread else ""
    record["message"] = "%s raised %s%s" % (who, kind.__name__, where)
    record["traceback"] = shown
    record = {name: field for name, field in record.items() if field is not None or name == "rank"}
    line = (json.dumps(record) + "\n").encode("ascii", "backslashreplace")
    try:
        _append(_path(EXCEPTIONS), line, bool(thread))
    except OSError:
        pass
    # torchrun shows the traceback of the first rank that failed from this file; @record writes it too
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path and not thread and issubclass(kind, Exception) and _is_free(path):
        extra = {"py_callstack": shown, "timestamp": str(seconds)}
        _write_whole(path, json.dumps({"message": {"message": last, "extraInfo": extra}}).encode("ascii"))


def _append(path: str, line: bytes, bounded: bool) -> None:
    """Append a whole line, or nothing."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    size = os.fstat(file).st_size
    written = len(line) if bounded and size > LARGE else 0
    try:
        if not written and _has_room(file):
            written = os.write(file, line)
    finally:
        if written < len(line):
            os.ftruncate(file, size)
            _remove_if_empty(path)
        os.close(file)


def _has_room(file: int) -> bool:
    disk = os.fstatvfs(file)
    return disk.f_bavail * disk.f_frsize > RESERVE and (not disk.f_files or disk.f_favail > FILES)


def _is_free(path: str) -> bool:
    """Return whether there is no such file, or an empty one, which torch cannot read."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return True
    return stat.S_ISREG(found.st_mode) and not found.st_size


def _write_whole(path: str, data: bytes) -> None:
    """Write a file or leave none: torchrun ends with the error of an incomplete one, and starts no rank again."""
    temporary = "%s.%d" % (path, _pid)
    try:
        with open(temporary, "xb") as file:
            room = _has_room(file.fileno()) and file.write(data)
        os.replace(temporary, path) if room else os.unlink(temporary)
    except BaseException:
        try:
            os.unlink(temporary)
        except OSError:
            pass


def _step(trace: TracebackType | None) -> int | None:
    """Return the step: a counter of a usual name in the innermost own function that has one."""
    found = None
    while trace is not None:
        frame = trace.tb_frame
        if "site-packages" not in frame.f_code.co_filename:
            for name in STEPS:
                value = frame.f_locals.get(name)
                if type(value) is int and 0 <= value < 10**12:
                    found = value
                    break
        trace = trace.tb_next
    return found
