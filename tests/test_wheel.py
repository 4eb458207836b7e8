"""The wheel as its users get it: built, installed away from the checkout, and run there."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from conftest import ROOT, SAMPLES

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel alone; the third-party packages are lent by this one's."""
    home = tmp_path_factory.mktemp("elsewhere")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "venv"], check=True)
    python = home / "venv" / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel],
        check=True,
        timeout=300,
    )
    site = next((home / "venv" / "lib").glob("python*/site-packages"))
    lent = site / "lent"
    lent.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "postmortem" not in entry.name and not entry.name.startswith("__"):
            (lent / entry.name).symlink_to(entry)
    (site / "lent.pth").write_text(f"{lent}\n")
    return home


def run(home: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    command = [home / "venv" / "bin" / "postmortem", *arguments]
    return subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=120)


def test_the_wheel_holds_what_the_program_reads_at_run_time(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in (
        "patterns",
        "schemas",
        "reports/templates",
        "reports/styles",
        "reports/scripts/report.js",
        "reports/scripts/theme.js",
    ):
        inside = (ROOT / folder).rglob("*") if (ROOT / folder).is_dir() else [ROOT / folder]
        for path in inside:
            if path.is_file() and "__pycache__" not in path.parts:
                assert f"postmortem/_data/{path.relative_to(ROOT)}" in names
    assert "postmortem/py.typed" in names  # type checkers read the types of a package that has it
    assert not [n for n in names if n.startswith(("tests/", "sample_logs/")) or "reports/examples" in n]


def test_the_installed_command_finds_its_patterns(installed: Path) -> None:
    listed = run(installed, "patterns", "list")
    assert listed.returncode == 0, listed.stderr
    assert len(listed.stdout.splitlines()) >= 80
    shown = run(installed, "patterns", "show", "kernel-oom-killed-process")
    assert str(installed) in shown.stdout.replace(str(installed.resolve()), str(installed))


def test_the_installed_command_analyses_and_reports(installed: Path) -> None:
    incident = next(p for p in sorted(SAMPLES.iterdir()) if (p / "logs").is_dir() and "healthy" not in p.name)
    done = run(installed, "analyze", incident / "logs")
    assert done.returncode == 0, done.stderr
    assert "<html" in (installed / "postmortem-report.html").read_text()


def test_the_installed_command_prints_the_schemas(installed: Path) -> None:
    for name in ("incident", "brief", "event"):
        shown = run(installed, "schema", name)
        assert shown.stdout == (ROOT / "schemas" / f"{name}-1.schema.json").read_text(), shown.stderr


def test_man_finds_the_page_where_pip_puts_it(installed: Path) -> None:
    """`man` looks beside each folder of the PATH: share/man next to bin."""
    page = installed / "venv" / "share" / "man" / "man1" / "postmortem.1"
    assert page.read_text() == (ROOT / "docs" / "reference" / "postmortem.1").read_text()


def test_the_installed_command_completes_what_is_installed(installed: Path) -> None:
    """The script asks the command at TAB; the names of patterns come from the wheel."""
    assert "_POSTMORTEM_COMPLETE=complete_bash" in run(installed, "completion", "bash").stdout
    asked = {"_POSTMORTEM_COMPLETE": "complete_bash", "COMP_WORDS": "postmortem explain kernel-oom", "COMP_CWORD": "2"}
    done = subprocess.run(
        [installed / "venv" / "bin" / "postmortem"], env={**os.environ, **asked}, capture_output=True, text=True
    )
    assert "kernel-oom-killed-process" in done.stdout, done.stderr


def test_the_installed_library_is_no_place_for_new_patterns(installed: Path) -> None:
    done = run(installed, "patterns", "new", "mine/it-broke", "--from", "it broke")
    assert done.returncode == 2
    assert "--patterns DIR" in done.stderr
