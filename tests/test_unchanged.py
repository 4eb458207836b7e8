"""What we add never changes a job: the same job alone, under `run` and with the hook ends and prints the same way, leaves
the same files and no process; also where each of our own writes fails."""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_jobs import TORCHRUN, environment, wrapped
from test_fault_injection import C, Faults
from test_run_ranks import with_plugin

from conftest import ROOT, needs, table

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="`postmortem run` is for Linux")
HOOKS = ROOT / "postmortem" / "live" / "hooks"
RANK = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "PYTHONFAULTHANDLER": ""}  # which `run` documents

SHELL, PYTHON = (table("unchanged")[kind] for kind in ("shell", "python"))
JOBS = {name: ["sh", "-c", code] for name, code in SHELL.items()}
JOBS |= {name: [sys.executable, "-c", code] for name, code in PYTHON.items()}


def outcome(folder: Path, words: list[str], env: dict[str, str], disk: str = "large") -> dict[str, Any]:
    """Return what others see of a job."""
    folder.mkdir(parents=True)
    mounts = [] if disk == "large" else ["unshare", "--mount"]
    words = [*mounts, sys.executable, "-I", str(ROOT / "tests" / "system" / "on_disk.py"), disk, str(folder), *words]
    found = json.loads(subprocess.run(words, env=env, stdout=subprocess.PIPE, timeout=120).stdout)
    # a line of ours may come within one that the job writes in pieces; functions have addresses
    found["err"] = re.sub(r"postmortem: [^\n]*\n| at 0x\w+", "", found["err"])
    return dict(found)


def ways(folder: Path, words: list[str], disk: str = "large") -> list[dict[str, Any]]:
    """Return the outcomes alone, under `run` and with the hook."""
    env = environment(**RANK)
    hook = {"PYTHONPATH": f"{HOOKS}{os.pathsep}{ROOT}", "POSTMORTEM_HOOK": str(folder / "hook" / "hook")}
    return [
        outcome(folder / "alone", words, env, disk),
        outcome(folder / "run", wrapped(folder / "run", *words), env, disk),
        outcome(folder / "hook", words, env | hook, disk),
    ]


@pytest.mark.parametrize("name", [*list(JOBS)[:1], *(pytest.param(n, marks=pytest.mark.slow) for n in list(JOBS)[1:])])
def test_a_job_is_the_same_alone_under_run_and_with_the_hook(tmp_path: Path, name: str) -> None:
    alone, *ours = ways(tmp_path, JOBS[name])
    assert ours == [alone, alone]


@needs("root", "unshare")
@pytest.mark.release
@pytest.mark.parametrize("disk", ["full", "small", "without inodes", "read-only"])
@pytest.mark.parametrize("name", JOBS)
def test_a_job_is_the_same_on_a_disk_with_little_room(tmp_path: Path, name: str, disk: str) -> None:
    alone, *ours = ways(tmp_path, JOBS[name], disk)
    assert ours == [alone, alone]


@pytest.mark.release
@pytest.mark.parametrize("minor", range(8, 15))
def test_a_job_of_any_python_is_the_same(tmp_path: Path, minor: int) -> None:
    kept = Path("~/.pyenv/versions").expanduser().glob(f"3.{minor}.*/bin/python")
    python = next(map(str, kept), None) or shutil.which(f"python3.{minor}")
    if not python or subprocess.run([python, "-c", ""]).returncode:
        pytest.skip(f"no Python 3.{minor}")
    for number, code in enumerate(PYTHON.values()):
        alone, *ours = ways(tmp_path / str(number), [python, "-c", code])
        assert ours == [alone, alone], code


OF_TORCHRUN = ("exception", "exit in a thread", "fork", "last words")


@needs("torch")
@pytest.mark.slow
@pytest.mark.parametrize("name", OF_TORCHRUN)
def test_a_job_of_torchrun_is_the_same_with_the_plugin(tmp_path: Path, name: str) -> None:
    """The plugin writes a log for each rank, so torchrun puts its label before each line."""
    words = [*TORCHRUN, "job.py"]
    found = []
    for folder in (tmp_path / "alone", tmp_path / "plugin"):
        folder.mkdir()
        (folder / "job.py").write_text(PYTHON[name])
        if folder.name == "plugin":
            done = with_plugin(folder, words, PYTHONFAULTHANDLER="")
            err = "\n".join(re.findall(r"(?m)^\[default0\]:(.*)", done.stderr))
        else:
            env = environment(PYTHONFAULTHANDLER="")
            done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
            err = re.split(r"(?m)^[EWI]\d{4} ", done.stderr)[0].rstrip("\n")
        files = sorted(path.name for path in folder.iterdir() if path.name not in ("postmortem-runs", "site"))
        out = done.stdout.replace("[default0]:", "")
        found.append((done.returncode, out, err.replace(str(folder), ""), files))
    assert found[0] == found[1]


@needs("cc")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "error"),
    [(call, getattr(errno, name)) for call in ("write", "open") for name in ("ENOSPC", "EIO", "EROFS", "EMFILE")]
    + [(call, errno.EIO) for call in ("close", "rename", "fstat", "stat", "unlink", "mkdir")],
)
def test_each_call_on_our_own_files_may_fail(tmp_path: Path, call: str, error: int) -> None:
    """The folder of the run and of the hook, from the k-th call on."""
    library, state = tmp_path / "failing.so", tmp_path / "state"
    build = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(C), "-ldl", "-w"]
    subprocess.run(build, check=True, timeout=120)
    expected = outcome(tmp_path / "alone", JOBS["chain"], environment(**RANK))
    state.write_bytes(bytes(Faults.STATE.size))
    with state.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), Faults.STATE.size)
    env = environment(**RANK, LD_PRELOAD=str(library), FAULT_STATE=str(state))
    for at in (1, 2, 3, 5, 8):
        folder = tmp_path / str(at)
        shared[:] = Faults.STATE.pack(0, at, error, True, 0, call.encode(), str(folder / "runs").encode())
        assert outcome(folder, wrapped(folder, *JOBS["chain"]), env) == expected, at
        if not Faults.STATE.unpack(shared[:])[4]:
            break
