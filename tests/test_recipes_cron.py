"""recipes/cron: which folders are analyzed, how often, and what is said."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from recipe_runs import RECIPES, environment

from conftest import SAMPLES, needs

CRON = RECIPES / "cron"
SCRIPT = CRON / "analyze-finished.sh"
HOUR = 3600
pytestmark = [needs("flock"), needs("timeout")]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A job that failed and one that went well, an hour ago."""
    for name, sample in (("train 1", "forgotten-export"), ("train-2", "healthy-torchrun")):
        shutil.copytree(SAMPLES / sample / "logs", tmp_path / "jobs" / name)
    age(tmp_path / "jobs", HOUR)
    return tmp_path


def age(folder: Path, seconds: float) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - seconds,) * 2)


def look(data: Path, command: str = "", **more: str) -> tuple[int, list[str], str]:
    """Exit code, what cron would mail, and the errors."""
    words = shlex.split(command) or ["sh", str(SCRIPT), "/data/jobs", "/data/postmortem"]
    words = [word.replace("/opt/postmortem/", f"{CRON}/").replace("/data", str(data)) for word in words]
    env = environment(**more)
    done = subprocess.run(words, cwd="/", env=env, capture_output=True, text=True, timeout=200)
    return done.returncode, done.stdout.splitlines(), done.stderr


def reports(data: Path) -> dict[str, float]:
    return {path.parent.name: path.stat().st_mtime for path in data.glob("postmortem/*/report.html")}


def test_each_job_that_has_ended_is_analyzed_once(data: Path) -> None:
    code, (line,), _ = look(data)
    assert code == 0 and line.startswith("train 1: **Rank 1 is missing an environment variable")
    first = reports(data)
    assert first.keys() == {"train 1", "train-2"}
    assert look(data) == (0, [], "")
    assert reports(data) == first


@pytest.mark.slow
def test_a_job_that_still_writes_is_left_alone_until_it_ends(data: Path) -> None:
    age(data / "jobs" / "train 1", 60)
    (data / "jobs" / "train-3").mkdir()  # and of this one nothing is there yet
    assert look(data) == (0, [], "")
    assert reports(data).keys() == {"train-2"}
    age(data / "jobs" / "train 1", HOUR)
    assert len(look(data)[1]) == 1


@pytest.mark.slow
def test_a_folder_that_was_written_to_since_is_read_again(data: Path) -> None:
    """The job was begun again in the same folder, failed, and ended ten minutes after the analysis."""
    look(data)
    for done in data.glob("postmortem/*/done"):
        os.utime(done, (time.time() - 3 * HOUR,) * 2)
    assert [line[:7] for line in look(data)[1]] == ["train 1"]


@pytest.mark.slow
def test_what_is_written_during_the_analysis_is_not_lost(data: Path) -> None:
    late = data / "jobs" / "train-2" / "late.log"
    slow = data / "bin" / "postmortem"  # the real one, and while it reads, the job writes once more
    slow.parent.mkdir()
    real = f'{sys.executable} -m postmortem "$@"'
    slow.write_text(f'#!/bin/sh\n{real}\ncode=$?\ncase "$*" in *train-2*) echo >"{late}" ;; esac\nexit $code\n')
    slow.chmod(0o755)
    look(data, PATH=f"{slow.parent}:{os.environ['PATH']}")
    before = reports(data)
    look(data, QUIET="0")
    assert reports(data)["train-2"] > before["train-2"]


def test_two_at_once_do_not_do_the_same_work(data: Path) -> None:
    (data / "postmortem").mkdir()
    with (data / "postmortem" / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert look(data) == (0, [], "") and not reports(data)
    assert look(data)[0] == 0 and reports(data)


@pytest.mark.slow
def test_an_analysis_that_fails_is_tried_again_and_costs_no_other(data: Path) -> None:
    (data / "postmortem" / "train 1" / "report.html").mkdir(parents=True)  # it cannot be written
    code, _, errors = look(data)
    assert code == 1 and "train 1: postmortem ended with exit code" in errors
    assert (data / "postmortem" / "train-2" / "done").exists()
    (data / "postmortem" / "train 1" / "report.html").rmdir()
    assert look(data)[0] == 0 and reports(data).keys() == {"train 1", "train-2"}


def test_a_folder_without_a_log_is_not_asked_again(data: Path) -> None:
    shutil.rmtree(data / "jobs")
    (data / "jobs" / "notes").mkdir(parents=True)
    (data / "jobs" / "notes" / "README.md").write_text("nothing\n")
    age(data / "jobs", HOUR)
    code, lines, _ = look(data)
    assert (code, lines) == (0, []) and (data / "postmortem" / "notes" / "done").exists()


@pytest.mark.slow
def test_a_command_of_yours_gets_the_brief_of_each_failure(data: Path) -> None:
    told = data / "told"
    code, lines, _ = look(data, NOTIFY=f'echo "JOB is $JOB"; cat >>{told}; exit 9')
    assert code == 0 and lines[1:] == ["JOB is train 1"]  # its exit code changes nothing
    assert json.loads(told.read_text())["outcome"] == "incident"


def test_usage(tmp_path: Path) -> None:
    code, lines, errors = look(tmp_path)  # there are no jobs
    assert (code, lines) == (2, []) and errors.startswith("usage: ")


# ── what starts it ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_line_of_the_crontab_runs(data: Path) -> None:
    (line,) = (text for text in (CRON / "crontab").read_text().splitlines() if re.match(r"[*\d]", text))
    found = re.fullmatch(r"((?:(?:\*|\d+)(?:/\d+)? ){5})([^%]+)", line)  # cron makes a line end of a percent sign
    assert found
    code, lines, _ = look(data, found[2])
    assert code == 0 and len(lines) == 1


@pytest.mark.slow
def test_what_the_service_starts_runs(data: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(.+)$", (CRON / "postmortem.service").read_text(), re.MULTILINE)
    code, lines, _ = look(data, line)
    assert code == 0 and len(lines) == 1


@needs("systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    def verified(folder: Path) -> str:
        command = ["systemd-analyze", "verify", folder / "postmortem.timer", folder / "postmortem.service"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.stderr + f"exit code {done.returncode}" * (done.returncode != 0)

    assert verified(CRON) == ""
    for path in CRON.glob("postmortem.*"):
        (tmp_path / path.name).write_text(path.read_text().replace("Nice=", "Nicest="))
    assert "Unknown key" in verified(tmp_path)
