"""Scenarios run for real: what they record is what they promise, and nothing of them stays behind."""

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

import pytest

from conftest import ROOT, needs
from postmortem.replay.catalogue import SCENARIOS, Scenario
from postmortem.replay.isolate import PREFIX, sweep
from postmortem.replay.record import main

pytestmark = [pytest.mark.slow, needs("torch")]


def traces(pid: int) -> list[str]:
    """All that a run of the process `pid` could have left:
    processes, cgroups, namespaces, mounts, folders."""
    mark = f"{PREFIX}{pid}-"
    found = [
        str(path)
        for base in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/run/netns", "/tmp")
        for path in Path(base).glob(f"{mark}*")
    ]
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if mark in line]
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"REPLAY_TAG={mark}".encode() in (entry / "environ").read_bytes():
                found.append(f"process {entry.name}: {(entry / 'cmdline').read_bytes()!r}")
        except OSError:
            continue
    return found


def record(scenario: str, out: Path, *words: str) -> dict[str, object]:
    assert main([scenario, "--out", str(out), *words]) == 0
    assert traces(os.getpid()) == []
    truth: dict[str, object] = json.loads((out / "truth.json").read_text())
    for item in truth["evidence"]:  # type: ignore[attr-defined]
        line = (out / "logs" / item["file"]).read_bytes().split(b"\n")[item["line"] - 1].decode()
        assert line.startswith(item["text"]), "the address of an evidence line is exact"
    return truth


@needs("root", "cgroup", "dmesg")
def test_a_memory_cgroup_really_kills_the_rank_and_is_gone_afterwards(tmp_path: Path) -> None:
    truth = record(
        "host-oom-rank",
        tmp_path / "oom",
        "--nproc",
        "2",
        "--set",
        "rank=1",
        "--kernel",
        "dmesg",
        "--kernel",
        "dmesg_iso",
    )
    assert truth["ranks"] == [1] and truth["categories"] == ["host-oom"]
    kernel = (tmp_path / "oom" / "logs" / "kernel" / "dmesg.txt").read_text()
    assert "oom_memcg=/job_" in kernel and PREFIX not in kernel


@needs("root", "netns", "ip")
def test_a_filter_between_two_hosts_stops_the_rendezvous_and_is_gone_afterwards(tmp_path: Path) -> None:
    truth = record("firewall-drop", tmp_path / "filtered", "--set", "timeout=4", "--zones", "UTC,Asia/Tokyo")
    assert truth["timezone"] == {"node-a": "UTC", "node-b": "Asia/Tokyo"}
    assert "1/2 clients joined" in (tmp_path / "filtered" / "logs" / "node-a" / "rank0.err").read_text()


def test_a_failing_rank_is_recorded_without_any_privilege(tmp_path: Path) -> None:
    truth = record("python-exception-one-rank", tmp_path / "plain", "--nproc", "2", "--set", "step=2", "--record")
    errors = list((tmp_path / "plain" / "logs").rglob("error.json"))
    assert truth["ranks"] == [1] and errors and "/opt/train/run/train.py" in errors[0].read_text()


# ── the command, end to end ─────────────────────────────────────────────────────────────────────────────────


def replay(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "postmortem", "replay", *map(str, words)]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, timeout=180)


def test_a_verdict_is_repeated_and_the_report_says_so(tmp_path: Path) -> None:
    """The whole way: logs, report, replay of the report, the result in the report."""
    report = tmp_path / "report.html"
    analysed = [
        sys.executable,
        "-m",
        "postmortem",
        "analyze",
        str(ROOT / "sample_logs/bad-label-one-rank/logs"),
        "-o",
        str(report),
    ]
    subprocess.run(analysed, check=True, capture_output=True)
    done = replay(
        report,
        "--set",
        "step=2",
        "--nproc",
        "3",
        "--attach",
        report,
        "--keep",
        "kept",
        "--json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (
        result["outcome"] == "reproduced"
        and result["found"]["ranks"] == [2]
        and result["found"]["pattern"] == "python-exception"
    )
    assert "stopped after" in done.stderr and "gloo" in done.stderr
    assert "Reproduced: the verdict on the replay" in report.read_text()
    assert list((tmp_path / "kept").rglob("stderr.log"))


