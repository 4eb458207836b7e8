"""Many hosts at once, through the launcher that is there: srun, ssh or kubectl exec.

    targets(Many("ssh", "node-a,node-b"))  ->  [Target("node-a", ("ssh", …, "node-a", "python3 - …")), …]

Each host is sent the program on standard input and answers with a tar, which is taken member by member as it
comes: what a host had sent before it fell silent is kept.
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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from postmortem.errors import UsageError
from postmortem.input.archives import Tar
from postmortem.input.streams import Budget, Bytes, Decoded, Incomplete, Limits
from postmortem.live.collect import here, remote
from postmortem.live.collect.here import Task
from postmortem.model import collected as items

if TYPE_CHECKING:
    from postmortem.live.collect.here import Row

    Keep = Callable[[Row, bytes], None]

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=10", "-T", "--")
MEMBER_MAX = 64 << 20
HOST_MAX = 1 << 30  # bytes that one host may send
HOST = re.compile(r"(?:[\w.-]+@)?[\w.:%\[\]-]{1,253}")
JOB = re.compile(r"\d{1,12}(?:[_+]\d{1,9})?")
NAME = re.compile(r"host=[\w.-]{1,200}((?:/[\w.=-]{1,200}){1,3})")
ASKED = 20.0  # seconds for the launcher's list of hosts


@dataclass(frozen=True, slots=True)
class Many:
    """Which hosts, and how they are reached."""

    launcher: str  # srun, ssh or kubectl
    which: str  # a job, hosts, a selector
    python: str = ""
    namespace: str = ""
    container: str = ""

    @property
    def interpreter(self) -> str:
        """The Python to run there: our own where the file system is shared, as below Slurm it is."""
        return self.python or (sys.executable if self.launcher == "srun" else "python3")


@dataclass(frozen=True, slots=True)
class Target:
    """One host, and the command that runs Python there."""

    name: str
    command: tuple[str, ...]


@dataclass(slots=True)
class Answer:
    """What came of one host."""

    name: str
    host: str = ""
    rows: list[Row] = field(default_factory=list)
    bytes: int = 0
    seconds: float = 0.0
    offset: float | None = None  # seconds that its clock is ahead of ours, with the way of the answer in it
    why: str = ""  # it is not whole


def targets(many: Many, options: str) -> list[Target]:
    """The hosts and their commands. Raise UsageError where there are none."""
    names = {"srun": _of_slurm, "ssh": _of_list, "kubectl": _of_kubernetes}[many.launcher](many)
    if not names:
        raise UsageError(f"{many.launcher}: no host for {many.which}", "only what runs can be reached")
    for name in names:
        if not HOST.fullmatch(name) or name.startswith("-"):
            raise UsageError(f"{name[:80]} is not the name of a host", "separate names by commas")
    python = (many.interpreter, "-", options)
    if many.launcher == "ssh":  # a shell there takes the command apart
        return [Target(name, (*SSH, name, shlex.join(python))) for name in names]
    if many.launcher == "srun":
        step = ("srun", f"--jobid={many.which}", "--overlap", "--nodes=1", "--ntasks=1", "--quiet")
        return [Target(name, (*step, f"--nodelist={name}", *python)) for name in names]
    container = ("--container", many.container) if many.container else ()
    return [Target(name, (*_kubectl(many, "exec"), "-i", name, *container, "--", *python)) for name in names]


def of_scheduler(many: Many, pods: Sequence[str]) -> list[Task]:
    """What is asked once, from here."""
    if many.launcher == "srun":
        return here.of_slurm(many.which)
    if many.launcher == "kubectl":
        tasks = here.of_pods(many.which, pods)
        return [Task(t.item, t.file, tuple(_in_namespace(many, way) for way in t.ways)) for t in tasks]
    return []


def _in_namespace(many: Many, way: items.Way) -> items.Way:
    return (*_kubectl(many, way[1]), *way[2:])


def _kubectl(many: Many, verb: str) -> tuple[str, ...]:
    return ("kubectl", verb, *(("--namespace", many.namespace) if many.namespace else ()))


def _asked(*command: str) -> str:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=ASKED, text=True)
    except FileNotFoundError:
        raise UsageError(f"{command[0]} is not installed here", "run this where the job was started") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"{command[0]} did not answer in {ASKED:g} s", "name the hosts with --ssh") from None
    if done.returncode:
        said = " ".join(done.stderr.split())[:200] or f"exit code {done.returncode}"
        raise UsageError(f"{command[0]}: {said}", "the job must still run; or name the hosts with --ssh")
    return done.stdout


def _of_slurm(many: Many) -> list[str]:
    if not JOB.fullmatch(many.which):
        raise UsageError(f"{many.which[:80]} is not the number of a job", "squeue lists those that run")
    listed = _asked("squeue", "--noheader", "--jobs", many.which, "--format", "%N").split()
    return _asked("scontrol", "show", "hostnames", ",".join(listed)).split() if listed else []


def _of_list(many: Many) -> list[str]:
    """Names behind commas, or a file of them, one a line."""
    text = many.which
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text("utf-8")
        except (OSError, ValueError):
            raise UsageError(f"{text[1:]} cannot be read", "name a file with a host on each line") from None
    lines = [line.partition("#")[0] for line in text.splitlines()]
    return list(dict.fromkeys(name for line in lines for name in re.split(r"[\s,]+", line) if name))


def _of_kubernetes(many: Many) -> list[str]:
    said = _asked(*_kubectl(many, "get"), "pods", "--selector", many.which, "--output", "json")
    try:
        return [str(pod["metadata"]["name"]) for pod in json.loads(said)["items"]]
    except (ValueError, KeyError, TypeError):
        raise UsageError("kubectl printed no list of pods", "is it kubectl that is first on PATH?") from None


# ── asking them ─────────────────────────────────────────────────────────────────────────────────────────────


class Crowd:
    """All targets, `together` at a time."""

    def __init__(self, asked: Sequence[Target], keep: Keep, limit: float, together: int) -> None:
        self._keep, self._limit = keep, limit
        self._program = remote.program()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._taken: dict[str, str] = {}  # by the name that a host gives itself: which target it is
        self._lock = threading.Lock()
        self.answers = [Answer(target.name, why="interrupted") for target in asked]
        self._pool = ThreadPoolExecutor(together)
        self._waiting = [
            self._pool.submit(self._ask, target, answer) for target, answer in zip(asked, self.answers, strict=True)
        ]

    def wait(self) -> None:
        """Until each has answered, or its time was over."""
        for done in as_completed(self._waiting):
            done.result()

    def stop(self) -> None:
        """End what runs; its hosts have answered so far."""
        for waiting in self._waiting:
            waiting.cancel()
        with self._lock:
            for process in self._running:
                _kill(process)
        self._pool.shutdown(wait=True)

    def _ask(self, target: Target, answer: Answer) -> None:
        begun = time.monotonic()
        try:
            process = subprocess.Popen(
                target.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            answer.why = f"{target.command[0]}: {error.strerror}"
            return
        with self._lock:
            self._running.add(process)
        late = threading.Timer(self._limit, _kill, (process,))
        late.start()
        said: list[bytes] = []
        errors = threading.Thread(target=_drain, args=(process.stderr, said), daemon=True)
        errors.start()
        try:
            cut = self._taken_from(process, answer)
            answer.why = self._why(process, cut, said, errors, time.monotonic() - begun >= self._limit)
        finally:
            late.cancel()
            _kill(process)
            with self._lock:
                self._running.discard(process)
            answer.seconds = time.monotonic() - begun

    def _taken_from(self, process: subprocess.Popen[bytes], answer: Answer) -> str:
        """Send the program, take the members. Return why the tar could not be read to its end."""
        assert process.stdin and process.stdout
        with suppress(OSError):
            process.stdin.write(self._program)
            process.stdin.close()
        budget = Budget(Limits(total=HOST_MAX))
        tar = Tar(Decoded(_Pipe(process.stdout.fileno()), "gz", budget))
        members = iter(tar)
        while True:
            try:
                member = next(members, None)
                if member is None:
                    break
                data = member.stream.read(MEMBER_MAX)
            except Incomplete as cut:
                return cut.reason
            self._member(os.fsdecode(member.name), data, answer)
        return tar.failure.reason if tar.failure else ""

    def _member(self, name: str, data: bytes, answer: Answer) -> None:
        if name == remote.INDEX:
            answer.rows, answer.offset = _index(data, answer)
            return
        match = NAME.fullmatch(name)
        if not match or ".." in name:
            return
        if not answer.host:
            answer.host = self._named(name[len("host=") : match.start(1)], answer.name)
        answer.bytes += len(data)
        answer.rows.append({"item": match[1][1:], "file": f"host={answer.host}{match[1]}"})
        self._keep({"file": f"host={answer.host}{match[1]}", "started": time.time()}, data)

    def _named(self, host: str, target: str) -> str:
        """The host's own name, which its logs have too; where two have the same one, what they were asked
        by."""
        with self._lock:
            if self._taken.setdefault(host, target) == target:
                return host
        return re.sub(r"[^\w.-]", "_", target)

    def _why(
        self,
        process: subprocess.Popen[bytes],
        cut: str,
        said: list[bytes],
        errors: threading.Thread,
        late: bool,
    ) -> str:
        """Why an answer is not whole; empty where it is."""
        if late:
            return f"no end after {self._limit:g} s"
        with suppress(subprocess.TimeoutExpired):
            process.wait(2)
        errors.join(1)
        if not cut and not process.returncode:
            return ""
        lines = b"".join(said).decode("utf-8", "replace").strip().splitlines()
        return " ".join(lines[-1].split())[:200] if lines else cut or f"exit code {process.returncode}"


def _index(data: bytes, answer: Answer) -> tuple[list[Row], float | None]:
    """The rows of a host, and how far its clock is ahead."""
    try:
        told = json.loads(data)
        rows = [dict(row) for row in told["items"]]
        for row in rows:
            if row.get("file"):
                row["file"] = re.sub(r"^host=[^/]*", f"host={answer.host}", str(row["file"]))
        return rows, float(told["now"]) - time.time()
    except (ValueError, KeyError, TypeError, RecursionError):
        return answer.rows, None


class _Pipe(Bytes):
    """What a process prints."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def _pull(self, n: int) -> bytes:
        return os.read(self._fd, n)

    def left(self) -> int:
        return 0


def _drain(pipe: object, said: list[bytes]) -> None:
    """Keep the end of what a command says on standard error."""
    while piece := os.read(pipe.fileno(), 4096):  # type: ignore[attr-defined]
        said.append(piece)
        del said[:-4]


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
