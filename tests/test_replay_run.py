"""Scenarios run for real: each shows the failure that it promises, and no process, cgroup, mount or file remains."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, needs, python
from postmortem.analyze import analyze
from postmortem.replay.catalogue import SCENARIOS, Arguments, Scenario
from postmortem.replay.isolate import PREFIX, clean_up
from postmortem.replay.verify import Order, Result, prepare, promised, verify
from scripts.record_sample import record

pytestmark = [pytest.mark.slow, needs("torch")]
CGROUP = needs("root", "cgroup", "dmesg")
NAMESPACES = needs("root", "netns", "ip")
RELEASE = pytest.mark.release


def traces(pid: int) -> list[str]:
    """Return all remains of a run of the process `pid`: processes, cgroups, namespaces, mounts, folders."""
    mark = f"{PREFIX}{pid}-"
    bases = ("/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/run/netns", "/tmp")
    found = [str(path) for base in bases for path in Path(base).glob(f"{mark}*")]
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if mark in line]
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"REPLAY_TAG={mark}".encode() in (entry / "environ").read_bytes():
                found.append(f"process {entry.name}: {(entry / 'cmdline').read_bytes()!r}")
        except OSError:
            continue
    return found


def replay(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return python("-m", "postmortem", "replay", *words, cwd=cwd)


def check_sample(out: Path) -> dict[str, Any]:
    """Return the truth of a sample, whose evidence must be in the logs."""
    truth: dict[str, Any] = json.loads((out / "truth.json").read_text())
    assert truth["evidence"]
    for item in truth["evidence"]:
        line = (out / "logs" / item["file"]).read_bytes().split(b"\n")[item["line"] - 1].decode()
        assert line.startswith(item["text"])
    return truth


def test_report_leads_to_its_replay_and_shows_the_result(tmp_path: Path) -> None:
    logs = str(ROOT / "sample_logs/bad-label-one-rank/logs")
    python("-m", "postmortem", "analyze", logs, "-o", "report.html", cwd=tmp_path, check=True)
    options = ["--set", "step=2", "--nproc", "3", "--attach", "report.html", "--keep", "logs", "--json"]
    done = replay("report.html", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["outcome"] == "reproduced"
    assert (result["found"]["ranks"], result["found"]["pattern"]) == ([2], "python-exception")
    assert "stopped after" in done.stderr and "gloo" in done.stderr
    assert "Reproduced: the verdict on the replay" in (tmp_path / "report.html").read_text()
    kept = [path.read_text() for path in (tmp_path / "logs").rglob("stderr.log")]
    assert result["logs"] == "logs" and len(kept) == 3 and "Traceback" in "".join(kept)


@RELEASE
def test_exit_codes_of_other_outcomes(tmp_path: Path) -> None:
    done = replay("slow-rank", "--nproc", "2", "--set", "stall=0", "--set", "steps=10", "--keep", "logs", cwd=tmp_path)
    assert done.returncode == 6 and "Did not fail" in done.stderr and list((tmp_path / "logs").rglob("stderr.log"))
    culprit = {"outcome": "incident", "culprit": {"ranks": [1]}}
    verdict = {"pattern": "index-out-of-range", "category": "python-exception", **culprit}
    hint = {"scenario": "python-exception-one-rank", "arguments": {"world_size": 2, "rank": 1}}
    document = {"schema": "postmortem/incident/1", "verdict": verdict, "replay": hint}
    (tmp_path / "incident.json").write_text(json.dumps(document))
    done = replay("incident.json", "--set", "error=value", "--set", "step=2", cwd=tmp_path)
    assert done.returncode == 5 and "index-out-of-range was expected, python-exception was found" in done.stderr


def begin(temporary: Path, *words: str) -> subprocess.Popen[str]:
    """Start a replay in a temporary folder of its own, and wait until its job runs."""
    temporary.mkdir(exist_ok=True)
    line = [sys.executable, "-m", "postmortem", "replay", *words]
    env = {**os.environ, "TMPDIR": str(temporary)}
    run = subprocess.Popen(line, cwd=temporary.parent, stderr=subprocess.PIPE, text=True, env=env)
    while run.poll() is None and not any(line.startswith("process") for line in traces(run.pid)):
        time.sleep(0.1)
    return run


def interrupt(run: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal twice, as an impatient user does: the second arrives during the removal."""
    run.send_signal(number)
    time.sleep(0.1)
    run.send_signal(number)
    _, stderr = run.communicate(timeout=60)
    assert run.returncode == 130 and "interrupted" in stderr and "Traceback" not in stderr
    assert traces(run.pid) == []


PLAIN = ["slow-rank", "--nproc", "2"]
IN_CGROUP = ["host-oom-rank", "--set", "steps=2000", "--set", "step=400"]
TWO_HOSTS = ["firewall-drop", "--set", "timeout=30"]
SMALL_DISK = ["disk-full-checkpoint", "--set", "step=400", "--set", "steps=2000"]


