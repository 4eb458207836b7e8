"""Successful runs in the history: the hours of their hosts, against which failures count."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from run_jobs import environment, run, run_folder, wait_for, wrapped

from conftest import Command, needs, python
from postmortem.fleet.history import filing
from postmortem.fleet.history.rows import stamp
from postmortem.fleet.history.store import opened
from postmortem.live import proc
from postmortem.live.run import wrapper

pytestmark = needs("sqlalchemy")
RANKS = "for r in 0 1; do RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 sleep 1 & done; wait"
DAY = 1_795_000_000.0


def journal(folder: Path, host: str = "gpu-001", *, at: float = DAY, hours: float = 24.0, **more: Any) -> Path:
    """Write the journal of a run."""
    folder.mkdir(parents=True)
    first = {"time": stamp(at), "host": host, "event": "run", "pid": 17, "slurm": more.pop("slurm", {})}
    ranks = {"here": 8, "world": 8, "lives": 1}
    last = {"time": stamp(at + 3600 * hours), "event": "done", "code": 0, "signal": 0, "ranks": ranks} | more
    (folder / "run.jsonl").write_text("".join(json.dumps(record) + "\n" for record in (first, last)))
    return folder / "run.jsonl"


def rows(where: Path) -> list[dict[str, Any]]:
    with opened(str(where)) as store:
        found = store.rows()
        for each in found:
            each["hosts"] = [host["name"] for host in store.involved(uid=each["uid"])]
        return found


@pytest.mark.parametrize("way", ["option", pytest.param("variable", marks=pytest.mark.slow)])
def test_a_success_is_stored_without_a_message(tmp_path: Path, way: str) -> None:
    store = tmp_path / "fleet.db"
    options = ("--history", str(store)) if way == "option" else ()
    more = {} if way == "option" else {"POSTMORTEM_HISTORY": str(store)}
    done = run(tmp_path, "sh", "-c", RANKS, options=options, env=environment(**more))
    assert done.returncode == 0 and len(done.stderr.splitlines()) == 1, done.stderr
    (row,) = rows(store)
    assert (row["outcome"], row["category"], row["world_size"]) == ("healthy", None, 2)
    assert row["hosts"] == [socket.gethostname()] and row["headline"] == "Ended with exit code 0."
    assert row["begun"] < row["ended"] and 1 <= 3600 * row["hours"] < 60
    python("-m", "postmortem", "history", "add", tmp_path / "runs", "--history", store, check=True)
    assert rows(store) == [row]  # it is known already


@pytest.mark.slow
def test_a_failure_is_stored_only_by_its_analysis(tmp_path: Path) -> None:
    store = tmp_path / "fleet.db"
    raising = [sys.executable, "-c", "print('step 1', flush=True)\nraise ValueError('label 4711')"]
    assert run(tmp_path, *raising, options=("--history", str(store))).returncode == 1
    (row,) = rows(store)
    assert row["outcome"] == "incident" and row["report"] == str(run_folder(tmp_path) / "report.html")


@pytest.mark.parametrize(("where", "reason"), [
    pytest.param("/proc/fleet.db", "cannot be opened or written", marks=pytest.mark.slow),
    ("postgresql://ops:hunter2@127.0.0.1:1/x", "onnection refused"),
    pytest.param("s3://bucket/fleet", "no history can be stored in s3://", marks=pytest.mark.slow),
])  # fmt: skip
def test_a_broken_store_costs_one_sentence(tmp_path: Path, where: str, reason: str) -> None:
    done = run(tmp_path, "true", options=("--history", where))
    first, *_ = done.stderr.splitlines()
    assert done.returncode == 0 and len(done.stderr.splitlines()) == 2
    assert first.startswith("postmortem: not filed in the history: ") and reason in first
    assert "hunter2" not in done.stderr


def test_a_store_that_hangs_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its writers wait half a minute for a lock; the node is wanted by the next job."""
    path = tmp_path / "fleet.db"
    with opened(str(path), make=True):
        pass
    monkeypatch.setattr(wrapper, "HISTORY_S", 1.0)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        wrapper._add_to_history(journal(tmp_path / "run").parent, str(path))
        assert time.monotonic() - began < 5
    assert "not filed in the history: it took longer than 1 s" in capfd.readouterr().err


