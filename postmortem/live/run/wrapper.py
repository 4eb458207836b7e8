"""`postmortem run -- COMMAND`: the command runs, its evidence is saved, and a failure is analyzed.

execute(["torchrun", "train.py"])  ->  the command's own exit code
"""

from __future__ import annotations

import errno
import os
import resource
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from postmortem.errors import UsageError, ours
from postmortem.live.run import kernel_state, switches
from postmortem.live.run.job import WATCHED, Job, for_shell
from postmortem.live.run.journal import JOURNAL, REPORT, RUNS, Journal, make_folder, print_line
from postmortem.live.run.tee import Tee, open_stream
from postmortem.live.run.tracker import name_of
from postmortem.system.arguments import HISTORY

NOT_FOUND, NOT_RUNNABLE = 127, 126  # as in shells
DRAIN_S = 10.0
ANALYSIS_S = 600.0
HISTORY_S = 15.0
STOP_S = 5.0  # for a partial report
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
SLURM = {"job": "SLURM_JOB_ID", "step": "SLURM_STEP_ID", "restart": "SLURM_RESTART_COUNT"}
PACKAGE = Path(__file__).resolve().parents[3]


def execute(
    command: Sequence[str],
    folder: Path = Path(RUNS),
    keep: str = "failed",  # always | failed
    off: Sequence[str] = (),  # switches
    analyzed: bool = True,
    history: str | None = None,
) -> int:
    """Run it, with its evidence below `folder`; return its exit code. If a signal killed it, die of the same one."""
    if not sys.platform.startswith("linux"):
        raise UsageError("`postmortem run` works on Linux only", "run the command, and analyze its logs afterwards")
    if not command:
        raise UsageError("no command to run", "write it after two dashes: postmortem run -- torchrun train.py")
    if unknown := [name for name in off if name not in switches.SWITCHES]:
        raise UsageError(f"--without {unknown[0]} is not a switch", f"the switches are {', '.join(switches.SWITCHES)}")
    kept = make_folder(folder)
    began = time.monotonic()
    started, code = _run(command, off, kept)
    seconds = time.monotonic() - began
    if not started:
        _remove(kept)
        return code
    if not code and kept and history:
        _add_to_history(kept, history)
    where = f"kept in {_relative(kept)}" if kept else "no evidence was saved"
    if kept and not code and keep == "failed":
        _remove(kept)
        where = "nothing kept"
    print_line(f"{_end(code)} after {seconds:.1f} s; {where}")
    if code and kept and analyzed:
        analyze(kept, history=history)
    if code < 0:
        _die_of(-code)
    return code


def _remove(folder: Path | None) -> None:
    if folder:
        switches.remove(folder)
        with suppress(OSError):
            folder.parent.rmdir()  # if it is empty


def _end(code: int) -> str:
    return name_of(-code) if code < 0 else f"exit code {code}"


def _run(command: Sequence[str], off: Sequence[str], folder: Path | None) -> tuple[bool, int]:
    """Return whether the command was started, and its exit code."""
    host = socket.gethostname()
    journal, memory, kernel = Journal(folder, host), kernel_state.Memory(), kernel_state.KernelLog()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        streams = [open_stream("stdout", 1), open_stream("stderr", 2)]
        job = Job(journal, memory, folder)
        tee = Tee(streams, folder)
    except (OSError, AttributeError) as error:  # no descriptors or processes left, or a very old kernel
        print_line(f"no evidence of this run is saved; the command continues: {error}")
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            os.execvp(command[0], list(command))
        except OSError as cause:
            if cause.errno == errno.ENOEXEC:
                os.execv("/bin/sh", for_shell(command))
            return False, _not_started(command[0], cause)
    added = {}
    if folder:
        try:
            added = switches.environment(os.environ, folder, command, off, any(s.tty for s in streams))
        except Exception as error:
            print_line(f"no diagnostics are switched on: {ours(error)}")
    facts: dict[str, object] = {"command": list(command), "cwd": "", "pid": os.getpid(), "switched_on": added}
    with suppress(OSError):  # the folder may have been removed
        facts["cwd"] = str(Path.cwd())
    if slurm := {name: os.environ[key] for name, key in SLURM.items() if key in os.environ}:
        facts["slurm"] = slurm
    message = f"postmortem run on {host}: {shlex.join(command)[:2000]}"
    journal.write("run", message, facts | kernel_state.state(memory))
    started = True
    try:
        job.start(command, os.environ | added, tee)
    except OSError as error:
        started, code = False, _not_started(command[0], error)
        tee.close_inner()
    else:
        try:
            code = job.wait()
        except Exception as error:
            print_line(f"no more events of this run are recorded: {ours(error)}")
            code = job.wait_only()
    tee.drain(DRAIN_S)
    tee.close()
    last = {"code": max(code, 0), "signal": max(-code, 0), "ranks": job.tracker.counted()} | kernel_state.state(memory)
    job.close()
    journal.write("done", f"the command ended: {_end(code)}", last)
    kernel.save(folder)
    journal.close()
    return started, code


