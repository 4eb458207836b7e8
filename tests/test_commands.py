"""The wheel, and from it, in an environment of its own, the commands of the README, the tutorial and the how-tos.

A block of commands is indented, or fenced as `sh`; one fenced as `console` has their output, too. A comment above it may
have a reason not to run it, or the exit code of each of its lines:

    <!-- not run: it needs a cluster -->
    <!-- exit 1: a draft -->
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from conftest import ROOT, SAMPLES

DOCUMENTS = [ROOT / "README.md", ROOT / "docs" / "tutorial.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
BLOCK = re.compile(
    r"(?:^[ ]*<!-- (?P<mark>not run|exit \d+): (?P<reason>[^>]+) -->\n\n?)?"
    r"(?:^```(?P<kind>\w*)\n(?P<fenced>.*?)^```$|(?<=\n\n)(?P<indented>(?:^(?:    )+\S[^\n]*\n?)+))",
    re.DOTALL | re.MULTILINE,
)
MOST_LEFT_OUT = 22


class Block(NamedTuple):
    document: Path
    lines: list[str]
    quoted: list[list[str]]  # of each line, what it prints
    code: int
    reason: str  # why it is not run; empty where it is


def blocks() -> Iterator[Block]:
    for document in DOCUMENTS:
        for found in BLOCK.finditer(document.read_text()):
            text, kind = found["indented"] or found["fenced"], found["kind"]
            lines, quoted = [line.strip() for line in text.splitlines()], []
            if kind == "console":
                quoted = [part.splitlines() for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]
                lines = [line for line, *_ in quoted]
                quoted = [[line.rstrip() for line in part[1:] if line.strip() not in ("", "…")] for part in quoted]
            if found["indented"] or kind in ("sh", "console"):
                mark = found["mark"] or "exit 0"
                reason = found["reason"] if mark == "not run" else ""
                yield Block(document, lines, quoted or [[]] * len(lines), 0 if reason else int(mark.split()[1]), reason)


BLOCKS = list(blocks())


def test_most_commands_are_run() -> None:
    left_out = [block for block in BLOCKS if block.reason]
    assert sum(len(lines) for block in BLOCKS for lines in block.quoted if not block.reason) > 30
    assert len(left_out) <= MOST_LEFT_OUT and sum(len(block.lines) for block in BLOCKS if not block.reason) >= 45
    assert {block.document for block in BLOCKS if not block.reason} >= {*DOCUMENTS[:2]}


@pytest.fixture(scope="module")
def folder(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the documents name."""
    home = tmp_path_factory.mktemp("reader")
    (home / "sample_logs").symlink_to(SAMPLES)
    logs = {"logs": "oom-on-second-host", "LOGS": "oom-on-second-host", "good-run": "healthy-torchrun"}
    for name, case in {**logs, "bad-run": "skipped-collective"}.items():
        shutil.copytree(SAMPLES / case / "logs", home / name)
    for path in home.rglob("*"):  # a job that is over, for `watch`
        os.utime(path, (1.7e9, 1.7e9), follow_symlinks=False)
    (home / "rank3.log").write_text("step\n" * 117 + "switch sw-17 is not reachable\n")
    shutil.copy(ROOT / "recipes" / "notify" / "notify.py", home)
    archive = "import pathlib, tarfile, zstandard\nwith zstandard.open('bad-run.tar.zst', 'wb') as out, "
    archive += "tarfile.open(fileobj=out, mode='w|') as tar: tar.add('bad-run')"
    subprocess.run([installed / "venv" / "bin" / "python", "-c", archive], cwd=home, check=True)
    prepared = """
postmortem analyze good-run -o last-week.json -q
postmortem run --keep always -- true && mv postmortem-runs/* postmortem-runs/20261123-070512-x7k2
"""
    assert run(installed, home, prepared).returncode == 0
    return home


