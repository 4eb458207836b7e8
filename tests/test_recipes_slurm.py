"""The recipes for Slurm, run by a real Slurm on this machine, with the files that users copy."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gathered import tool
from system.slurm import HOST, Slurm

from conftest import ROOT, needs
from postmortem.analyze import analyze
from postmortem.replay.catalogue import BY_ID
from postmortem.replay.script import source
from postmortem.report import view

RECIPES = ROOT / "recipes" / "slurm"
TRAIN, AFTER, EPILOG = RECIPES / "train.sbatch", RECIPES / "analyze-after.sbatch", RECIPES / "epilog.sh"
SPY = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
NOBODY = pwd.getpwnam("nobody")
pytestmark = [pytest.mark.slow, needs("slurm", "root")]

RANK = """\
import os, signal, subprocess, sys, time
rank = int(os.environ["RANK"])
if "loads" in sys.argv:
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(9)"])
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for step in range(int(sys.argv[1])):
    print(f"step {step} loss {1 / (step + 1):.4f}", flush=True)
    time.sleep(0.1)
if rank == 1 and "fails" in sys.argv:
    raise ValueError("sample 67: label 4711 outside of [0, 10)")
"""


class Cluster(Slurm):
    """Slurm, with this checkout's postmortem and this Python's torchrun on the PATH of its jobs."""

    def __init__(self) -> None:
        super().__init__()
        tools = self.folder / "tools"
        tools.mkdir()
        self.calls = self.folder / "calls"
        self.calls.touch()
        for name, module in (("postmortem", "postmortem"), ("torchrun", "torch.distributed.run")):
            noted = f'#!/bin/sh\necho "$SLURM_JOB_ID {name} $1" >>{self.calls}\n'
            tool(tools, name, f'{noted}PYTHONPATH={ROOT} exec {sys.executable} -m {module} "$@"\n')
        (tools / "python").symlink_to(sys.executable)
        if SPY:
            (tools / "py-spy").symlink_to(SPY)
        self.env["PATH"] = f"{tools}:{self.env['PATH']}"
        self.rank = self.folder / "rank.py"
        self.rank.write_text(RANK)
        self.work = self.folder / "work"
        self.work.mkdir()
        os.chown(self.work, NOBODY.pw_uid, NOBODY.pw_gid)

    def train(self, *words: str | Path, tasks: int = 2, options: tuple[str, ...] = ()) -> str:
        """Submit train.sbatch as it is: two ranks by srun, or with one task by torchrun."""
        options = (f"--chdir={self.work}", f"--ntasks-per-node={tasks}", *options)
        return self.submit(*options, TRAIN, *words)

    def after(self, job: str, end: str = "afternotok") -> str:
        """Submit the analysis of a job for its end, with the options that its header names."""
        found = re.search(r"sbatch (--dependency=.*) analyze-after", AFTER.read_text())
        assert found
        options = found[1].replace("$job", job).split()
        return self.submit(f"--chdir={self.work}", *options, AFTER, job)

    def output(self, job: str, name: str = "train") -> str:
        return (self.work / f"{name}-{job}.out").read_text()

    def started(self, job: str, line: str = "step 3") -> None:
        """Wait until the ranks of a job make steps."""
        logs = self.work / f"train-{job}" / f"node={HOST}"
        self.until(lambda: any(line in log.read_text() for log in logs.glob("*.log")), 30, f"{line} of job {job}")

    def batch_script(self, job: str) -> int:
        """Return the process that runs the batch script of a job."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if f"job{int(job):05}/slurm_script" in (process / "cmdline").read_text():
                    return int(process.name)
            except OSError:
                continue
        raise AssertionError(f"no batch script of job {job}")

    def verdict(self, job: str, name: str = "train") -> dict[str, Any]:
        """Return the verdict on all files of a recipe; each of them but the reports must have been read."""
        folder = self.work / f"{name}-{job}"
        assert (folder / "postmortem.md").exists(), f"{self.output(job, name)}\n{self.calls.read_text()}"
        document = analyze([str(folder), str(self.work / f"{name}-{job}.out")]).document
        found = json.loads(json.dumps(document["verdict"]))
        assert view.lead({"verdict": found})[0] in " ".join(
            re.sub(r"[*\\]", "", (folder / "postmortem.md").read_text()).split()
        )
        assert (folder / "postmortem.html").stat().st_size > 10_000
        skipped = {Path(entry["path"]).name for entry in document["ledger"]["skipped"]}
        assert skipped == {"postmortem.md", "postmortem.html"}
        return found


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    cluster = Cluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def over_time(slurm: Cluster) -> str:
    """A job whose time is up. Slurm looks for such jobs every 30 s, so it is submitted before all others."""
    job = slurm.train(slurm.rank, "3000", "deaf", options=("--time=1",))
    slurm.started(job)
    slurm.run("scontrol", "update", f"JobId={job}", "EndTime=now")
    return job


