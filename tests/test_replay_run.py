"""Scenarios run for real: what they record is what they promise, and nothing of them stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import ROOT, needs
from postmortem.replay.isolate import PREFIX, sweep
from postmortem.replay.record import main

pytestmark = [pytest.mark.slow, needs("torch")]


def traces(pid: int) -> list[str]:
    """All that a run of the process `pid` could have left: processes, cgroups, namespaces, mounts, folders."""
    mark = f"{PREFIX}{pid}-"
    found = [
        str(path) for base in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/run/netns", "/tmp") for path in Path(base).glob(f"{mark}*")
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
    truth = record("host-oom-rank", tmp_path / "oom", "--nproc", "2", "--set", "rank=1", "--kernel", "dmesg", "--kernel", "dmesg_iso")
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


@needs("root", "cgroup")
def test_what_a_killed_run_leaves_behind_is_removed_by_the_next_one(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "postmortem.replay.record", "host-oom-rank", "--out", str(tmp_path / "never"), "--set", "steps=2000"]
    run = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.DEVNULL)
    for _ in range(200):
        if any(line.startswith("process") for line in traces(run.pid)):
            break
        time.sleep(0.1)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert traces(run.pid) != [], "a SIGKILLed run cannot clean up, or this test shows nothing"
    sweep()
    assert traces(run.pid) == []