def run(installed: Path, folder: Path, script: str, reader: str = "reader") -> subprocess.CompletedProcess[str]:
    """Run a script as a reader does who has nothing but the wheel, with a home of their own."""
    home = folder / f"home-of-{reader}"
    home.mkdir(exist_ok=True)
    env = {"PATH": f"{installed / 'venv' / 'bin'}:/usr/bin:/bin", "HOME": str(home), "LC_ALL": "C.UTF-8"}
    env["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")  # the compiled patterns
    return subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=900,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "document",
    [d for d in DOCUMENTS if any(b.document == d and not b.reason for b in BLOCKS)],
    ids=lambda path: path.stem,
)
def test_each_command_ends_as_documented(document: Path, installed: Path, folder: Path) -> None:
    """In one shell, as a reader types them; the quoted lines are printed in their order."""
    typed = [
        (line, quoted, block.code)
        for block in BLOCKS
        if block.document == document and not block.reason
        for line, quoted in zip(block.lines, block.quoted, strict=True)
    ]
    streams = "exec 2>&1\n" if any(quoted for _, quoted, _ in typed) else ""
    script = streams + "\n".join(f'{line}\necho "=== {n} $?"' for n, (line, *_) in enumerate(typed))
    done = run(installed, folder, script, document.stem)
    *printed, _ = re.split(r"^=== \d+ (\d+)\n", done.stdout, flags=re.MULTILINE)
    for (line, quoted, code), shown, ended in zip(typed, printed[::2], printed[1::2], strict=True):
        today = iter([text.rstrip() for text in shown.splitlines()])
        stale = [text for text in quoted if text not in today]  # `in` goes on behind the last one found
        assert not stale and int(ended) == code, f"{line} ends with {ended} and prints\n{shown}\n{done.stderr[-4000:]}"
    assert "Traceback" not in done.stderr, done.stderr[-4000:]


# ── the wheel ───────────────────────────────────────────────────────────────────────────────────────────────


def command(home: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_CONFIG_HOME": str(home / "config")}
    command = [home / "venv" / "bin" / "postmortem", *arguments]
    return subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_wheel_has_the_data_files(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("patterns", "schemas", "reports/templates", "reports/styles", "reports/scripts"):
        paths = [path for path in (ROOT / folder).rglob("*.*") if path.is_file() and "__pycache__" not in path.parts]
        if folder == "reports/scripts":
            paths = [path for path in paths if path.name in ("report.js", "theme.js")]
        assert paths and {f"postmortem/_data/{path.relative_to(ROOT)}" for path in paths} <= names
    assert "postmortem/py.typed" in names  # type checkers read the types of a package that has it
    assert not [n for n in names if n.startswith(("tests/", "sample_logs/")) or "reports/examples" in n]


@pytest.mark.slow
def test_installed_command_works(installed: Path) -> None:
    listed = command(installed, "patterns", "list")
    assert listed.returncode == 0 and len(listed.stdout.splitlines()) >= 80, listed.stderr
    shown = command(installed, "patterns", "show", "kernel-oom-killed-process")
    assert str(installed) in shown.stdout.replace(str(installed.resolve()), str(installed))
    done = command(installed, "analyze", SAMPLES / "host-oom-cache-of-rank-2" / "logs")
    assert done.returncode == 0, done.stderr
    assert "<html" in (installed / "postmortem-report.html").read_text()
    for name in ("incident", "brief", "event"):
        schema = command(installed, "schema", name)
        assert schema.stdout == (ROOT / "schemas" / f"{name}-1.schema.json").read_text(), schema.stderr
    written = command(installed, "replay", "slow-rank", "--write", "slow.py")
    assert written.returncode == 0 and "def slow_rank" in (installed / "slow.py").read_text(), written.stderr


@pytest.mark.slow
def test_man_finds_the_page_where_pip_puts_it(installed: Path) -> None:
    """`man` looks beside each folder of the PATH: share/man next to bin."""
    page = installed / "venv" / "share" / "man" / "man1" / "postmortem.1"
    assert page.read_text() == (ROOT / "docs" / "reference" / "postmortem.1").read_text()


@pytest.mark.slow
def test_completion_knows_the_installed_patterns(installed: Path) -> None:
    assert "_POSTMORTEM_COMPLETE=complete_bash" in command(installed, "completion", "bash").stdout
    given = {"_POSTMORTEM_COMPLETE": "complete_bash", "COMP_WORDS": "postmortem explain kernel-oom", "COMP_CWORD": "2"}
    program = installed / "venv" / "bin" / "postmortem"
    done = subprocess.run([program], env={**os.environ, **given}, capture_output=True, text=True)
    assert "kernel-oom-killed-process" in done.stdout, done.stderr