@pytest.mark.usefixtures("over_time")
def test_successful_job_leaves_nothing(slurm: Cluster) -> None:
    job = slurm.train(slurm.rank, "5")
    assert slurm.ended(job)["ExitCode"] == "0:0"
    assert not slurm.output(job)
    assert not list((slurm.work / f"train-{job}").rglob("run.jsonl")), "a successful run leaves no journal"
    assert f"{job} postmortem analyze" not in slurm.calls.read_text()


@pytest.mark.release
@needs("torch")
def test_output_of_the_job_names_a_rank_that_raised_under_torchrun(slurm: Cluster) -> None:
    train = slurm.work / "python_exception.py"
    train.write_text(source(BY_ID["python-exception-one-rank"]))
    job = slurm.train(train, "--rank", "1", tasks=1)
    ended = slurm.ended(job, within=240)  # torch is imported three times
    assert (ended["JobState"], ended["ExitCode"]) == ("FAILED", "1:0")
    assert "INCIDENT  Python exception · established" in slurm.output(job)
    comment = slurm.run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%k")
    found = slurm.verdict(job)
    assert (found["outcome"], found["pattern"]) == ("incident", "python-exception")
    assert (found["culprit"]["ranks"], found["culprit"]["hosts"]) == ([1], [HOST])
    assert comment.partition(" at ")[0] == found["headline"].partition(" at ")[0]  # the comment has the date too


def test_job_has_the_exit_code_of_a_failed_rank(slurm: Cluster) -> None:
    job = slurm.train(slurm.rank, "3", "fails")
    assert slurm.ended(job)["ExitCode"] == "1:0"
    assert "srun: error" in slurm.output(job), "the messages of srun about the end are read too"
    found = slurm.verdict(job)
    assert (found["pattern"], found["culprit"]["ranks"]) == ("python-exception", [1])


def test_scancel_of_deaf_ranks_is_reported(slurm: Cluster) -> None:
    job = slurm.train(slurm.rank, "3000", "deaf")
    slurm.started(job)
    slurm.run("scancel", job)
    assert slurm.ended(job)["JobState"] == "CANCELLED"
    found = slurm.verdict(job)
    assert (found["outcome"], found["pattern"]) == ("incident", "slurm-cancelled")


def test_time_limit_is_reported_without_a_culprit(slurm: Cluster, over_time: str) -> None:
    assert slurm.ended(over_time)["JobState"] == "TIMEOUT"
    found = slurm.verdict(over_time)
    assert (found["outcome"], found["pattern"]) == ("incident", "slurm-time-limit")
    assert not found["culprit"]["ranks"]


def test_stacks_are_taken_before_the_time_limit(slurm: Cluster) -> None:
    """Of the ranks, and not of the workers that inherit their environment."""
    job = slurm.train(slurm.rank, "150", "loads")
    slurm.started(job)
    slurm.run("scancel", "--batch", "--signal=USR1", job)  # what --signal=B:USR1@180 does
    assert slurm.ended(job)["ExitCode"] == "0:0"
    (taken,) = (slurm.work / f"train-{job}" / f"node={HOST}").glob("*.tar.gz")
    with tarfile.open(taken) as archive:
        stacks = {m.name: archive.extractfile(m) for m in archive if "rank" in m.name and "stack" in m.name}
        assert {name[-1] for name in re.findall(r"rank[01]", " ".join(stacks))} == {"0", "1"}
        assert not SPY or any(b"rank.py:9" in file.read() for file in stacks.values() if file)


def test_killed_batch_script_is_analyzed_by_a_later_job(slurm: Cluster) -> None:
    """SIGKILL leaves its trap no time, as a node's death does."""
    job = slurm.train(slurm.rank, "3000")
    after = slurm.after(job)
    slurm.started(job)
    script = slurm.batch_script(job)
    os.kill(script, signal.SIGKILL)
    assert slurm.ended(job)["JobState"] == "FAILED"
    assert not (slurm.work / f"train-{job}" / "postmortem.md").exists()
    assert slurm.ended(after)["ExitCode"] == "0:0"
    assert "was killed by SIGKILL from an unknown sender" in slurm.output(after, "postmortem")


MAKES_A_FOLDER = """\
#!/bin/bash
umask 022
logs=$PWD/train-$SLURM_JOB_ID
{logs}
printf left >/dev/shm/postmortem-left-$SLURM_JOB_ID
printf dump >/tmp/nccl_trace_rank_$SLURM_JOB_ID
exit {code}
"""


