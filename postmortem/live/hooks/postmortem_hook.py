"""Records the uncaught exceptions of a rank, and its stacks on request.

    install("/runs/x7k2")
        rank1.pid6940.exceptions.jsonl    an uncaught exception: a JSON object with rank, host, step, stack
        rank1.pid6940.stacks.txt          its Python stacks, each time that SIGNAL arrives

Two functions and one descriptor: no thread, and no work until an exception or the signal. A hook that was there
before gets each exception afterwards. Failures here are ignored. Only the standard library, from Python 3.8 on;
torch is used if the program has imported it.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # not imported, since every rank would pay for it at its start
    from types import TracebackType
    from typing import Any

SIGNAL = 41  # SIGRTMIN+7: no launcher, scheduler or framework uses it. `run` and `watch` send it
STACKS = ".stacks.txt"
EXCEPTIONS = ".exceptions.jsonl"
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
STEPS = ("global_step", "step", "iteration", "iter_num", "it", "batch_idx")
MOST = 1 << 16  # characters of a stack
DEEP = 8  # shells between a rank and a program of it
HIGH = 200  # a descriptor that programs do not count on
_MARK = "_postmortem_hook"  # on `sys`: this file may be imported by two names

_folder = ""
_recorded = 0  # the identity of the main thread's exception that is recorded


def install(folder: str) -> None:
    """Install the hooks in this process; a second call does nothing."""
    global _folder
    if getattr(sys, _MARK, None) or not sys.platform.startswith("linux"):
        return
    setattr(sys, _MARK, SIGNAL)
    _folder = os.path.abspath(folder)
    _install_excepthooks()
    try:
        _install_handler()
    except (OSError, ValueError, RuntimeError, AttributeError):  # a full disk, no permission, no descriptor left
        pass


def below_a_rank() -> bool:
    """Return whether a rank has started this process, which has its environment: a helper, a DataLoader worker."""
    pid, own = os.getppid(), os.readlink("/proc/self/exe")
    for _ in range(DEEP):
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                if b"\0LOCAL_RANK=" not in b"\0" + file.read():
                    return False
            if os.readlink("/proc/%d/exe" % pid) == own:
                return True
            with open("/proc/%d/stat" % pid, "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False


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
    try:
        import fcntl

        file = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, HIGH)
    except (OSError, ValueError, ImportError):  # the limit of descriptors is lower
        os.unlink(path)
        return
    finally:
        os.close(low)
    faulthandler.register(SIGNAL, file=file, all_threads=True, chain=False)
    if not faulthandler.is_enabled():
        faulthandler.enable(file=file)
    atexit.register(_remove_if_empty, path, os.getpid())


def _remove_if_empty(path: str, pid: int) -> None:
    try:
        if pid == os.getpid() and not os.path.getsize(path):
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
        except Exception:
            pass
        finally:
            before(kind, value, trace)

    def in_thread(args: Any) -> None:
        try:
            if args.exc_type is not SystemExit:
                name = getattr(args.thread, "name", None) or "unknown"
                _record(args.exc_type, args.exc_value, args.exc_traceback, str(name))
        except Exception:
            pass
        finally:
            before_in_thread(args)

    sys.excepthook, threading.excepthook = excepthook, in_thread
    atexit.register(_at_exit, os.getpid())


def _at_exit(pid: int) -> None:
    """Record an exception that a program's own hook did not pass on to ours: Python keeps it in `sys`."""
    value = getattr(sys, "last_value", None)
    if pid == os.getpid() and isinstance(value, BaseException) and id(value) != _recorded:
        try:
            _record(type(value), value, value.__traceback__, "")
        except Exception:
            pass


def _record(kind: type[BaseException], value: BaseException | None, trace: TracebackType | None, thread: str) -> None:
    """Write one line of JSON for an exception; in the main thread also the file that torchrun reads."""
    import json
    import traceback

    shown = "".join(traceback.format_exception(kind, value, trace))
    if len(shown) > MOST:
        shown = shown[: MOST // 4] + "\n  ...\n" + shown[-MOST * 3 // 4 :]
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
    file = os.open(_path(EXCEPTIONS), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, (json.dumps(record) + "\n").encode("ascii", "backslashreplace"))
    finally:
        os.close(file)
    # torchrun shows the traceback of the first failed rank from this file; @record writes it too
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path and not thread and issubclass(kind, Exception) and not (os.path.exists(path) and os.path.getsize(path)):
        last = "".join(traceback.format_exception_only(kind, value)).strip()[:4000]
        extra = {"py_callstack": shown, "timestamp": str(seconds)}
        with open(path, "w") as error_file:
            error_file.write(json.dumps({"message": {"message": last, "extraInfo": extra}}))


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
