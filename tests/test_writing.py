"""Several outputs in one run: each format finds its file, none is dropped, a failure costs no other."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import SAMPLES, table
from postmortem.cli.app import run
from postmortem.cli.writing import Format, targets
from postmortem.errors import UsageError

LOGS = str(SAMPLES / "oom-on-second-host" / "logs")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("forms", "outputs", "expected"), table("writing")["files"])
def test_each_format_finds_its_file(
    forms: list[str], outputs: list[str], expected: list[list[str | None]], here: Path
) -> None:
    found = targets([Format(form) for form in forms], outputs, ["logs"])
    assert [[t.form.value, t.path and str(t.path)] for t in found] == expected


@pytest.mark.parametrize(("forms", "outputs", "error"), table("writing")["dropped"])
def test_no_output_is_dropped(forms: list[str], outputs: list[str], error: str, here: Path) -> None:
    with pytest.raises(UsageError, match=error) as raised:
        targets([Format(form) for form in forms], outputs, ["logs"])
    assert raised.value.hint


def test_brief_applies_to_json_and_markdown(here: Path) -> None:
    assert run(["analyze", LOGS, "-o", "r.html", "-o", "r.json", "-o", "r.md", "--brief"]) == 0
    assert json.loads((here / "r.json").read_text())["schema"] == "postmortem/brief/1"
    assert len((here / "r.md").read_text()) <= 3000 and "<!doctype html>" in (here / "r.html").read_text()
    assert run(["analyze", LOGS, "-o", "r.html", "--brief"]) == 2


def test_a_failed_write_costs_no_other_output(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """/dev/full is a disk without room."""
    assert run(["analyze", LOGS, "-f", "html", "-o", "/dev/full", "-f", "json", "-o", "r.json"]) == 1
    error = capfd.readouterr().err
    assert "could not write /dev/full: No space left on device" in error and "free space there" in error
    assert json.loads((here / "r.json").read_text())["schema"] == "postmortem/incident/1"
    assert "report   r.json" in error


def test_quiet_prints_only_errors(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", LOGS, "--quiet"]) == 0
    assert capfd.readouterr() == ("", "") and (here / "postmortem-report.html").exists()
    assert run(["analyze", "no/such/place", "--quiet"]) == 2
    assert "no such file" in capfd.readouterr().err


@pytest.mark.slow
def test_binary_data_is_not_written_to_a_terminal() -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "postmortem", "analyze", LOGS, "--format", "parquet"]
    done = subprocess.run(words, stdout=theirs, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 2 and b"--output events.parquet" in done.stderr