@pytest.fixture
def job_of_user(slurm: Cluster) -> Iterator[Callable[..., tuple[str, float]]]:
    """Run a job of a user without rights under the real epilog; return the job and the time of the epilog."""
    jobs = []

    def run(logs: str = "mkdir $logs", code: int = 7, tools: str = "") -> tuple[str, float]:
        end = slurm.folder / "epilog.end"
        end.unlink(missing_ok=True)
        slurm.epilog(
            f"begin=$(date +%s%N); {tools} {EPILOG}; code=$?\n"
            f"echo $code $(($(date +%s%N) - begin)) >{end}.new; mv {end}.new {end}; exit $code"
        )
        script = slurm.folder / "of_nobody.sbatch"
        script.write_text(MAKES_A_FOLDER.format(logs=logs, code=code))
        user = (f"--uid={NOBODY.pw_uid}", f"--gid={NOBODY.pw_gid}")
        job = slurm.submit(*user, f"--chdir={slurm.work}", "--output=%j.out", script)
        jobs.append(job)
        slurm.ended(job)
        slurm.until(end.exists, 20, "the epilog is over")
        slurm.until(lambda: slurm.node() != "completing", 20, "the node is free")
        left, took = end.read_text().split()
        assert left == "0"
        return job, int(took) / 1e9

    yield run
    slurm.epilog("exit 0")
    for job in jobs:
        Path(f"/dev/shm/postmortem-left-{job}").unlink(missing_ok=True)
        Path(f"/tmp/nccl_trace_rank_{job}").unlink(missing_ok=True)


Run = Callable[..., tuple[str, float]]


def test_epilog_saves_short_lived_evidence_as_files_of_the_user(slurm: Cluster, job_of_user: Run) -> None:
    kernel = slurm.folder / "kernel"
    tool(kernel, "dmesg", '#!/bin/sh\nid -u; echo "$@"\n')
    job, took = job_of_user(tools=f"EPILOG_PATH={kernel}:/usr/sbin:/usr/bin:/sbin:/bin")
    assert took < 2 and slurm.node() != "drained"
    saved = slurm.work / f"train-{job}" / f"node={HOST}"
    assert {path.name for path in saved.iterdir()} >= {"kernel.txt", "shm.txt", f"nccl_trace_rank_{job}"}
    for path in (saved, *saved.iterdir()):
        assert (path.stat().st_uid, path.stat().st_gid) == (NOBODY.pw_uid, NOBODY.pw_gid)
        assert not path.stat().st_mode & 0o077, "kernel logs are private"
    uid, words = (saved / "kernel.txt").read_text().splitlines()
    assert uid == "0", "only root may read the kernel log on many sites"
    assert re.fullmatch(r"--time-format iso --since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", words)
    assert f"postmortem-left-{job}" in (saved / "shm.txt").read_text()
    assert (saved / f"nccl_trace_rank_{job}").read_text() == "dump"


def test_epilog_ignores_a_successful_job(slurm: Cluster, job_of_user: Run) -> None:
    job, _ = job_of_user(code=0)
    assert not list((slurm.work / f"train-{job}").iterdir())


@pytest.mark.parametrize(
    "trap",
    [
        "ln -s {there} $logs",
        "mkdir $logs; ln -s {there} $logs/node={host}",
        "mkdir -p $logs/node={host}; ln -s {there}/kernel.txt $logs/node={host}/kernel.txt",
    ],
)
def test_epilog_does_not_follow_links_of_the_user(slurm: Cluster, job_of_user: Run, trap: str) -> None:
    there = slurm.folder / "of_root"
    there.mkdir(exist_ok=True)
    (there / "kernel.txt").write_text("root's")
    job_of_user(trap.format(there=there, host=HOST))
    assert [path.name for path in there.iterdir()] == ["kernel.txt"]
    assert (there / "kernel.txt").read_text() == "root's"


@pytest.mark.parametrize("tools", ["missing", "hanging"])
def test_missing_and_hanging_tools_do_not_drain_the_node(slurm: Cluster, job_of_user: Run, tools: str) -> None:
    folder = slurm.folder / tools
    folder.mkdir()
    for name in ("setsid", "timeout", "setpriv", "dmesg", "journalctl", "find", "sleep", "bash", "date"):
        if tools == "hanging" and name in ("dmesg", "setpriv"):
            tool(folder, name, "#!/bin/sh\nexec /bin/sleep 8\n")
        elif tools == "hanging":
            (folder / name).symlink_to(shutil.which(name) or "/nowhere")
    _, took = job_of_user(tools=f"EPILOG_PATH={folder}")
    assert took < Cluster.epilog_timeout - 1
    assert slurm.node() in ("idle", "mixed", "allocated")
