"""`postmortem run -- torchrun …` with real ranks: what it keeps decides the verdict, and no signal leaves an orphan."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_jobs import (
    alive,
    begin,
    environment,
    job,
    kept,
    launcher,
    messages,
    ranks_of,
    torchrun,
    until,
)
from run_moments import Moment, broken, random_moments

from conftest import ROOT, memory_cgroup, needs
from postmortem.analyze import analyze

pytestmark = [pytest.mark.slow, needs("torch")]


def verdict(folder: Path) -> dict[str, Any]:
    """Of what was kept, less the kernel's log, which few may read."""
    (kept(folder) / "dmesg.txt").unlink(missing_ok=True)
    return dict(analyze([str(kept(folder))]).document["verdict"])


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A memory cgroup of 1000 MB."""
    base = memory_cgroup()
    assert base
    made = Path(tempfile.mkdtemp(prefix="postmortem-run-", dir=base))
    limit = "memory.limit_in_bytes" if base.name == "memory" else "memory.max"
    (made / limit).write_text(str(1000 << 20))
    yield made
    until(lambda: not (made / "cgroup.procs").read_text())
    made.rmdir()


@needs("root", "cgroup")
def test_an_oom_kill_is_established_without_the_kernels_log(tmp_path: Path, cgroup: Path) -> None:
    running = begin(
        tmp_path,
        job(tmp_path, "host_oom_rank", megabytes=48),
        preexec_fn=lambda: (cgroup / "cgroup.procs").write_text(str(os.getpid())),
    )
    assert running.wait(120) == 1
    found = verdict(tmp_path)
    assert (found["category"], found["confidence"], found["culprit"]["ranks"]) == (
        "host-oom",
        "established",
        [1],
    )


@needs("cgroup")
def test_a_kill_by_hand_is_established_not_to_be_an_oom(tmp_path: Path) -> None:
    running = begin(tmp_path, job(tmp_path, "healthy"))
    pid = ranks_of(tmp_path)[2]
    time.sleep(4)
    os.kill(pid, signal.SIGKILL)
    assert running.wait(60) == 1
    found = verdict(tmp_path)
    assert found["category"] == "external-signal" and found["culprit"]["ranks"] == [2]
    assert found["confidence"] == "established" and "not by the kernel's out-of-memory killer" in found["headline"]


def test_a_crash_that_prints_nothing_names_its_line(tmp_path: Path) -> None:
    running = begin(tmp_path, job(tmp_path, "segfault_silent", ranks=2))
    assert running.wait(120) == 1
    found = verdict(tmp_path)
    assert (found["category"], found["confidence"], found["culprit"]["ranks"]) == (
        "native-crash",
        "established",
        [1],
    )
    assert "segfault_silent.py:" in found["headline"]


def test_a_launcher_that_is_killed_leaves_no_rank(tmp_path: Path) -> None:
    running = begin(tmp_path, job(tmp_path, "healthy"))
    ranks = ranks_of(tmp_path)
    os.kill(launcher(tmp_path), signal.SIGKILL)
    assert running.wait(60) == -signal.SIGKILL
    assert not [pid for pid in ranks.values() if alive(pid)]
    assert any(text.startswith("the command left ranks behind: SIGTERM to") for text in messages(tmp_path))


def test_a_wrapper_that_is_killed_leaves_torchrun_to_finish(tmp_path: Path) -> None:
    running = begin(tmp_path, job(tmp_path, "healthy", ranks=2, steps=30))
    ranks = ranks_of(tmp_path, 2)
    running.kill()
    running.wait()
    assert all(map(alive, ranks.values()))
    until(lambda: not any(map(alive, ranks.values())), 60)
    until(lambda: not torchrun(tmp_path))
    assert analyze([str(kept(tmp_path))]).document["verdict"]["outcome"] == "healthy"


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """A folder in which the entry points of pyproject.toml stand as an installed wheel has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    told = tmp_path / "site" / "entry_points_of_postmortem-1.dist-info"
    told.mkdir(parents=True)
    told.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: entry-points-of-postmortem\nVersion: 1\n")
    rows = (
        f"[{group}]\n" + "".join(f"{n} = {t}\n" for n, t in found.items())
        for group, found in project["entry-points"].items()
    )
    told.joinpath("entry_points.txt").write_text("".join(rows))
    return f"{told.parent}{os.pathsep}{ROOT}"


def with_plugin(folder: Path, path: str, command: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    words = [*command[:3], "--logs-specs", "postmortem", *options, *command[3:]]
    env = environment(PYTHONPATH=path)
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, env=env, timeout=120)


def plugin_run(folder: Path) -> Path:
    (only,) = (folder / "postmortem-runs").iterdir()
    return only


def test_torchruns_plugin_keeps_each_ranks_words_and_analyzes_a_failure(tmp_path: Path, installed: str) -> None:
    """For who cannot put `postmortem run` in front of torchrun, but can give it an option."""
    done = with_plugin(tmp_path, installed, job(tmp_path, "segfault_silent", ranks=2))
    assert done.returncode == 1 and "INCIDENT  native crash" in done.stderr
    said = [json.loads(line)["message"] for line in (plugin_run(tmp_path) / "run.jsonl").read_text().splitlines()]
    (end,) = [text for text in said if text.endswith("killed by SIGSEGV")]
    assert end.startswith("rank 1 (pid ") and (plugin_run(tmp_path) / "report.html").exists()
    found = analyze([str(plugin_run(tmp_path))]).document["verdict"]
    assert (found["category"], found["culprit"]["ranks"]) == ("native-crash", [1])


@needs("root", "cgroup")
def test_the_plugin_establishes_an_oom_kill_too(tmp_path: Path, installed: str, cgroup: Path) -> None:
    inside = ["sh", "-c", f'echo $$ > {cgroup}/cgroup.procs; exec "$@"', "-"]
    command = job(tmp_path, "host_oom_rank", megabytes=48)
    words = [*inside, *command[:3], "--logs-specs", "postmortem", *command[3:]]
    subprocess.run(words, cwd=tmp_path, capture_output=True, env=environment(PYTHONPATH=installed), timeout=120)
    found = analyze([str(plugin_run(tmp_path))]).document["verdict"]
    assert (found["category"], found["confidence"]) == ("host-oom", "established")


def test_torchruns_own_options_stay_with_the_plugin(tmp_path: Path, installed: str) -> None:
    command = job(tmp_path, "healthy", ranks=1, steps=3)
    done = with_plugin(tmp_path, installed, command, "--log-dir", str(tmp_path / "mine"), "--redirects", "3")
    assert done.returncode == 0 and "INCIDENT" not in done.stderr
    assert list((tmp_path / "mine").rglob("stdout.log")) and not (plugin_run(tmp_path) / "torchelastic").exists()


@pytest.mark.parametrize("moment", random_moments(12, seed=3), ids=str)
def test_no_signal_at_no_moment_leaves_an_orphan(tmp_path: Path, moment: Moment) -> None:
    """At a moment by lot: while torchrun imports, while the ranks start, while they train. SIGSTOP is followed by
    SIGCONT, as a preemption does it. What a killed wrapper leaves runs to its end. `benchmarks/run_signals.py` has
    more moments."""
    assert broken(tmp_path, moment) == []
