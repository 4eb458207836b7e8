"""A rank tells how it ended, and where it stands when it is asked.

    install("/runs/x7k2")
        rank1.pid6940.exceptions.jsonl    an uncaught exception: a JSON object with rank, host, step, stack
        rank1.pid6940.stacks.txt          its Python stacks, each time that SIGNAL comes

Two functions and one descriptor: no thread, and nothing is done until an exception or the signal comes. Who
had a hook before has it afterwards: each exception goes on to it. Whatever fails here is passed over. Only
the standard library, from Python 3.8 on; torch is looked at where the program has imported it.
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
if TYPE_CHECKING:  # what a start costs, it costs each rank
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
_told = 0  # the identity of the main thread's exception that is noted


def install(folder: str) -> None:
    """From now on, in this process. A second time nothing."""
    global _folder
    if getattr(sys, _MARK, None) or not sys.platform.startswith("linux"):
        return
    setattr(sys, _MARK, SIGNAL)
    _folder = os.path.abspath(folder)
    _on_exceptions()
    try:
        _on_signal()
    except (OSError, ValueError, RuntimeError, AttributeError):  # a full disk, no right, no descriptor left
        pass


def below_a_rank() -> bool:
    """Whether a rank has started this process, which has its environment: a helper, a DataLoader's worker."""
    pid, own = os.getppid(), os.readlink("/proc/self/exe")
    for _ in range(DEEP):
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                ranked = b"\0LOCAL_RANK=" in b"\0" + file.read()
            if not ranked:
                return False
            if os.readlink("/proc/%d/exe" % pid) == own:
                return True
            with open("/proc/%d/stat" % pid, "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False


def rank() -> int | None:
    """This process's rank, as its launcher or torch says it."""
    for name in RANKS:
        text = os.environ.get(name, "")
        if text.isdecimal() and len(text) < 8:
            return int(text)
    group = sys.modules.get("torch.distributed")
    try:
        return int(group.get_rank()) if group is not None and group.is_initialized() else None
    except Exception:
        return None


def _name() -> str:
    number = rank()
    return os.path.join(_folder, ("" if number is None else "rank%d." % number) + "pid%d" % os.getpid())


# ── stacks, when asked ──────────────────────────────────────────────────────────────────────────────────────


def _on_signal() -> None:
    """faulthandler writes from the signal's handler, so also where the interpreter is stuck."""
    if signal.getsignal(SIGNAL) != signal.SIG_DFL:
        return
    path = _name() + STACKS
    low = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        import fcntl

        file = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, HIGH)
    except (OSError, ValueError, ImportError):  # as few are allowed
        os.unlink(path)
        return
    finally:
        os.close(low)
    faulthandler.register(SIGNAL, file=file, all_threads=True, chain=False)
    if not faulthandler.is_enabled():
        faulthandler.enable(file=file)
    atexit.register(_leave_no_empty_file, path, os.getpid())


def _leave_no_empty_file(path: str, pid: int) -> None:
    try:
        if pid == os.getpid() and not os.path.getsize(path):
            os.unlink(path)
    except OSError:
        pass


# ── exceptions ──────────────────────────────────────────────────────────────────────────────────────────────


def _on_exceptions() -> None:
    before, before_in_thread = sys.excepthook, threading.excepthook

    def excepthook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        global _told
        _told = id(value)
        try:
            _note(kind, value, trace, "")
        except Exception:
            pass
        finally:
            before(kind, value, trace)

    def in_thread(args: Any) -> None:
        try:
            if args.exc_type is not SystemExit:
                name = getattr(args.thread, "name", None) or "unknown"
                _note(args.exc_type, args.exc_value, args.exc_traceback, str(name))
        except Exception:
            pass
        finally:
            before_in_thread(args)

    sys.excepthook, threading.excepthook = excepthook, in_thread
    atexit.register(_at_exit, os.getpid())


def _at_exit(pid: int) -> None:
    """A program that set a hook of its own, which does not go on to ours: Python keeps what it raised."""
    value = getattr(sys, "last_value", None)
    if pid == os.getpid() and isinstance(value, BaseException) and id(value) != _told:
        try:
            _note(type(value), value, value.__traceback__, "")
        except Exception:
            pass


def _note(kind: type[BaseException], value: BaseException | None, trace: TracebackType | None, thread: str) -> None:
    """One line of JSON for an exception; and in the main thread what torchrun reads."""
    import json
    import traceback

    shown = "".join(traceback.format_exception(kind, value, trace))
    if len(shown) > MOST:
        shown = shown[: MOST // 4] + "\n  ...\n" + shown[-MOST * 3 // 4 :]
    last = "".join(traceback.format_exception_only(kind, value)).strip()[:4000]
    now = time.time()
    record = _facts(now, thread)
    step = _step(trace)
    if step is not None:
        record["in_step"] = step  # not "step", which would say that it had been done
    who = "process %d" % os.getpid() if record["rank"] is None else "rank %d" % record["rank"]
    where = " in thread %s" % thread[:80] if thread else ""
    record["message"] = "%s raised %s%s" % (who, kind.__name__, where)
    record["traceback"] = shown
    _append(_name() + EXCEPTIONS, json.dumps(record) + "\n")
    if not thread and issubclass(kind, Exception):
        extra = {"py_callstack": shown, "timestamp": str(int(now))}
        _for_torchrun(json.dumps({"message": {"message": last, "extraInfo": extra}}))


def _facts(now: float, thread: str) -> dict[str, Any]:
    seconds, rest = divmod(int(now * 1e6), 1000000)
    record: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + ".%06dZ" % rest,
        "host": os.uname().nodename,
        "event": "exception",
        "rank": rank(),
        "pid": os.getpid(),
    }
    for name in ("LOCAL_RANK", "WORLD_SIZE"):
        text = os.environ.get(name, "")
        if text.isdecimal() and len(text) < 8:
            record[name.lower()] = int(text)
    if thread:
        record["thread"] = thread
    return record


def _step(trace: TracebackType | None) -> int | None:
    """The step that it was in: a counter of the usual name in the innermost own function that has one."""
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


def _append(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, text.encode("ascii", "backslashreplace"))
    finally:
        os.close(file)


def _for_torchrun(text: str) -> None:
    """The file from which torchrun shows the first failed rank's traceback; @record writes it, too."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path and not (os.path.exists(path) and os.path.getsize(path)):
        with open(path, "w") as file:
            file.write(text)
