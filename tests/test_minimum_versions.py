"""The lowest versions that pyproject.toml allows work, in an environment of their own."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from conftest import ROOT, SAMPLES, needs, python, pythons, solved
from postmortem.analyze import analyze

LOCK = ROOT / "requirements-min.lock"
OOM, HANG = SAMPLES / "host-oom-cache-of-rank-2", SAMPLES / "skipped-collective"

pytestmark = [pytest.mark.slow, pytest.mark.release, needs("index", "python3.11 with venv")]


@pytest.fixture(scope="module")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `venv`: these versions, each file by its hash, and the wheel."""
    home = tmp_path_factory.mktemp("lowest")
    lowest = pythons()["3.11"]
    subprocess.run([lowest, "-m", "venv", "--without-pip", home / "venv"], check=True, timeout=60)
    pip = [sys.executable, "-m", "pip", "--python", home / "venv" / "bin" / "python", "install", "--quiet"]
    locked = ["--require-hashes", "--only-binary", ":all:", "--requirement", LOCK]
    for words in (locked, ["--no-deps", wheel]):
        subprocess.run([*pip, *words], check=True, timeout=300)
    return home


def run(home: Path, *command: str | Path) -> str:
    env = os.environ | {"XDG_CACHE_HOME": str(home / "cache")}
    words = [home / "venv" / "bin" / command[0], *command[1:]]
    done = subprocess.run(words, cwd=home, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def analyzed(home: Path, logs: Path, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        run(home, "postmortem", "analyze", logs, "--format", "json", "--output", "-", *options)
    )
    return found


def test_environment_has_these_versions_and_no_others(home: Path) -> None:
    place = home / "venv" / "bin" / "python"
    listed = python("-m", "pip", "--python", place, "list", "--format", "json", check=True).stdout
    names = {re.sub(r"[-_.]+", "-", row["name"]).lower(): row["version"] for row in json.loads(listed)}
    names.pop("torch-postmortem")
    assert names == dict(re.findall(r"(?m)^([a-z0-9.-]+)==(\S+)", LOCK.read_text()))


@pytest.mark.parametrize("case", [OOM, HANG], ids=lambda case: case.name)
def test_verdict_is_the_same(home: Path, case: Path) -> None:
    assert analyzed(home, case / "logs")["verdict"] == json.loads(json.dumps(solved(case).document["verdict"]))


def test_packed_logs_are_read_to_their_ends(home: Path, tmp_path: Path) -> None:
    """isal, zstandard and pebble: a library that holds back the end of a log hides the root cause."""
    line = b"2026-11-20T12:00:%02d.%03d [rank0] step %d loss %.9f\n"
    text = b"".join(line % (i // 1000 % 60, i % 1000, i, 7 / (i + 1)) for i in range(20_000))
    last = b"2026-11-20T12:01:00.000 [rank0] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    (tmp_path / "rank0.log.gz").write_bytes(gzip.compress(text + last, mtime=0))
    (tmp_path / "rank1.log.zst").write_bytes(zstandard.compress((text + last).replace(b"[rank0]", b"[rank1]")))
    with zipfile.ZipFile(tmp_path / "more.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for rank in range(2, 6):
            steps = text[: len(text) // rank].replace(b"[rank0]", b"[rank%d]" % rank)
            archive.writestr(f"rank{rank}.log", steps)
    document = analyzed(home, tmp_path, "--jobs", "2")
    assert not [row for row in document["ledger"]["skipped"] if row.get("lost")]
    here = analyze([str(tmp_path)]).document
    assert document["ledger"] == here["ledger"] and document["verdict"] == json.loads(json.dumps(here["verdict"]))


def test_report_help_and_patterns(home: Path) -> None:
    run(home, "postmortem", "analyze", OOM / "logs")
    assert "<html" in (home / "postmortem-report.html").read_text()
    assert "--anonymize-map" in run(home, "postmortem", "analyze", "--help")
    assert "kernel-oom-killed-process" in run(home, "postmortem", "patterns", "list")


def test_both_engines_find_the_same_examples(home: Path) -> None:
    code = """
from postmortem.library import load
from postmortem.scan import Engine
library = load()
texts = [e.text.encode() for p in library.patterns.values() for e in p.matches]
found = []
for name in ("hyperscan", "re2"):
    engine = Engine.compile(library.signatures(), prefer=name, cache=False)
    assert engine.name == name
    found.append([{hit & 0xFFFF for hit in engine.find(text)} for text in texts])
print(found[0] == found[1], sum(map(bool, found[0])) > 300)
"""
    assert run(home, "python", "-c", code).split() == ["True", "True"]
