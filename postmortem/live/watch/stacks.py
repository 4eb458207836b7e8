"""The evidence of a standstill in one folder, and the verdict that `analyze` makes of it and the logs.

    standstill-1/
        run.jsonl                     how long nothing moved, who is which process, and how each one waits
        rank0.pid4711.stack.txt       where a rank stands, by py-spy or pystack
        rank0.pid4711.process.txt     state, kernel stack, system call
        ps.txt                        all processes of this host
        verdict.json  report.html     what `analyze` says of the logs and of this folder

A rank of which no tool may take a stack is sent a signal only if it catches that one: any other would end it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postmortem.live.collect import here
from postmortem.live.collect.ranks import Rank
from postmortem.live.hooks.postmortem_hook import SIGNAL
from postmortem.live.run import processes
from postmortem.live.run.command import PACKAGE
from postmortem.live.run.record import JOURNAL, Journal

if TYPE_CHECKING:
    from postmortem.live.collect.here import Row

ANSWER_S, ANSWER = 0.3, 1 << 20
STACKS = ".stacks.txt"  # how a file of a rank's own stacks is called
ANALYSIS_S = 300.0
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
VERDICT, REPORT = "verdict.json", "report.html"
_STATE = re.compile(rb"^State:\s+(\S) \(([\w ]{1,40})\)", re.M)
_WCHAN = re.compile(rb"/proc/\d+/wchan <==\n(\w{2,80})\n")
_CALL = re.compile(rb"/proc/\d+/syscall <==\n(\d{1,4}) 0x([0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class Standstill:
    """What is known of it before anybody judges."""

    quiet: float  # seconds in which nothing moved
    usual: float  # from one sign of progress to the next, 0 where nobody knows
    said: str  # the last that any rank printed
    world: int = 0


def take(folder: Path, found: Sequence[Rank], still: Standstill) -> list[str]:
    """Save where the ranks of this host stand. Returns of whom no stack came, and why."""
    folder.mkdir(mode=0o700)
    host = socket.gethostname()
    journal = Journal(folder, host)
    names = ", ".join(str(r.number) for r in found[:64])
    journal.write("watch", f"postmortem watch on {host}: ranks {names}" if found else f"postmortem watch on {host}")
    stacked, rows = _saved(folder, found)
    for r in found:
        world = f" of {still.world}" if still.world > r.number else ""
        journal.write("start", f"rank {r.number}{world} pid {r.pid} runs")
    before = f", where {still.usual:.1f} s were usual" if still.usual else ""
    journal.write("standstill", f"no rank made progress for {still.quiet:.0f} s{before}", {"last": still.said})
    lacking = []
    for r in found:
        how = _waits(folder, r)
        if how:
            journal.write("waits", how)
        if r.pid not in stacked:
            why = _asked(r, folder) or rows.get(r.pid, "no stack")
            lacking.append(f"rank {r.number} (pid {r.pid}): {why}")
            journal.write("no-stack", lacking[-1])
    journal.close()
    return lacking


def _saved(folder: Path, found: Sequence[Rank]) -> tuple[set[int], dict[int, str]]:
    """Write what came; the pids of which stacks came, and why others did not."""
    stacked: set[int] = set()
    why: dict[int, str] = {}
    by_name = {f"rank{r.number}.pid{r.pid}.stack.txt": r.pid for r in found}
    for row, data in here.standing(found):
        if row["file"]:
            (folder / Path(row["file"]).name).write_bytes(data)
        if row["file"] in by_name:
            stacked.add(by_name[row["file"]])
        elif row["why"]:
            why.setdefault(_pid_of(row), row["why"])
    return stacked, why


def _pid_of(row: Row) -> int:
    return next((int(word) for word in row["command"] if word.isdigit()), 0)


def _waits(folder: Path, r: Rank) -> str:
    """What the kernel says of a rank: only if it is stopped, or waits in the kernel itself, does it say more
    than a stack."""
    with contextlib.suppress(OSError):
        text = (folder / f"rank{r.number}.pid{r.pid}.process.txt").read_bytes()
        state, channel, call = _STATE.search(text), _WCHAN.search(text), _CALL.search(text)
        if state is None:
            return ""
        letter, word = state[1].decode(), state[2].decode()
        if letter in ("T", "t"):
            by = "a debugger" if letter == "t" else "a signal"
            return f"rank {r.number} (pid {r.pid}) is stopped by {by}: state {letter}"
        on = f" on {_opened(r.pid, int(call[2], 16))}" if call and int(call[1]) in _ON_FILES else ""
        where = f" in {channel[1].decode()}" if channel else ""
        return f"rank {r.number} (pid {r.pid}) is in state {letter} ({word}){where}{on}"
    return ""


_ON_FILES = frozenset((0, 1, 17, 18, 19, 20, 45, 74, 75)) if os.uname().machine == "x86_64" else frozenset((63, 64))


def _opened(pid: int, descriptor: int) -> str:
    """What a file descriptor is."""
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/fd/{descriptor}").readlink())[:200]
    return f"descriptor {descriptor}"


def _asked(r: Rank, folder: Path) -> str:
    """Ask a rank that registered faulthandler to write its stacks: into its log, or into a file that it keeps
    open for them, of which we take what is new."""
    if not processes.catches(r.pid, SIGNAL):
        return ""
    with contextlib.suppress(OSError):
        file = _kept_open(r.pid)
        before = file.stat().st_size if file else 0
        os.kill(r.pid, SIGNAL)
        time.sleep(ANSWER_S)
        if file:
            with file.open("rb") as answer:
                answer.seek(before)
                data = answer.read(ANSWER)
            (folder / f"rank{r.number}.pid{r.pid}.asked.txt").write_bytes(data)
        return f"its own handler of signal {SIGNAL} was asked for the stack"
    return ""


def _kept_open(pid: int) -> Path | None:
    """The file into which a rank writes its stacks and nothing else."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            path = link.readlink()
            if path.name.endswith(STACKS) and path.is_file():
                return path
    return None