def test_a_run_that_does_not_fail_is_no_reproduction(tmp_path: Path) -> None:
    done = replay("slow-rank", "--nproc", "2", "--set", "stall=0", "--set", "steps=10", cwd=tmp_path)
    assert done.returncode == 6 and "Did not fail" in done.stderr


def test_another_failure_is_told_as_such(tmp_path: Path) -> None:
    verdict = {
        "pattern": "index-out-of-range",
        "category": "python-exception",
        "outcome": "incident",
        "culprit": {"ranks": [1]},
    }
    hint = {"scenario": "python-exception-one-rank", "arguments": {"world_size": 2, "rank": 1}}
    (tmp_path / "incident.json").write_text(
        json.dumps({"schema": "postmortem/incident/1", "verdict": verdict, "replay": hint})
    )
    done = replay("incident.json", "--set", "error=value", "--set", "step=2", cwd=tmp_path)
    assert done.returncode == 5 and "index-out-of-range was expected, python-exception came" in done.stderr


# ── the ways out ────────────────────────────────────────────────────────────────────────────────────────────


def begun(temporary: Path, *words: str) -> subprocess.Popen[str]:
    """A replay whose job runs; it has a temporary folder to itself."""
    temporary.mkdir(exist_ok=True)
    line = [sys.executable, "-m", "postmortem", "replay", *words]
    run = subprocess.Popen(
        line,
        cwd=temporary.parent,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    while run.poll() is None and not any(line.startswith("process") for line in traces(run.pid)):
        time.sleep(0.1)
    return run


PLAIN = ["slow-rank", "--nproc", "2"]
IN_CGROUP = ["host-oom-rank", "--set", "steps=2000", "--set", "step=400"]
TWO_HOSTS = ["firewall-drop", "--set", "timeout=30"]
SMALL_DISK = ["disk-full-checkpoint", "--set", "step=400", "--set", "steps=2000"]


@pytest.mark.parametrize(
    ("words", "number"),
    [
        pytest.param(PLAIN, signal.SIGINT, id="ctrl-c"),
        pytest.param(PLAIN, signal.SIGHUP, id="terminal-closed"),
        pytest.param(IN_CGROUP, signal.SIGTERM, id="cgroup", marks=needs("root", "cgroup", "dmesg")),
        pytest.param(TWO_HOSTS, signal.SIGINT, id="namespaces", marks=needs("root", "netns", "ip")),
        pytest.param(SMALL_DISK, signal.SIGINT, id="mount", marks=needs("root")),
        pytest.param([*PLAIN, "--record", "sample"], signal.SIGTERM, id="recording"),
    ],
)
def test_every_way_out_takes_everything_away(tmp_path: Path, words: list[str], number: signal.Signals) -> None:
    """Nobody waits after one Ctrl-C: a second one comes while all is being taken away."""
    run = begun(tmp_path / "tmp", *words)
    run.send_signal(number)
    time.sleep(0.1)
    run.send_signal(number)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 130 and "interrupted" in said and "Traceback" not in said
    assert traces(run.pid) == [] and [path.name for path in tmp_path.rglob("*")] == ["tmp"]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(PLAIN, id="plain"),
        pytest.param(IN_CGROUP, id="cgroup", marks=needs("root", "cgroup", "dmesg")),
        pytest.param(TWO_HOSTS, id="namespaces", marks=needs("root", "netns", "ip")),
        pytest.param(SMALL_DISK, id="mount", marks=needs("root")),
    ],
)
def test_what_a_killed_replay_leaves_behind_is_removed_by_the_next_one(tmp_path: Path, words: list[str]) -> None:
    killed = begun(tmp_path / "tmp", *words)
    killed.kill()
    killed.communicate()
    assert traces(killed.pid) != [], "a SIGKILLed run cannot clean up, or this test shows nothing"
    again = begun(tmp_path / "tmp", "silent-exit", "--nproc", "2", "--set", "step=2")
    _, said = again.communicate(timeout=120)
    assert again.returncode == 0, said
    assert traces(killed.pid) == [] and traces(again.pid) == [] and list((tmp_path / "tmp").iterdir()) == []


