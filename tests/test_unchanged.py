"""What we add never changes a job: the same job alone, under `run`, with the hook and with torchrun's plugin ends and prints
the same way, gets the same signals, leaves the same files and no process; on disks without room, and where each of our own
writes fails.

A job may differ from itself: where one of ours differs from the job alone, it is run alone again, and only what differs
between these runs is left out. The lines of several ranks have no order, and what they print in pieces is mixed by words.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from run_jobs import TORCHRUN, entry_points, environment, wrapped
from test_fault_injection import C, Faults

from conftest import ROOT, needs, table

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="`postmortem run` is for Linux")
HOOKS = ROOT / "postmortem" / "live" / "hooks"
RANK = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
DISKS = ("large", "full", "without inodes", "read-only", "small")
ALONE = 8  # runs alone at most, where one of ours is like none of them
PLUGIN = ("--logs-specs", "postmortem")
# each launcher, and what must be there; the job is `job.py` behind its own options
LAUNCHERS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "torchrun": ([*TORCHRUN, "--nproc-per-node=2"], ("torch",)),
    "accelerate": ([sys.executable, "-m", "accelerate.commands.launch", "--cpu"], ("torch", "accelerate")),
    # its own files are elsewhere: without room for them it crashes, each time in another way
    "mpirun": (["env", "TMPDIR=/tmp", "mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"], ("mpirun",)),
}
RANKS = "import os, sys, time\nR, N = os.environ['RANK'], os.environ['TORCHELASTIC_RESTART_COUNT']\n"
# Documented: torchrun labels the lines of ranks that have a log, and shows the traceback of one that has an error file.
OURS = (
    r"\[default\d+\]:",
    r"postmortem: [^\n]*\n",  # one may come within a line that the job writes in pieces
    r"(?m)^  File \"[^\"\n]*postmortem/torchrun\.py\".*\n(?:    .*\n)*",  # the plugin is called by torchrun
    r"(?m)^E\d{4} .*no error file defined for parent.*\n",
    r"(?ms)^  error_file: .*?^  traceback : .*?(?=^[=\[-])",
    r"(?ms)^(?:\x1b\[[\d;?]*[A-Za-z]|\s)*(?:reading|INCIDENT|RECOVERED|UNDETERMINED|HEALTHY)\b.*",
)
# What may differ between two runs alone: numbers of processes, times, addresses, names by chance, the order of lines.
BY_CHANCE = (
    r"\b0x\w+",
    r"\d\d:\d\d:\d\d(?:[.,]\d+)?",
    r"(?<=pid: )\d+|(?<=pid )\d+|(?<=PID )\d+|(?<=[Pp]rocess )\d+|(?<=000 )\d+(?= \S+\.py:\d+\])",
    r"(?<=torchelastic_)\w+|\b[0-9a-f]{8}-[0-9a-f-]{27}\w*|\[\[\d+,\d+\],\d+\]|\[\w+:\d+\]",
)


class Job(NamedTuple):
    """A command line, and how it is run: see `on_disk.py`."""

    kind: str
    words: list[str]
    code: str  # of `job.py`
    how: dict[str, Any]


def jobs() -> Iterator[tuple[str, Job]]:
    interpreters = {"shell": ["sh", "-c"], "python": [sys.executable, "-c"]}
    for kind, rows in table("unchanged").items():
        for name, row in rows.items():
            row = {"code": row} if isinstance(row, str) else dict(row)
            code, options = row.pop("code"), shlex.split(row.pop("options", "").replace("$python", sys.executable))
            before = ["sh", "-c", f'{row.pop("before")} exec "$@"', "-"] if "before" in row else []
            if kind in interpreters:
                yield name, Job(kind, [*interpreters[kind], code], "", row)
            else:
                head = "" if kind != "torchrun" or code.startswith("#!") else RANKS
                words = [*before, *LAUNCHERS[kind][0], *options, "job.py"]
                yield f"{kind}, {name}", Job(kind, words, head + code, row)


JOBS = dict(jobs())
IN_CI = ("handlers", "ctrl-c of a terminal", "torchrun, thread, started again", "mpirun, killed rank")


def outcome(folder: Path, job: Job, words: list[str], env: dict[str, str], disk: str) -> dict[str, Any]:
    """Return what others see of a job on a disk, which is `folder` for each of them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    mounts = [] if disk == "large" else ["unshare", "--mount"]
    script = str(ROOT / "tests" / "system" / "on_disk.py")
    words = [*mounts, sys.executable, "-I", script, disk, str(folder), json.dumps(job.how), *words]
    done = subprocess.run(words, env=env, capture_output=True, timeout=150)
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout)
    for name in ("out", "err"):
        for ours in OURS:
            found[name] = re.sub(ours, "", found[name])
    return dict(found)


