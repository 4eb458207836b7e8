"""The commands of the README, the tutorial and the how-tos, run from the wheel in an environment of its own.

A block of commands is indented, or fenced as `sh` or `console`. A comment above it may have a reason not to run it, or
the exit code of each of its lines:

    <!-- not run: it needs a cluster -->
    <!-- exit 1: a draft -->
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
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
    code: int
    reason: str  # why it is not run; empty where it is


def blocks() -> Iterator[Block]:
    for document in DOCUMENTS:
        for found in BLOCK.finditer(document.read_text()):
            text, kind = found["indented"] or found["fenced"], found["kind"]
            lines = [line.strip() for line in text.splitlines()]
            if kind == "console":
                lines = [line[2:] for line in lines if line.startswith("$ ")]
            if found["indented"] or kind in ("sh", "console"):
                mark = found["mark"] or "exit 0"
                reason = found["reason"] if mark == "not run" else ""
                yield Block(document, lines, 0 if reason else int(mark.split()[1]), reason)


BLOCKS = list(blocks())


def test_most_commands_are_run() -> None:
    left_out = [block for block in BLOCKS if block.reason]
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
    typed = [
        (line, block.code)
        for block in BLOCKS
        if block.document == document and not block.reason
        for line in block.lines
    ]
    script = "\n".join(f'{line}\necho "=== {n} $?"' for n, (line, _) in enumerate(typed))
    done = run(installed, folder, script, document.stem)
    codes = [int(code) for code in re.findall(r"^=== \d+ (\d+)$", done.stdout, re.MULTILINE)]
    wrong = [(line, code) for (line, wanted), code in zip(typed, codes, strict=True) if code != wanted]
    assert not wrong and "Traceback" not in done.stderr, done.stderr[-4000:]
