"""Many hosts at once, through srun, ssh or kubectl exec.

    commands(Hosts("ssh", "node-a,node-b"), "{}")  ->  {"node-a": ("ssh", …, "node-a", "python3 - …"), …}

Each host gets the program on standard input and answers with a tar, which is read member by member as it comes:
the part that a host had sent before it stopped is saved.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from postmortem.errors import UsageError
from postmortem.input.archives import Tar
from postmortem.input.streams import Budget, Bytes, Decoded, Incomplete, Limits
from postmortem.live.collect import here, sent_program
from postmortem.live.collect.here import Task

if TYPE_CHECKING:
    from postmortem.live.collect.here import Row

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=10", "-T", "--")
MEMBER_MAX = 64 << 20
HOST_MAX = 1 << 30  # bytes that one host may send
HOST = re.compile(r"(?:[\w.-]+@)?[\w.:%\[\]-]{1,253}")
JOB = re.compile(r"\d{1,12}(?:[_+]\d{1,9})?")
NAME = re.compile(r"host=([\w.-]{1,200})((?:/[\w.=-]{1,200}){1,3})")
LISTING = 20.0  # seconds for the launcher's list of hosts


@dataclass(frozen=True, slots=True)
class Hosts:
    """Which hosts, and how they are reached."""

    launcher: str  # srun, ssh or kubectl
    which: str  # a job, hosts, a selector
    python: str = ""
    namespace: str = ""
    container: str = ""

    def kubectl(self, verb: str) -> tuple[str, ...]:
        return ("kubectl", verb, *(("--namespace", self.namespace) if self.namespace else ()))


@dataclass(slots=True)
class Answer:
    """The result of one host, as in the index."""

    asked: str  # the name by which it was reached
    host: str = ""  # its own name
    why: str = "interrupted"  # the reason for which it is incomplete
    seconds: float = 0.0
    bytes: int = 0
    clock_ahead_s: float | None = None  # with the latency of the answer in it
    items: list[Row] = field(default_factory=list)


def commands(hosts: Hosts, options: str) -> dict[str, tuple[str, ...]]:
    """Return the command that runs Python on each host. Raise UsageError if there is no host."""
    names = _names(hosts)
    if not names:
        raise UsageError(f"{hosts.launcher}: no host for {hosts.which}", "only running ones can be reached")
    for name in names:
        if not HOST.fullmatch(name) or name.startswith("-"):
            raise UsageError(f"{name[:80]} is not the name of a host", "separate names by commas")
    # below Slurm our own Python, since the file system is shared
    python = (hosts.python or (sys.executable if hosts.launcher == "srun" else "python3"), "-", options)
    if hosts.launcher == "ssh":  # a shell there splits the command
        return {name: (*SSH, name, shlex.join(python)) for name in names}
    if hosts.launcher == "srun":
        step = ("srun", f"--jobid={hosts.which}", "--overlap", "--nodes=1", "--ntasks=1", "--quiet")
        return {name: (*step, f"--nodelist={name}", *python) for name in names}
    container = ("--container", hosts.container) if hosts.container else ()
    return {name: (*hosts.kubectl("exec"), "-i", name, *container, "--", *python) for name in names}


def of_scheduler(hosts: Hosts, names: Sequence[str]) -> list[Task]:
    """Return the items that are asked once, from here."""
    if hosts.launcher == "srun":
        return here.of_slurm(hosts.which)
    pods = here.of_pods(hosts.which, names) if hosts.launcher == "kubectl" else ()
    return [Task(t.item, t.file, tuple((*hosts.kubectl(way[1]), *way[2:]) for way in t.ways)) for t in pods]


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LISTING, text=True)
    except FileNotFoundError:
        raise UsageError(f"{command[0]} is not installed here", "run this where the job was started") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"{command[0]} did not answer in {LISTING:g} s", "name the hosts with --ssh") from None
    if done.returncode:
        error = " ".join(done.stderr.split())[:200] or f"exit code {done.returncode}"
        raise UsageError(f"{command[0]}: {error}", "the job must still run; or name the hosts with --ssh")
    return done.stdout


def _names(hosts: Hosts) -> list[str]:
    """Return the hosts of a Slurm job, the pods of a selector, or names separated by commas or in a file."""
    text = hosts.which
    if hosts.launcher == "srun":
        if not JOB.fullmatch(text):
            raise UsageError(f"{text[:80]} is not the number of a job", "squeue lists those that run")
        listed = _output("squeue", "--noheader", "--jobs", text, "--format", "%N").split()
        return _output("scontrol", "show", "hostnames", ",".join(listed)).split() if listed else []
    if hosts.launcher == "kubectl":
        pods = _output(*hosts.kubectl("get"), "pods", "--selector", text, "--output", "json")
        try:
            return [str(pod["metadata"]["name"]) for pod in json.loads(pods)["items"]]
        except (ValueError, KeyError, TypeError):
            raise UsageError("kubectl printed no list of pods", "check which kubectl is first on PATH") from None
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text("utf-8")
        except (OSError, ValueError):
            raise UsageError(f"{text[1:]} cannot be read", "name a file with a host on each line") from None
    lines = [line.partition("#")[0] for line in text.splitlines()]
    return list(dict.fromkeys(name for line in lines for name in line.replace(",", " ").split()))


class HostPool:
    """Runs the commands of all hosts, `together` at a time."""

    def __init__(
        self, wanted: Mapping[str, Sequence[str]], add: Callable[[Row, bytes], None], limit: float, together: int
    ) -> None:
        self._add, self._limit = add, limit
        self._program = sent_program.program()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._names: dict[str, str] = {}  # a host's own name -> the name by which it was reached
        self._lock = threading.Lock()
        self.answers = [Answer(name) for name in wanted]
        self._pool = ThreadPoolExecutor(together)
        self._waiting = [self._pool.submit(self._ask, wanted[answer.asked], answer) for answer in self.answers]

    def wait(self) -> None:
        """Wait until each host has answered, or its time is over."""
        for done in as_completed(self._waiting):
            done.result()

    def stop(self) -> None:
        for waiting in self._waiting:
            waiting.cancel()
        with self._lock:
            for process in self._running:
                _kill(process)
        self._pool.shutdown(wait=True)

    def _ask(self, command: Sequence[str], answer: Answer) -> None:
        began = time.monotonic()
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        except OSError as error:
            answer.why = f"{command[0]}: {error.strerror}"
            return
        assert process.stdin and process.stdout and process.stderr
        with self._lock:
            self._running.add(process)
        timer = threading.Timer(self._limit, _kill, (process,))
        timer.start()
        errors: list[bytes] = []
        drain = threading.Thread(target=_drain, args=(process.stderr, errors), daemon=True)
        drain.start()
        try:
            with suppress(OSError):
                process.stdin.write(self._program)
                process.stdin.close()
            answer.why = self._take_members(process.stdout.fileno(), answer)
            if time.monotonic() - began >= self._limit:
                answer.why = f"no end after {self._limit:g} s"
                return
            with suppress(subprocess.TimeoutExpired):
                process.wait(2)
            drain.join(1)
            if answer.why or process.returncode:
                lines = b"".join(errors).decode("utf-8", "replace").strip().splitlines()
                own = " ".join(lines[-1].split())[:200] if lines else ""
                answer.why = own or answer.why or f"exit code {process.returncode}"
        finally:
            timer.cancel()
            _kill(process)
            with self._lock:
                self._running.discard(process)
            answer.seconds = round(time.monotonic() - began, 3)

    def _take_members(self, fd: int, answer: Answer) -> str:
        """Add the members of the answer; return why it could not be read to its end, empty if it could."""
        tar = Tar(Decoded(_Pipe(fd), "gz", Budget(Limits(total=HOST_MAX))))
        try:
            for member in tar:
                self._take(os.fsdecode(member.name), member.stream.read(MEMBER_MAX), answer)
        except Incomplete as cut:
            return cut.reason
        return tar.failure.reason if tar.failure else ""

    def _take(self, name: str, data: bytes, answer: Answer) -> None:
        if name == sent_program.INDEX:
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                index = json.loads(data)
                rows = [dict(row) for row in index["items"]]
                for row in rows:
                    if row.get("file"):
                        row["file"] = f"host={answer.host}/{str(row['file']).partition('/')[2]}"
                answer.items, answer.clock_ahead_s = rows, float(index["now"]) - time.time()
        elif (match := NAME.fullmatch(name)) and ".." not in name:
            if not answer.host:  # its own name, which its logs have too, unless two hosts have the same one
                with self._lock:
                    unique = self._names.setdefault(match[1], answer.asked) == answer.asked
                answer.host = match[1] if unique else re.sub(r"[^\w.-]", "_", answer.asked)
            answer.bytes += len(data)
            file = f"host={answer.host}{match[2]}"
            answer.items.append({"item": match[2][1:], "file": file})
            self._add({"file": file, "started": time.time()}, data)


class _Pipe(Bytes):
    """The standard output of a process."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def _pull(self, n: int) -> bytes:
        return os.read(self._fd, n)

    def left(self) -> int:
        return 0


def _drain(pipe: IO[bytes], errors: list[bytes]) -> None:
    """Keep the end of a command's standard error in `errors`."""
    while piece := os.read(pipe.fileno(), 4096):
        errors.append(piece)
        del errors[:-4]


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