def test_a_live_replay_is_left_alone_and_a_folder_without_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container every run may have the same pid: the lock of the folder tells whether its run lives."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    reused, foreign = (tmp_path / f"{PREFIX}{pid}-x7k2" for pid in (os.getpid(), 2**22 + 1))
    for folder in (reused, foreign):
        folder.mkdir()
        (folder / "lock").touch()
    with (foreign / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert sweep() == [reused.name]
    assert sweep() == [foreign.name] and list(tmp_path.iterdir()) == []


# ── samples ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_replay_records_itself_as_a_sample(tmp_path: Path) -> None:
    out = tmp_path / "recorded"
    done = replay("silent-exit", "--nproc", "2", "--set", "step=2", "--record", out, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "truth.json").read_text())["ranks"] == [1]
    assert "postmortem replay silent-exit --nproc=2" in (out / "README.md").read_text()


def test_a_written_script_fails_by_itself_as_promised(tmp_path: Path) -> None:
    assert (
        replay(
            "python-exception-one-rank", "--nproc", "2", "--set", "step=1", "--write", "job.py", cwd=tmp_path
        ).returncode
        == 0
    )
    torchrun = Path(sys.executable).with_name("torchrun")
    words = [str(torchrun), "--nproc-per-node=2", "--standalone", "job.py", "--rank", "1", "--step", "1"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "ValueError: sample 67: label 4711" in done.stderr


@pytest.mark.parametrize("name", ["bad-label-one-rank", "forgotten-export", "disk-full-at-dump"])
def test_a_sample_recorded_again_gives_the_same_verdict(tmp_path: Path, name: str) -> None:
    from postmortem.analyze import analyze

    readme = (ROOT / "sample_logs" / name / "README.md").read_text()
    command = next(
        line.strip() for line in readme.splitlines() if line.startswith("    python -m postmortem.replay.record ")
    )
    words = [str(tmp_path / "again") if word == f"sample_logs/{name}" else word for word in shlex.split(command)[3:]]
    # The recorder asks to be run again if other tests of this machine had a process killed meanwhile.
    assert 0 in (main(words) for _ in range(3))
    old, new = (
        analyze([str(folder / "logs")]).document["verdict"]
        for folder in (ROOT / "sample_logs" / name, tmp_path / "again")
    )
    assert [new[key] for key in ("outcome", "category", "pattern")] == [
        old[key] for key in ("outcome", "category", "pattern")
    ]
    assert new["culprit"]["ranks"] == old["culprit"]["ranks"]


ON_CPU = [row for row in SCENARIOS if "gpu" not in row.needs]
# All of them take a quarter of an hour: `make soak` runs them, the ordinary suite every eighth.
EACH = 1 if os.environ.get("POSTMORTEM_SOAK") else 8
SHOWN = ON_CPU[::EACH]


@pytest.mark.parametrize("row", SHOWN, ids=[row.id for row in SHOWN])
def test_every_scenario_that_needs_no_gpu_shows_what_it_promises(row: Scenario) -> None:
    from postmortem.replay.verify import Order, Result, prepare, verify

    ready = prepare(Order(row))
    if isinstance(ready, Result):
        pytest.skip(ready.text)
    result = verify(ready)
    assert result.outcome == "reproduced", result.text
    assert traces(os.getpid()) == []


VARIANTS = [(row, pattern) for row in ON_CPU for pattern in row.proves if row.proves[pattern]][::EACH]


@pytest.mark.parametrize(("row", "pattern"), VARIANTS, ids=[f"{row.id}-{pattern}" for row, pattern in VARIANTS])
def test_every_other_pattern_of_a_scenario_comes_with_its_arguments(row: Scenario, pattern: str) -> None:
    from postmortem.replay.verify import Order, Result, prepare, promised, verify

    ready = prepare(Order(row, row.proves[pattern]))
    if isinstance(ready, Result):
        pytest.skip(ready.text)
    assert promised(row, row.proves[pattern]).pattern == pattern
    result = verify(ready)
    assert result.outcome == "reproduced", result.text
