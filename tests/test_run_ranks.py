"""`postmortem run -- torchrun …` with real ranks: its evidence decides the verdict, and no signal leaves an orphan."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_jobs import (
    TORCHRUN,
    alive,
    begin,
    entry_points,
    environment,
    job,
    messages,
    ranks_of,
    run_folder,
    torchrun,
    wait_for,
)
from run_moments import Moment, broken, random_moments

from conftest import ROOT, memory_cgroup, needs
from postmortem.analyze import analyze

pytestmark = [pytest.mark.slow, needs("torch")]


def verdict(folder: Path) -> tuple[str, str, list[int], str]:
    """Return category, confidence, ranks and headline; without the kernel's log, which few may read."""
    (folder / "dmesg.txt").unlink(missing_ok=True)
    found = analyze([str(folder)]).document["verdict"]
    return found["category"], found["confidence"], found["culprit"]["ranks"], found["headline"]


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A memory cgroup of 1000 MB."""
    base = memory_cgroup()
    assert base
    made = Path(tempfile.mkdtemp(prefix="postmortem-run-", dir=base))
    limit = "memory.limit_in_bytes" if base.name == "memory" else "memory.max"
    (made / limit).write_text(str(1000 << 20))
    yield made
    wait_for(lambda: not (made / "cgroup.procs").read_text())
    made.rmdir()


def oom_kills(group: Path) -> int:
    """How many processes the kernel killed in this cgroup, by either version of its interface."""
    files = (group / name for name in ("memory.oom_control", "memory.events"))
    rows = (line.split() for file in files if file.exists() for line in file.read_text().splitlines())
    return sum(int(value) for name, value in rows if name == "oom_kill")


@needs("root", "cgroup")
def test_an_oom_kill_is_established_without_the_kernels_log(tmp_path: Path, cgroup: Path) -> None:
    command = job(tmp_path, "host_oom_rank", ranks=2, megabytes=48)
    running = begin(tmp_path, command, preexec_fn=lambda: (cgroup / "cgroup.procs").write_text(str(os.getpid())))
    assert running.wait(120) == 1
    category, confidence, ranks, _ = verdict(run_folder(tmp_path))
    assert (category, confidence) == ("host-oom", "established")
    # beside other work the kernel may take rank 0, too
    assert ranks == [1] or (ranks == [0, 1] and oom_kills(cgroup) >= 2)


@needs("cgroup")
def test_a_manual_kill_is_established_not_to_be_an_oom(tmp_path: Path) -> None:
    running = begin(tmp_path, job(tmp_path, "healthy", ranks=2))
    pid = ranks_of(tmp_path, 2)[1]
    wait_for(lambda: b"step 3" in (tmp_path / "console").read_bytes())
    os.kill(pid, signal.SIGKILL)
    assert running.wait(60) == 1
    *found, headline = verdict(run_folder(tmp_path))
    assert found == ["external-signal", "established", [1]]
    assert "not by the kernel's out-of-memory killer" in headline


def test_a_crash_that_prints_nothing_names_its_line(tmp_path: Path) -> None:
    running = begin(tmp_path, job(tmp_path, "segfault_silent", ranks=2))
    assert running.wait(120) == 1
    *found, headline = verdict(run_folder(tmp_path))
    assert found == ["native-crash", "established", [1]] and "segfault_silent.py:" in headline


def test_a_killed_launcher_leaves_no_rank(tmp_path: Path) -> None:
    running = begin(tmp_path, job(tmp_path, "healthy", ranks=2))
    ranks = ranks_of(tmp_path, 2)
    os.kill(torchrun(tmp_path)[0], signal.SIGKILL)
    assert running.wait(60) == -signal.SIGKILL
    assert not [pid for pid in ranks.values() if alive(pid)]
    assert any(text.startswith("the command left ranks behind: SIGTERM to") for text in messages(tmp_path))


def test_a_killed_wrapper_lets_torchrun_finish(tmp_path: Path) -> None:
    running = begin(tmp_path, job(tmp_path, "healthy", ranks=2, steps=30))
    ranks = ranks_of(tmp_path, 2)
    running.kill()
    running.wait()
    assert all(map(alive, ranks.values()))
    wait_for(lambda: not any(map(alive, ranks.values())), 60)
    wait_for(lambda: not torchrun(tmp_path))
    assert analyze([str(run_folder(tmp_path))]).document["verdict"]["outcome"] == "healthy"


def with_plugin(folder: Path, command: list[str], *options: str, before: tuple[str, ...] = (), **env: str) -> Any:
    """Run a command of torchrun with the plugin."""
    words = [*before, *command[:3], "--logs-specs", "postmortem", *options, *command[3:]]
    env = environment(PYTHONPATH=f"{entry_points(folder)}{os.pathsep}{ROOT}", **env)
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, env=env, timeout=120)


def plugin_folder(folder: Path) -> Path:
    (only,) = (folder / "postmortem-runs").iterdir()
    return only


def test_the_plugin_of_torchrun_records_ends_and_analyzes_a_failure(tmp_path: Path) -> None:
    done = with_plugin(tmp_path, job(tmp_path, "segfault_silent", ranks=2))
    folder = plugin_folder(tmp_path)
    assert done.returncode == 1 and "INCIDENT  native crash" in done.stderr and (folder / "report.html").exists()
    texts = [json.loads(line)["message"] for line in (folder / "run.jsonl").read_text().splitlines()]
    (end,) = [text for text in texts if text.endswith("killed by SIGSEGV")]
    assert end.startswith("rank 1 (pid ")
    assert verdict(folder)[0] == "native-crash" and verdict(folder)[2] == [1]


@needs("root", "cgroup")
def test_the_plugin_establishes_an_oom_kill_too(tmp_path: Path, cgroup: Path) -> None:
    inside = ("sh", "-c", f'echo $$ > {cgroup}/cgroup.procs; exec "$@"', "-")
    with_plugin(tmp_path, job(tmp_path, "host_oom_rank", ranks=2, megabytes=48), before=inside)
    assert verdict(plugin_folder(tmp_path))[:2] == ("host-oom", "established")


def test_options_of_torchrun_have_priority_over_the_plugin(tmp_path: Path) -> None:
    command = job(tmp_path, "healthy", ranks=1, steps=3)
    done = with_plugin(tmp_path, command, "--log-dir", str(tmp_path / "mine"), "--redirects", "3")
    assert done.returncode == 0 and "INCIDENT" not in done.stderr
    assert list((tmp_path / "mine").rglob("stdout.log")) and not (plugin_folder(tmp_path) / "torchelastic").exists()


RESTARTS = """\
import os, pathlib, shutil
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    shutil.rmtree("postmortem-runs")
    pathlib.Path("postmortem-runs").write_text("a file")
    raise RuntimeError("of the job")
"""


def test_a_rank_is_started_again_where_the_folder_of_the_plugin_has_gone(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(RESTARTS)
    done = with_plugin(tmp_path, [*TORCHRUN, "--max-restarts=1", "job.py"])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("number", "moment"), [*enumerate(random_moments(12, seed=3))], ids=str)
def test_no_signal_at_any_moment_leaves_an_orphan(tmp_path: Path, number: int, moment: Moment) -> None:
    """At a random moment: while torchrun imports, while the ranks start, while they train. SIGSTOP is followed by
    SIGCONT, as in a preemption. `benchmarks/run_signals.py` has more moments."""
    assert broken(tmp_path, moment, trains=number % 3 == 0) == []
