"""recipes/cron: the folders that are analyzed, how often, and the output."""

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
from gathered import tool
from recipe_runs import RECIPES, environment

from conftest import SAMPLES, needs

CRON = RECIPES / "cron"
SCRIPT = CRON / "analyze-finished.sh"
HOUR = 3600
pytestmark = [needs("flock"), needs("timeout")]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A job that failed and one that succeeded, an hour ago."""
    for name, sample in (("train 1", "forgotten-export"), ("train-2", "healthy-torchrun")):
        shutil.copytree(SAMPLES / sample / "logs", tmp_path / "jobs" / name)
    age(tmp_path / "jobs", HOUR)
    return tmp_path


def age(folder: Path, seconds: float) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - seconds,) * 2)


def look(data: Path, command: str = "", **more: str) -> tuple[int, list[str], str]:
    """Return the exit code, the lines that cron would mail, and the errors."""
    words = shlex.split(command) or ["sh", str(SCRIPT), "/data/jobs", "/data/postmortem"]
    words = [word.replace("/opt/postmortem/", f"{CRON}/").replace("/data", str(data)) for word in words]
    env = environment(**more)
    done = subprocess.run(words, cwd="/", env=env, capture_output=True, text=True, timeout=200)
    return done.returncode, done.stdout.splitlines(), done.stderr


def reports(data: Path) -> dict[str, float]:
    return {path.parent.name: path.stat().st_mtime for path in data.glob("postmortem/*/report.html")}


@pytest.mark.slow
def test_each_finished_job_is_analyzed_once(data: Path) -> None:
    age(data / "jobs" / "train 1", 60)  # it still writes
    (data / "jobs" / "train-3").mkdir()  # and this one has written nothing yet
    assert look(data) == (0, [], "")
    assert reports(data).keys() == {"train-2"}
    age(data / "jobs" / "train 1", HOUR)
    code, (line,), _ = look(data)
    assert code == 0 and line.startswith("train 1: **Rank 1 is missing an environment variable")
    first = reports(data)
    assert first.keys() == {"train 1", "train-2"}
    assert look(data) == (0, [], "")
    assert reports(data) == first
    for done in data.glob("postmortem/*/done"):  # the jobs ran again in the same folders
        os.utime(done, (time.time() - 3 * HOUR,) * 2)
    assert [line[:7] for line in look(data)[1]] == ["train 1"]


@pytest.mark.slow
def test_lines_written_during_the_analysis_are_read_later(data: Path) -> None:
    added = data / "jobs" / "train-2" / "added.log"
    # the real one, and while it reads, the job writes once more
    real = (
        f'{sys.executable} -m postmortem "$@"\ncode=$?\ncase "$*" in *train-2*) echo >"{added}" ;; esac\nexit $code\n'
    )
    slow = tool(data / "bin", "postmortem", f"#!/bin/sh\n{real}")
    look(data, PATH=f"{slow.parent}:{os.environ['PATH']}")
    before = reports(data)
    look(data, QUIET="0")
    assert reports(data)["train-2"] > before["train-2"]


@pytest.mark.slow
def test_only_one_instance_works(data: Path) -> None:
    (data / "postmortem").mkdir()
    with (data / "postmortem" / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert look(data) == (0, [], "") and not reports(data)
    assert look(data)[0] == 0 and reports(data)


@pytest.mark.slow
def test_failed_analysis_is_repeated_and_affects_no_other(data: Path) -> None:
    (data / "postmortem" / "train 1" / "report.html").mkdir(parents=True)  # it cannot be written
    code, _, errors = look(data)
    assert code == 1 and "train 1: postmortem ended with exit code" in errors
    assert (data / "postmortem" / "train-2" / "done").exists()
    (data / "postmortem" / "train 1" / "report.html").rmdir()
    assert look(data)[0] == 0 and reports(data).keys() == {"train 1", "train-2"}


def test_folder_without_a_log_is_read_once(data: Path) -> None:
    shutil.rmtree(data / "jobs")
    (data / "jobs" / "notes").mkdir(parents=True)
    (data / "jobs" / "notes" / "README.md").write_text("nothing\n")
    age(data / "jobs", HOUR)
    code, lines, _ = look(data)
    assert (code, lines) == (0, []) and (data / "postmortem" / "notes" / "done").exists()


@pytest.mark.slow
def test_your_command_gets_the_brief_of_each_failure(data: Path) -> None:
    brief = data / "brief"
    code, lines, _ = look(data, NOTIFY=f'echo "JOB is $JOB"; cat >>{brief}; exit 9')
    assert code == 0 and lines[1:] == ["JOB is train 1"]  # its exit code changes nothing
    assert json.loads(brief.read_text())["outcome"] == "incident"


def test_usage(tmp_path: Path) -> None:
    code, lines, errors = look(tmp_path)  # there are no jobs
    assert (code, lines) == (2, []) and errors.startswith("usage: ")


@pytest.mark.slow
def test_crontab_and_service_start_it(data: Path) -> None:
    (line,) = (text for text in (CRON / "crontab").read_text().splitlines() if re.match(r"[*\d]", text))
    found = re.fullmatch(r"((?:(?:\*|\d+)(?:/\d+)? ){5})([^%]+)", line)  # cron makes a line end of a percent sign
    assert found
    (service,) = re.findall(r"^ExecStart=(.+)$", (CRON / "postmortem.service").read_text(), re.MULTILINE)
    for command in (found[2], service):
        code, lines, _ = look(data, command)
        assert code == 0 and len(lines) == 1
        shutil.rmtree(data / "postmortem")


@needs("systemd-analyze")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    def verified(folder: Path) -> str:
        command = ["systemd-analyze", "verify", folder / "postmortem.timer", folder / "postmortem.service"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.stderr + f"exit code {done.returncode}" * (done.returncode != 0)

    assert verified(CRON) == ""
    for path in CRON.glob("postmortem.*"):
        (tmp_path / path.name).write_text(path.read_text().replace("Nice=", "Nicest="))
    assert "Unknown key" in verified(tmp_path)