# ── the verdict ─────────────────────────────────────────────────────────────────────────────────────────────


def ready() -> None:
    """Load what judges while there is time: then a verdict takes a moment, on a busy host too."""
    for name in ("analyze", "align.steps", "diagnose", "privacy.events", "report.json", "system.output"):
        import_module(f"postmortem.{name}")


def judge(paths: Sequence[str], folder: Path | None, out: Path) -> dict[str, Any] | None:
    """What `analyze` says; None where it does not end well. In a process of its own, so that no log costs us
    our memory; a copy of this one, which has everything loaded."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # what they raise in a fork is lost
    try:
        pid = os.fork()
        if not pid:
            _be_the_judge(_inputs(paths, folder), out / VERDICT)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if not _ended(pid):
        return None
    try:
        found: dict[str, Any] = json.loads((out / VERDICT).read_bytes())
    except (OSError, ValueError):
        return None
    return found


def _be_the_judge(inputs: Sequence[str], out: Path) -> None:
    """In the child: analyze, and nothing else."""
    from postmortem import analyze, report
    from postmortem.system import output

    code = 1
    try:
        for number in STOPS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        output.write_file(out, report.render(analyze(inputs), "json"))
        code = 0
    finally:
        os._exit(code)


def _ended(pid: int) -> bool:
    """Wait for the child, as long as an analysis may take. Whether it ended well."""
    until = time.monotonic() + ANALYSIS_S
    try:
        while time.monotonic() < until:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return status == 0
            time.sleep(0.02)
    except KeyboardInterrupt:
        _kill(pid)
        raise
    _kill(pid)
    return False


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def page(paths: Sequence[str], folder: Path, out: Path) -> subprocess.Popen[bytes]:
    """Start to write the report: whoever reads the verdict does not wait for it. Raise OSError."""
    words = _words(paths, folder, "--quiet", "--output", str(out / REPORT))
    nothing = subprocess.DEVNULL
    return subprocess.Popen(words, env=_env(), stdin=nothing, stdout=nothing, stderr=nothing)


def report(paths: Sequence[str], folder: Path | None, out: Path) -> None:
    """Analyze what the job has left behind, for a reader."""
    words = _words(paths, folder, "--output", str(out / REPORT))
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(words, env=_env(), stdin=subprocess.DEVNULL, stdout=2, timeout=ANALYSIS_S)


def _words(paths: Sequence[str], folder: Path | None, *options: str) -> list[str]:
    return [sys.executable, "-P", "-m", "postmortem", "analyze", *options, "--", *_inputs(paths, folder)]


def _inputs(paths: Sequence[str], folder: Path | None) -> list[str]:
    inside = folder is None or any(folder.is_relative_to(Path(path).resolve()) for path in paths)
    return [*paths, *([] if inside else [str(folder)])]


def _env() -> dict[str, str]:
    there = os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": there}


def forget(folder: Path) -> None:
    """The standstill passed: what a later analysis would take for the end goes; verdict and report stay."""
    for path in _raw(folder):
        with contextlib.suppress(OSError):
            path.unlink()


def _raw(folder: Path) -> Iterator[Path]:
    yield from folder.glob("rank*.txt")
    yield folder / "ps.txt"
    yield folder / JOURNAL