@pytest.mark.slow
def test_a_signal_while_a_success_is_stored_does_not_change_the_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    with opened(str(path), make=True):
        pass
    words = wrapped(tmp_path, "true", options=("--history", str(path)))
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        wrapper = subprocess.Popen(words, env=environment(), stderr=subprocess.PIPE, cwd=tmp_path)
        children = Path(f"/proc/{wrapper.pid}/task/{wrapper.pid}/children")
        wait_for(lambda: any(b"history\0add" in proc.read(f"/proc/{c}/cmdline") for c in children.read_text().split()))
        wrapper.send_signal(signal.SIGTERM)
        _, errors = wrapper.communicate(timeout=10)
    assert wrapper.returncode == 0, errors


def test_the_tasks_of_one_slurm_step_are_one_run(tmp_path: Path, in_process: Command) -> None:
    """`srun postmortem run -- python train.py`: eight wrappers on each host for one job of 16 ranks."""
    store = tmp_path / "fleet.db"
    for task in range(16):
        slurm = {"job": "4711", "step": "0"}
        own = {"here": 1, "world": 16, "lives": 1}
        host, late = f"gpu-00{task // 8}", 60.0 * task
        journal(tmp_path / f"runs/{task}", host, at=DAY + late, hours=2, slurm=slurm, ranks=own)
    journal(tmp_path / "runs/again", slurm={"job": "4711", "step": "1"})
    done = in_process("history", "add", tmp_path / "runs", "--history", store)
    assert done.stderr.strip() == "2 runs that ended well added, 15 known already"
    row = next(row for row in rows(store) if row["world_size"] == 16)
    assert sorted(row["hosts"]) == ["gpu-000", "gpu-001"] and row["job"] == "4711"
    assert row["hours"] == pytest.approx(2.25) and row["begun"] == stamp(DAY)


def test_a_host_of_a_larger_job_has_its_hours_without_the_size_of_the_job(tmp_path: Path) -> None:
    """Two hosts of torchrun write a journal each; two jobs of 16 ranks would be one too many."""
    row = filing.row_of_run(journal(tmp_path / "a", ranks={"here": 8, "world": 16, "lives": 1}))
    assert row and row.world_size is None and row.hours == 24.0


def test_a_run_with_several_attempts_has_recovered(tmp_path: Path) -> None:
    row = filing.row_of_run(journal(tmp_path / "a", ranks={"here": 8, "world": 8, "lives": 3}))
    assert row and (row.outcome, row.attempts) == ("recovered", 3)
    assert row.headline == "Ended with exit code 0 in attempt 3." and row.lost_rank_hours is None


@pytest.mark.parametrize("more", [{"code": 1}, {"code": None}, {"signal": 9}, {"event": "end"}, {"time": 7}])
def test_a_failure_is_left_to_its_report(tmp_path: Path, in_process: Command, more: dict[str, Any]) -> None:
    path = journal(tmp_path / "a", **more)
    assert filing.row_of_run(path) is None
    done = in_process("history", "add", path, "--history", tmp_path / "fleet.db")
    assert done.returncode == 2 and "a run that did not end well" in done.stderr


def test_a_journal_may_contain_anything(tmp_path: Path) -> None:
    odd = b'{"event":"run","slurm":[],"host":{}}\n' * 2
    for data in (b"", b"\n\n", b"[1]\n{}", b"\xff\0" * 99_999, odd, b"[" * 99_999):
        (tmp_path / "run.jsonl").write_bytes(data)
        assert filing.row_of_run(tmp_path / "run.jsonl") is None


def test_an_anonymous_host_has_a_pseudonym(tmp_path: Path, in_process: Command) -> None:
    store = tmp_path / "fleet.db"
    journal(tmp_path / "a", "falcon-x1")
    journal(tmp_path / "b", "falcon-x1", at=DAY + 1e6)
    in_process("history", "add", tmp_path, "--history", store, "--anonymise")
    (one,), (other,) = (row["hosts"] for row in rows(store))
    assert one == other and one.startswith("host-") and b"falcon" not in store.read_bytes()
