"""`postmortem run -- COMMAND`: the command runs, its evidence is kept, and after a failure the verdict
stands below its output.

execute(["torchrun", "train.py"], Wishes())  ->  the command's own exit code
"""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from postmortem.errors import UsageError, ours
from postmortem.live.run import counters, switches
from postmortem.live.run.child import End, Job
from postmortem.live.run.record import JOURNAL, REPORT, RUNS, Journal, make, say
from postmortem.live.run.tee import Tee, stream
from postmortem.system.arguments import HISTORY

NOT_FOUND, NOT_RUNNABLE = 127, 126  # as shells have it
DRAIN_S = 10.0
ANALYSIS_S = 600.0
FILING_S = 15.0
SLURM = {"job": "SLURM_JOB_ID", "step": "SLURM_STEP_ID", "restart": "SLURM_RESTART_COUNT"}
PACKAGE = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the caller may choose."""

    folder: Path = Path(RUNS)
    keep: str = "failed"  # always | failed
    off: tuple[str, ...] = ()  # switches that stay off
    analyze: bool = True
    history: str | None = None  # where the end is filed


def execute(command: Sequence[str], wishes: Wishes) -> int:
    """Run it; return its exit code. Where a signal killed it, we die of the same one."""
    if not sys.platform.startswith("linux"):
        raise UsageError("`postmortem run` works on Linux only", "run the command, and analyze its logs afterwards")
    if not command:
        raise UsageError("no command to run", "write it behind two dashes: postmortem run -- torchrun train.py")
    if unknown := [name for name in wishes.off if name not in switches.NAMES]:
        raise UsageError(f"--without {unknown[0]} is no switch", f"there are {', '.join(switches.NAMES)}")
    folder = make(wishes.folder)
    began = time.monotonic()
    end = _run(command, wishes, folder)
    failed, took = bool(end.code or end.signal), time.monotonic() - began
    if not failed and folder and wishes.history:
        _file(folder, wishes.history)
    _tell(end, took, folder, wishes)
    if failed and folder and wishes.analyze:
        analyze(folder, where=wishes.history)
    if end.signal:
        _die_of(end.signal)
    return end.code


def _run(command: Sequence[str], wishes: Wishes, folder: Path | None) -> End:
    host = socket.gethostname()
    journal, memory, kernel = Journal(folder, host), counters.Memory(), counters.KernelLog()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        streams = [stream("stdout", 1), stream("stderr", 2)]
        job = Job(journal, memory, folder)
        tee = Tee(streams, folder)
    except (OSError, AttributeError) as error:  # no descriptors or processes left, or a very old kernel
        say(f"nothing is kept of this run, which goes on alone: {error}")
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return _alone(command)
    added = {}
    if folder:
        added = switches.environment(os.environ, folder, command, wishes.off, any(s.tty for s in streams))
    facts = {"command": list(command), "cwd": _here(), "pid": os.getpid(), "switched_on": added}
    said = f"postmortem run on {host}: {shlex.join(command)[:2000]}"
    if slurm := {name: os.environ[key] for name, key in SLURM.items() if key in os.environ}:
        facts["slurm"] = slurm
    journal.write("run", said, facts | counters.state(memory))
    try:
        job.start(command, os.environ | added, tee)
    except OSError as error:
        end = _refused(command[0], error)
        tee.let_go()
    else:
        end = _ended(job)
    tee.drain(DRAIN_S)
    tee.close()
    last = {"code": end.code, "signal": end.signal, "ranks": job.watch.counted()} | counters.state(memory)
    job.close()
    journal.write("done", f"the command ended: {end}", last)
    _keep_kernel(folder, kernel)
    journal.close()
    return end


def _ended(job: Job) -> End:
    """Wait for the command, whatever happens to us meanwhile."""
    try:
        return job.wait()
    except Exception as error:
        say(f"nothing more is noted of this run: {ours(error)}")
        return job.wait_only()


def _alone(command: Sequence[str]) -> End:
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        return _refused(command[0], error)


def _here() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # somebody removed it
        return ""


def _refused(name: str, error: OSError) -> End:
    say(f"{name}: {'command not found' if isinstance(error, FileNotFoundError) else error.strerror}")
    return End(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE)


def _keep_kernel(folder: Path | None, kernel: counters.KernelLog) -> None:
    lines = kernel.new()
    kernel.close()
    if folder and lines:
        try:
            (folder / "dmesg.txt").write_text("\n".join(lines) + "\n", "utf-8")
        except OSError as error:
            say(f"no dmesg.txt in {folder}: {error.strerror}")


def _tell(end: End, seconds: float, folder: Path | None, wishes: Wishes) -> None:
    failed = bool(end.code or end.signal)
    kept = f"kept in {_short(folder)}" if folder else "nothing was kept"
    if folder and not failed and wishes.keep == "failed":
        shutil.rmtree(folder, ignore_errors=True)
        kept = "nothing kept"
        try:
            folder.parent.rmdir()  # where it is empty
        except OSError:
            pass
    say(f"{end} after {seconds:.1f} s; {kept}")


def _short(path: Path) -> Path:
    try:
        return path.relative_to(Path.cwd())
    except (OSError, ValueError):
        return path


def _ourselves(where: str | None) -> dict[str, str]:
    """The environment in which this package is found. The history's address may hold a password, which no
    command line shows."""
    there = [str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(there)}
    return env | ({HISTORY: where} if where else {})


def _file(folder: Path, where: str) -> None:
    """A good end, for the hours of its host. In a process of its own, and no longer than FILING_S: a store
    that hangs is left behind, even where it cannot be killed."""
    words = [sys.executable, "-P", "-m", "postmortem", "history", "add", str(folder / JOURNAL)]
    said = b""
    try:
        adding = subprocess.Popen(
            words,
            env=_ourselves(where),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # nothing of ours is held by what we leave behind
            stderr=subprocess.PIPE,
        )
        try:
            _, said = adding.communicate(timeout=FILING_S)
        except subprocess.TimeoutExpired:
            adding.kill()
            return say(f"not filed in the history: it took longer than {FILING_S:.0f} s")
    except KeyboardInterrupt:
        return None
    except OSError as error:
        return say(f"not filed in the history: {error.strerror}")
    told = said.decode("utf-8", "replace").splitlines()
    own = [line.removeprefix("postmortem: ") for line in told if line.startswith("postmortem: ")]
    for line in own:  # nothing, or what is wrong with the store
        say(f"not filed in the history: {line}" if adding.returncode else line)
    return None


def analyze(folder: Path, *more: Path, where: str | None = None) -> None:
    """In a process of its own: whatever happens to it, the exit code is the command's."""
    inputs = [str(_short(path)) for path in (folder, *more)]
    report = str(_short(folder) / REPORT)
    words = [sys.executable, "-P", "-m", "postmortem", "analyze", *inputs, "--output", report]
    try:
        subprocess.run(words, env=_ourselves(where), stdin=subprocess.DEVNULL, stdout=2, timeout=ANALYSIS_S)
    except KeyboardInterrupt:
        pass
    except (OSError, subprocess.SubprocessError) as error:
        say(f"the analysis did not end well ({error}); try: postmortem analyze {inputs[0]}")


def _die_of(number: int) -> None:
    """End as the command did. What waits for us (a shell, srun, Kubernetes) is to see the signal itself."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core, if any, is the command's
    signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
    for out in (sys.stdout, sys.stderr):
        try:
            out.flush()
        except (OSError, ValueError, AttributeError):
            pass
    os.kill(os.getpid(), number)
    signal.pause()
