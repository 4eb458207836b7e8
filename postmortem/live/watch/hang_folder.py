"""The evidence of a hang in one folder, and the verdict of `analyze` on it and the logs.

The folder has a journal, the stack and process file of each rank, `ps.txt`, `verdict.json` and `report.html`. If no
tool may read the stack of a rank, it is sent a signal, but only if it has a handler, without which it would die.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from postmortem.live.collect import here
from postmortem.live.collect.rank_search import Rank
from postmortem.live.collect.subprocesses import forked
from postmortem.live.hooks.postmortem_hook import SIGNAL
from postmortem.live.run import processes
from postmortem.live.run.journal import JOURNAL, Journal
from postmortem.live.run.processes import stack_file
from postmortem.live.run.wrapper import own_command
from postmortem.system.process import load_pandas

ANSWER_S, ANSWER = 0.3, 1 << 20
ANALYSIS_S = 300.0
VERDICT, REPORT = "verdict.json", "report.html"
# system calls whose first argument is a file descriptor
_ON_FILES = (0, 1, 17, 18, 19, 20, 45, 74, 75) if os.uname().machine == "x86_64" else (63, 64)


@dataclass(frozen=True, slots=True)
class Hang:
    """Facts that are known before the analysis."""

    quiet: float  # seconds without progress
    usual: float  # from one sign of progress to the next, 0 if unknown
    last_line: str  # of any rank
    world: int = 0


def save(folder: Path, found: Sequence[Rank], hang: Hang) -> list[str]:
    """Save the state of this host's ranks. Return the ranks without a stack, and why. Raise OSError."""
    folder.mkdir(mode=0o700)
    host = socket.gethostname()
    journal = Journal(folder, host)
    names = ", ".join(str(r.number) for r in found[:64])
    journal.write("watch", f"postmortem watch on {host}: ranks {names}" if found else f"postmortem watch on {host}")
    reasons = _save_stacks(folder, found)
    for r in found:
        world = f" of {hang.world}" if hang.world > r.number else ""
        journal.write("start", f"rank {r.number}{world} pid {r.pid} runs")
    before = f", where {hang.usual:.1f} s were usual" if hang.usual else ""
    journal.write("standstill", f"no rank made progress for {hang.quiet:.0f} s{before}", {"last": hang.last_line})
    lacking = []
    for r in found:
        if waits := _kernel_wait(folder, r):
            journal.write("waits", waits)
        if r.pid in reasons:
            lacking.append(f"rank {r.number} (pid {r.pid}): {_request_stack(r, folder) or reasons[r.pid]}")
            journal.write("no-stack", lacking[-1])
    journal.close()
    return lacking


def _save_stacks(folder: Path, found: Sequence[Rank]) -> dict[int, str]:
    """Write stacks and process files; return the pids without a stack, and why."""
    by_name = {f"rank{r.number}.pid{r.pid}.stack.txt": r.pid for r in found}
    reasons = dict.fromkeys(by_name.values(), "")
    stacked = set()
    for row, data in here.stacks_and_processes(found):
        if row["file"]:
            (folder / Path(row["file"]).name).write_bytes(data)
            stacked.add(by_name.get(row["file"]))
        for pid in (int(word) for word in row["command"] if word.isdigit()):
            reasons[pid] = reasons.get(pid) or row["why"]
    return {pid: why or "no stack" for pid, why in reasons.items() if pid not in stacked}


def _kernel_wait(folder: Path, r: Rank) -> str:
    """Return the kernel's view of a rank, which is more than a stack if it is stopped or waits in the kernel."""
    try:
        text = (folder / f"rank{r.number}.pid{r.pid}.process.txt").read_text("utf-8", "replace")
    except OSError:
        return ""
    parts = (part.partition(" <==\n") for part in text.split("==> "))
    files = {name.rpartition("/")[2]: content for name, _, content in parts}
    state = next((line.split() for line in files.get("status", "").splitlines() if line.startswith("State:")), [])
    if len(state) < 3:
        return ""
    if state[1] in ("T", "t"):
        by = "a debugger" if state[1] == "t" else "a signal"
        return f"rank {r.number} (pid {r.pid}) is stopped by {by}: state {state[1]}"
    function, call = files.get("wchan", "").strip(), files.get("syscall", "").split()
    where = f" in {function}" if function.isidentifier() else ""
    on = ""
    if len(call) > 1 and call[0].isdigit() and int(call[0]) in _ON_FILES:
        descriptor = int(call[1], 16)
        on = f" on descriptor {descriptor}"
        with suppress(OSError):
            on = f" on {Path(f'/proc/{r.pid}/fd/{descriptor}').readlink()}"[:204]
    return f"rank {r.number} (pid {r.pid}) is in state {' '.join(state[1:])}{where}{on}"


def _request_stack(r: Rank, folder: Path) -> str:
    """Signal a rank that registered faulthandler: it writes its stacks into its log, or into a file of its own, from
    which the new part is copied. Return a sentence; empty for any other rank."""
    if not processes.catches(r.pid, SIGNAL):
        return ""
    with suppress(OSError):
        file = stack_file(r.pid)
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


def preload() -> None:
    """Import the analysis while there is time: then a verdict takes a moment, on a busy host too."""
    load_pandas()
    for name in ("analyze", "align.steps", "diagnose", "privacy.timeline", "report.json", "system.output"):
        import_module(f"postmortem.{name}")


def judge(paths: Sequence[str], folder: Path) -> dict[str, Any] | None:
    """Return the document of `analyze`; None if it fails. It runs in a copy of this process, which has everything
    loaded, so that no log can exhaust our memory."""

    def write_verdict() -> None:
        from postmortem import analyze, report
        from postmortem.system import output

        output.write_file(folder / VERDICT, report.render(analyze(_inputs(paths, folder)), "json"))

    pid = forked(write_verdict)
    until = time.monotonic() + ANALYSIS_S
    status = None
    try:
        while status is None and time.monotonic() < until:
            ended, code = os.waitpid(pid, os.WNOHANG)
            status = code if ended else None
            time.sleep(0.02)
    finally:
        if status is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if status:
        return None
    try:
        found: dict[str, Any] = json.loads((folder / VERDICT).read_bytes())
    except (OSError, ValueError):
        return None
    return found


def start_report(paths: Sequence[str], folder: Path | None, out: Path) -> subprocess.Popen[bytes]:
    """Start to write the report into `out`, and print the summary on standard error. Raise OSError."""
    quiet = subprocess.DEVNULL if out == folder else None
    command = own_command("analyze", "--output", str(out / REPORT), "--", *_inputs(paths, folder))
    return subprocess.Popen(**command, stdout=quiet or 2, stderr=quiet)


def _inputs(paths: Sequence[str], folder: Path | None) -> list[str]:
    inside = folder is None or any(folder.is_relative_to(Path(path).resolve()) for path in paths)
    return [*paths, *([] if inside else [str(folder)])]


def forget(folder: Path) -> None:
    """Remove the raw evidence of a hang that has passed, which a later analysis would take for the end."""
    for path in (*folder.glob("rank*.txt"), folder / "ps.txt", folder / JOURNAL):
        with suppress(OSError):
            path.unlink()