def _not_started(name: str, error: OSError) -> int:
    missing = isinstance(error, FileNotFoundError)
    print_line(f"{name}: {'command not found' if missing else error.strerror}")
    return NOT_FOUND if missing else NOT_RUNNABLE


def _relative(path: Path) -> Path:
    try:
        return path.relative_to(Path.cwd())
    except (OSError, ValueError):
        return path


def own_command(*words: str, history: str | None = None) -> dict[str, Any]:
    """Return the arguments of Popen for a command of this package, which no module in the working directory replaces.
    The address of the history is a variable, since it may hold a password, which a command line would show."""
    path = os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH")]))
    env = os.environ | {"PYTHONPATH": path} | ({HISTORY: history} if history else {})
    more = {"preexec_fn": _unblock} if signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ()) else {}
    words = (sys.executable, "-P", "-m", "postmortem", *words)
    return {"args": words, "env": env, "stdin": subprocess.DEVNULL, **more}


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)


def _wait(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a command of ours; return whether it ended in that time. A signal to stop stops it: none may replace
    the exit code of the job. One that cannot be killed is left behind."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    until, stop = time.monotonic() + seconds, child.terminate
    while child.poll() is None and until > (now := time.monotonic()):
        found = signal.sigtimedwait(WATCHED, until - now)
        if found is not None and found.si_signo in STOPS:
            stop()
            until, stop = min(until, time.monotonic() + STOP_S), child.kill
    in_time = child.poll() is not None
    child.kill()
    while signal.sigtimedwait(WATCHED, 0) is not None:
        pass
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return in_time


def _add_to_history(folder: Path, history: str) -> None:
    """Store a success, for the hours of its host. In a process of its own, and no longer than HISTORY_S."""
    command = own_command("history", "add", str(folder / JOURNAL), history=history)
    try:
        adding = subprocess.Popen(**command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if not _wait(adding, HISTORY_S):
            return print_line(f"not filed in the history: it took longer than {HISTORY_S:.0f} s")
        assert adding.stderr
        lines = os.read(adding.stderr.fileno(), 1 << 16).decode("utf-8", "replace").splitlines()
    except OSError as error:
        return print_line(f"not filed in the history: {error.strerror}")
    for line in lines:
        if line.startswith("postmortem: "):
            own = line.removeprefix("postmortem: ")
            print_line(f"not filed in the history: {own}" if adding.returncode else own)
    return None


def analyze(folder: Path, *more: Path, history: str | None = None) -> None:
    """Analyze in a process of its own, which cannot change the exit code."""
    inputs = [str(_relative(path)) for path in (folder, *more)]
    command = own_command("analyze", *inputs, "--output", str(_relative(folder) / REPORT), history=history)
    try:
        if not _wait(subprocess.Popen(**command, stdout=2), ANALYSIS_S):
            print_line(f"the analysis did not end; try: postmortem analyze {inputs[0]}")
    except (OSError, subprocess.SubprocessError) as error:
        print_line(f"the analysis did not start ({error}); try: postmortem analyze {inputs[0]}")


def _die_of(number: int) -> None:
    """End by the command's signal, which the parent (a shell, srun, Kubernetes) then sees."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core, if any, is the command's
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    for out in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            out.flush()
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    signal.pause()