@pytest.mark.parametrize(("words", "number"), [
    pytest.param([*PLAIN, "--keep", "logs"], signal.SIGINT, id="keeping"),
    pytest.param(IN_CGROUP, signal.SIGTERM, id="cgroup", marks=CGROUP),
    pytest.param(PLAIN, signal.SIGHUP, id="terminal-closed"),
    pytest.param(TWO_HOSTS, signal.SIGINT, id="namespaces", marks=NAMESPACES),
    pytest.param(SMALL_DISK, signal.SIGINT, id="mount", marks=needs("root")),
])  # fmt: skip
def test_interrupted_replay_removes_everything(tmp_path: Path, words: list[str], number: signal.Signals) -> None:
    interrupt(begin(tmp_path / "tmp", *words), number)
    assert [path.name for path in tmp_path.rglob("*")] == ["tmp"]


@pytest.mark.parametrize("words", [
    pytest.param(TWO_HOSTS, id="namespaces", marks=NAMESPACES), pytest.param(PLAIN, id="plain"),
    pytest.param(IN_CGROUP, id="cgroup", marks=CGROUP), pytest.param(SMALL_DISK, id="mount", marks=needs("root")),
])  # fmt: skip
def test_next_replay_removes_the_remains_of_a_killed_one(tmp_path: Path, words: list[str]) -> None:
    killed = begin(tmp_path / "tmp", *words)
    killed.kill()
    killed.communicate()
    assert traces(killed.pid) != [], "a SIGKILLed run cannot clean up, or this test shows nothing"
    again = begin(tmp_path / "tmp", *PLAIN)
    assert traces(killed.pid) == []
    interrupt(again, signal.SIGINT)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_clean_up_spares_a_live_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container every run may have the same pid: the lock of the folder shows whether its run is alive."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    reused, foreign = (tmp_path / f"{PREFIX}{pid}-x7k2" for pid in (os.getpid(), 2**22 + 1))
    for folder in (reused, foreign):
        folder.mkdir()
        (folder / "lock").touch()
    with (foreign / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert clean_up() == [reused.name]
    assert clean_up() == [foreign.name] and list(tmp_path.iterdir()) == []


@RELEASE
@pytest.mark.parametrize(
    ("words", "file", "text"),
    [
        pytest.param(
            "host-oom-rank --nproc 2 --set rank=1 --kernel dmesg --kernel dmesg_iso",
            "kernel/dmesg.txt",
            "oom_memcg=/job_",
            marks=CGROUP,
        ),
        pytest.param(
            "firewall-drop --set timeout=4 --zones UTC,Asia/Tokyo",
            "node-a/rank0.err",
            "1/2 clients joined",
            marks=NAMESPACES,
        ),
        ("python-exception-one-rank --nproc 2 --set step=2 --record", "**/error.json", "/opt/train/run/train.py"),
    ],
)
def test_script_records_a_sample(tmp_path: Path, words: str, file: str, text: str) -> None:
    out = tmp_path / "sample"
    record([*words.split(), "--out", str(out)], out)
    assert traces(os.getpid()) == []
    truth = check_sample(out)
    assert any(text in path.read_text() for path in (out / "logs").glob(file))
    if "--zones" in words:
        assert truth["timezone"] == {"node-a": "UTC", "node-b": "Asia/Tokyo"}


@RELEASE
@pytest.mark.parametrize("name", ["bad-label-one-rank", "forgotten-export", "disk-full-at-dump"])
def test_sample_recorded_again_gives_the_same_verdict(tmp_path: Path, name: str) -> None:
    readme = (ROOT / "sample_logs" / name / "README.md").read_text()
    command = next(line for line in readme.splitlines() if line.startswith("    python scripts/record_sample.py "))
    record(shlex.split(command)[2:], tmp_path / "again")
    folders = (ROOT / "sample_logs" / name, tmp_path / "again")
    old, new = (analyze([str(folder / "logs")]).document["verdict"] for folder in folders)
    for key in ("outcome", "category", "pattern"):
        assert new[key] == old[key]
    assert new["culprit"]["ranks"] == old["culprit"]["ranks"]


ON_CPU = [row for row in SCENARIOS if "gpu" not in row.needs]
CASES: list[tuple[Scenario, Arguments]] = [(row, {}) for row in ON_CPU]
CASES += [(row, arguments) for row in ON_CPU for arguments in row.proves.values() if arguments]


@RELEASE
@pytest.mark.parametrize(("row", "arguments"), CASES, ids=lambda value: getattr(value, "id", None) or str(value))
def test_scenario_shows_its_promised_failure(row: Scenario, arguments: Arguments) -> None:
    ready = prepare(Order(row, arguments))
    if isinstance(ready, Result):
        pytest.skip(ready.text)
    assert not arguments or row.proves[str(promised(row, arguments).pattern)] == arguments
    result = verify(ready)
    assert result.outcome == "reproduced", result.text
    assert traces(os.getpid()) == []
