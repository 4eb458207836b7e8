"""Commands under `postmortem run`, as processes, for the tests of that command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import ROOT
from postmortem.replay import script
from postmortem.replay.catalogue import BY_ID

WRAPPER = [sys.executable, "-m", "postmortem", "run"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
SLEEPER = "import time; print('up', flush=True); time.sleep(60)"


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"} | more


def wrapped(folder: Path, *command: str, options: tuple[str, ...] = ("--no-analyze",)) -> list[str]:
    return [*WRAPPER, "--folder", str(folder / "runs"), "--keep", "always", *options, "--", *command]


def entry_points(folder: Path) -> Path:
    """Return a folder for PYTHONPATH with the entry points that an installed wheel provides."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    metadata = folder / "site" / "entry_points_of_postmortem-1.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    metadata.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: entry-points-of-postmortem\nVersion: 1\n")
    rows = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in found.items())
        for group, found in project["entry-points"].items()
    ]
    metadata.joinpath("entry_points.txt").write_text("".join(rows))
    return metadata.parent


def run(folder: Path, *command: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command under the wrapper to its end."""
    words = more.pop("words", None) or wrapped(folder, *command, options=more.pop("options", ("--no-analyze",)))
    more = {"env": environment(), "text": True, "timeout": 120} | more
    return subprocess.run(words, cwd=folder, capture_output=True, **more)


def start(folder: Path, *command: str, **more: Any) -> subprocess.Popen[str]:
    """Start a command that prints a line under the wrapper; return after that line."""
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment()} | more
    running = subprocess.Popen(wrapped(folder, *command), cwd=folder, **more)
    running.first = running.stdout.readline()
    return running


def run_folder(folder: Path) -> Path:
    (only,) = (folder / "runs").iterdir()
    return only


def journal(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_folder(folder) / "run.jsonl").read_text().splitlines()]


def messages(folder: Path) -> list[str]:
    return [record["message"] for record in journal(folder)]


def wait_for(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Return the first true value of `condition`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"no result within {seconds} s")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def job(folder: Path, scenario: str, ranks: int = 3, **arguments: Any) -> list[str]:
    """Prepare a scenario's job in a folder; return its command line."""
    (folder / f"{scenario}.py").write_text(script.source(BY_ID[scenario.replace("_", "-")]))
    arguments = {"rank": 1, "backend": "gloo", "steps": 400, "step": 6} | arguments
    (folder / "config.json").write_text(json.dumps(arguments))
    return [*TORCHRUN, f"--nproc-per-node={ranks}", f"{scenario}.py", "--config", "config.json"]


def begin(folder: Path, command: list[str], **more: Any) -> subprocess.Popen[bytes]:
    with (folder / "console").open("wb") as console:
        words = wrapped(folder, *command)
        return subprocess.Popen(words, cwd=folder, stdout=console, stderr=console, env=environment(), **more)


def ranks_of(folder: Path, wanted: int = 3, seconds: float = 30.0) -> dict[int, int]:
    """Return rank -> pid, once all are there."""

    def look() -> dict[int, int] | None:
        try:
            found = {r["message"].split()[1]: r["pid"] for r in journal(folder) if r["event"] == "start"}
        except (OSError, ValueError):
            return None
        return {int(rank): pid for rank, pid in found.items()} if len(found) == wanted else None

    return dict(wait_for(look, seconds))


def torchrun(folder: Path) -> list[int]:
    """Return the processes of this job's launcher, the first one first."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            here = str((entry / "cwd").readlink()) == str(folder) if words else False
        except OSError:
            continue
        if here and b"torch.distributed.run" in words and b"postmortem" not in words and alive(int(entry.name)):
            found.append(int(entry.name))
    return sorted(found)