def ways(folder: Path, job: Job) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Return the command line and the environment of each way to run a job, alone first."""
    disk = folder / "disk"
    words = [str(folder / word) if word == "job.py" else word for word in job.words]
    (folder / "job.py").write_text(job.code)
    (folder / "job.py").chmod(0o700)
    rank = RANK if job.kind in ("shell", "python") else {}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env = environment(PYTHONFAULTHANDLER="", POSTMORTEM_RUNS=str(disk / "runs"), **rank)  # `run` documents it
    env["PYTHONPATH"] = path
    hook = {"PYTHONPATH": f"{HOOKS}{os.pathsep}{path}", "POSTMORTEM_HOOK": str(disk / "hook")}
    found = {"alone": (words, env), "run": (wrapped(disk, *words), env), "hook": (words, env | hook)}
    if job.kind == "torchrun":
        path = f"{entry_points(folder)}{os.pathsep}{path}"
        at = words.index(TORCHRUN[-1])
        found["plugin"] = ([*words[:at], *PLUGIN, *words[at:]], env | {"PYTHONPATH": path})
    return found


def without(found: dict[str, Any], chances: list[str], sort: bool) -> dict[str, Any]:
    chance = re.compile("|".join(chances) or r"(?!)")
    texts = {name: chance.sub("#", found[name]) for name in ("out", "err")}
    files = sorted(chance.sub("#", name) for name in found["files"])
    parts = {name: sorted(text.split()) if sort else text.splitlines(keepends=True) for name, text in texts.items()}
    return found | parts | {"files": files}


def differences(folder: Path, job: Job, disk: str = "large") -> dict[str, Any]:
    """Return for each way that differs from the job alone its outcome and the last one alone."""
    found = {way: outcome(folder / "disk", job, *how, disk) for way, how in ways(folder, job).items()}
    alone = [found.pop("alone")]
    ordered = job.kind not in LAUNCHERS

    def vary(chances: list[str], sort: bool) -> bool:
        return any(without(one, chances, sort) != without(alone[0], chances, sort) for one in alone)

    def differ() -> dict[str, Any]:
        chances: list[str] = []
        for chance in BY_CHANCE:
            chances += [chance] if vary(chances, not ordered) else []
        sort = not ordered or vary(chances, False)
        known = [without(one, chances, sort) for one in alone]
        ours = {way: without(one, chances, sort) for way, one in found.items()}
        return {way: (known[-1], one) for way, one in ours.items() if one not in known}

    while (left := differ()) and len(alone) < ALONE:
        alone.append(outcome(folder / "disk", job, *ways(folder, job)["alone"], disk))
    return left


def cases() -> Iterator[Any]:
    """One job in the quick suite, those of a second or two in the whole one; launchers and signals before a release."""
    for disk, (name, job) in product(DISKS, JOBS.items()):
        marks = [
            needs(
                *(LAUNCHERS[job.kind][1] if job.kind in LAUNCHERS else ()),
                *(("root", "unshare") if disk != "large" else ()),
            )
        ]
        if disk != "large" or (name not in IN_CI and (job.kind in LAUNCHERS or "signals" in job.how)):
            marks.append(pytest.mark.release)
        elif name != next(iter(JOBS)):
            marks.append(pytest.mark.slow)
        yield pytest.param(name, disk, id=f"{name}, {disk} disk", marks=marks)


@pytest.mark.parametrize(("name", "disk"), list(cases()))
def test_a_job_is_the_same_alone_and_with_what_we_add(tmp_path: Path, name: str, disk: str) -> None:
    assert differences(tmp_path, JOBS[name], disk) == {}


@pytest.mark.release
@pytest.mark.parametrize("minor", range(8, 15))
def test_a_job_of_any_python_is_the_same(tmp_path: Path, minor: int) -> None:
    kept = Path("~/.pyenv/versions").expanduser().glob(f"3.{minor}.*/bin/python")
    python = next(map(str, kept), None) or shutil.which(f"python3.{minor}")
    if not python or subprocess.run([python, "-c", ""]).returncode:
        pytest.skip(f"no Python 3.{minor}")
    # Python 3.13 prints tracebacks by a module, which the hook has loaded and another user may not be allowed to read
    another = [python, "-c", "import os; os.setuid(65534); import traceback"]
    shared = not subprocess.run(another, capture_output=True).returncode
    for job in JOBS.values():
        if job.kind == "python" and (shared or "os.setuid" not in job.words[-1]):
            assert differences(tmp_path, job._replace(words=[python, *job.words[1:]])) == {}, job


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
    job = JOBS["chain"]
    expected = outcome(tmp_path / "alone", job, job.words, environment(**RANK), "large")
    state.write_bytes(bytes(Faults.STATE.size))
    with state.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), Faults.STATE.size)
    env = environment(**RANK, LD_PRELOAD=str(library), FAULT_STATE=str(state))
    for at in (1, 2, 3, 5, 8):
        folder = tmp_path / str(at)
        shared[:] = Faults.STATE.pack(0, at, error, True, 0, call.encode(), str(folder / "runs").encode())
        assert outcome(folder, job, wrapped(folder, *job.words), env, "large") == expected, at
        if not Faults.STATE.unpack(shared[:])[4]:
            break
