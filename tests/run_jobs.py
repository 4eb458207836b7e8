"""Commands under `postmortem run`, as processes: what the tests of that command share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import ROOT
from postmortem.replay import script
from postmortem.replay.catalogue import BY_ID

WRAPPER = [sys.executable, "-m", "postmortem", "run"]
SLEEPER = "import time; print('up', flush=True); time.sleep(60)"


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"} | more


def wrapped(folder: Path, *command: str, options: tuple[str, ...] = ("--no-analyze",)) -> list[str]:
    return [*WRAPPER, "--folder", str(folder / "runs"), "--keep", "always", *options, "--", *command]


def run(folder: Path, *command: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """A command under the wrapper, to its end."""
    words = wrapped(folder, *command, options=more.pop("options", ("--no-analyze",)))
    more.setdefault("env", environment())
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120, **more)


def start(folder: Path, *command: str, **more: Any) -> subprocess.Popen[str]:
    """The same, and it goes on while the test does something to it."""
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment()} | more
    return subprocess.Popen(wrapped(folder, *command), cwd=folder, **more)


def kept(folder: Path) -> Path:
    """The one run's folder."""
    (only,) = (folder / "runs").iterdir()
    return only


def journal(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (kept(folder) / "run.jsonl").read_text().splitlines()]


def messages(folder: Path) -> list[str]:
    return [record["message"] for record in journal(folder)]


def until(there: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What `there` returns, as soon as that is something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := there():
            return found
        time.sleep(0.02)
    raise AssertionError(f"nothing came within {seconds} s")


def command_of(wrapper: int) -> int:
    """The pid of the command below a wrapper: the child that is no copy of it."""

    def look() -> int | None:
        try:
            for child in Path(f"/proc/{wrapper}/task/{wrapper}/children").read_text().split():
                if b"postmortem" not in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
        except OSError:
            pass
        return None

    return int(until(look))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def job(folder: Path, scenario: str, ranks: int = 3, **arguments: Any) -> list[str]:
    """The command line of a scenario's job, made ready in a folder."""
    (folder / f"{scenario}.py").write_text(script.source(BY_ID[scenario.replace("_", "-")]))
    arguments = {"rank": 1, "backend": "gloo", "steps": 400, "step": 6} | arguments
    (folder / "config.json").write_text(json.dumps(arguments))
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [*words, f"{scenario}.py", "--config", "config.json"]


def begin(folder: Path, command: list[str], **more: Any) -> subprocess.Popen[bytes]:
    with (folder / "console").open("wb") as console:
        words = wrapped(folder, *command)
        return subprocess.Popen(words, cwd=folder, stdout=console, stderr=console, env=environment(), **more)


def ranks_of(folder: Path, wanted: int = 3, seconds: float = 30.0) -> dict[int, int]:
    """rank -> pid, once all are there."""

    def look() -> dict[int, int] | None:
        try:
            found = {r["message"].split()[1]: r["pid"] for r in journal(folder) if r["event"] == "start"}
        except (OSError, ValueError):
            return None
        return {int(rank): pid for rank, pid in found.items()} if len(found) == wanted else None

    return dict(until(look, seconds))


def launcher(folder: Path) -> int | None:
    found = torchrun(folder)
    return min(found) if found else None


def torchrun(folder: Path) -> list[int]:
    """Processes of this job's launcher."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            here = str((entry / "cwd").readlink()) == str(folder) if words else False
        except OSError:
            continue
        if here and b"torch.distributed.run" in words and b"postmortem" not in words and alive(int(entry.name)):
            found.append(int(entry.name))
    return found
