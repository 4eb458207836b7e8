"""The wheel, installed away from the checkout and run there."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from conftest import ROOT, SAMPLES

pytestmark = pytest.mark.slow


def run(home: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | {
        "XDG_CONFIG_HOME": str(home / "config")
    }
    command = [home / "venv" / "bin" / "postmortem", *arguments]
    return subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=120)


def test_wheel_has_the_data_files(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("patterns", "schemas", "reports/templates", "reports/styles", "reports/scripts"):
        paths = [path for path in (ROOT / folder).rglob("*.*") if path.is_file() and "__pycache__" not in path.parts]
        if folder == "reports/scripts":
            paths = [path for path in paths if path.name in ("report.js", "theme.js")]
        assert paths and {f"postmortem/_data/{path.relative_to(ROOT)}" for path in paths} <= names
    assert "postmortem/py.typed" in names  # type checkers read the types of a package that has it
    assert not [n for n in names if n.startswith(("tests/", "sample_logs/")) or "reports/examples" in n]


def test_installed_command_works(installed: Path) -> None:
    listed = run(installed, "patterns", "list")
    assert listed.returncode == 0 and len(listed.stdout.splitlines()) >= 80, listed.stderr
    shown = run(installed, "patterns", "show", "kernel-oom-killed-process")
    assert str(installed) in shown.stdout.replace(str(installed.resolve()), str(installed))
    done = run(installed, "analyze", SAMPLES / "host-oom-cache-of-rank-2" / "logs")
    assert done.returncode == 0, done.stderr
    assert "<html" in (installed / "postmortem-report.html").read_text()
    for name in ("incident", "brief", "event"):
        schema = run(installed, "schema", name)
        assert schema.stdout == (ROOT / "schemas" / f"{name}-1.schema.json").read_text(), schema.stderr
    written = run(installed, "replay", "slow-rank", "--write", "slow.py")
    assert written.returncode == 0 and "def slow_rank" in (installed / "slow.py").read_text(), written.stderr
    made = run(installed, "patterns", "new", "mine/it-broke", "--from", "it broke")  # the README's commands
    assert made.returncode == 0, made.stderr
    assert (installed / "config" / "postmortem" / "patterns" / "mine" / "it-broke.yaml").is_file()
    for command in ("lint", "test"):
        named = run(installed, "patterns", command, "it-broke")
        assert named.returncode == 1 and "mine/it-broke.yaml" in named.stdout, named.stderr


def test_man_finds_the_page_where_pip_puts_it(installed: Path) -> None:
    """`man` looks beside each folder of the PATH: share/man next to bin."""
    page = installed / "venv" / "share" / "man" / "man1" / "postmortem.1"
    assert page.read_text() == (ROOT / "docs" / "reference" / "postmortem.1").read_text()


def test_completion_knows_the_installed_patterns(installed: Path) -> None:
    assert "_POSTMORTEM_COMPLETE=complete_bash" in run(installed, "completion", "bash").stdout
    given = {"_POSTMORTEM_COMPLETE": "complete_bash", "COMP_WORDS": "postmortem explain kernel-oom", "COMP_CWORD": "2"}
    command = [installed / "venv" / "bin" / "postmortem"]
    done = subprocess.run(command, env={**os.environ, **given}, capture_output=True, text=True)
    assert "kernel-oom-killed-process" in done.stdout, done.stderr
