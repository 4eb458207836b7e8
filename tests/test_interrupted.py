"""Killed, stopped, a full disk, files that change: the report is the old one or a complete new one, and neither
processes nor files are left behind."""

from __future__ import annotations

import base64
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, needs, python, solved
from postmortem import report
from postmortem.analyze import Options, analyze
from postmortem.errors import PostmortemError
from postmortem.system import output

SEED = int(os.environ.get("POSTMORTEM_SEED", "0")) or random.SystemRandom().randrange(1 << 24)
KILLS = int(os.environ.get("POSTMORTEM_KILLS", "20"))
GOOD = "".join(f"2026-11-20 21:{i // 60:02d}:{i % 60:02d},548 INFO [rank0] step {i} loss 2.0\n" for i in range(3000))
GOOD += "2026-11-20 21:59:59,548 INFO [rank0] training finished, exiting\n"
OLD = "<!doctype html>\nthe report of yesterday\n</html>\n"
CODES = {signal.SIGINT: {0, 130}, signal.SIGTERM: {0, 143, -15}, signal.SIGKILL: {0, -9}}


# ── killed ──────────────────────────────────────────────────────────────────────────────────────────────────


def logs_of(folder: Path, ranks: int = 4, text: str = GOOD) -> Path:
    folder.mkdir()
    for rank in range(ranks):
        (folder / f"rank{rank}.log").write_text(text.replace("rank0", f"rank{rank}"))
    return folder


def started(tag: str, logs: Path, target: Path, jobs: int) -> subprocess.Popen[str]:
    words = ["analyze", str(logs), "--output", str(target), "--jobs", str(jobs)]
    return subprocess.Popen(
        [sys.executable, "-m", "postmortem", *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env=os.environ | {"POSTMORTEM_TEST": tag}, start_new_session=True,
    )  # fmt: skip


def tagged(tag: str) -> list[int]:
    """The live processes of a run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"POSTMORTEM_TEST={tag}\0".encode() in (entry / "environ").read_bytes():
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                found += [int(entry.name)] if state != "Z" else []
        except OSError:
            continue
    return found


def still_running(tag: str) -> list[int]:
    """The processes of a run after ten seconds."""
    end = time.monotonic() + 10
    while (left := tagged(tag)) and time.monotonic() < end:
        time.sleep(0.05)
    return left


@pytest.mark.release
@pytest.mark.slow
def test_signals_at_random_moments(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    logs = logs_of(tmp_path / "logs")
    usual = _timed(logs, tmp_path)
    for number in range(KILLS):
        out = tmp_path / f"out{number}"
        out.mkdir()
        target = out / "r.html"
        old = rng.random() < 0.5
        if old:
            target.write_text(OLD)
        sent = rng.choice(list(CODES))
        jobs = rng.choice([1, 2, 2])
        wait = rng.uniform(0, usual * 1.1)
        tag = f"{os.getpid()}-{number}"
        where = f"seed {SEED}, number {number}: {sent.name} after {wait:.3f} s, jobs {jobs}"
        child = started(tag, logs, target, jobs)
        time.sleep(wait)
        child.send_signal(sent)
        _, errors = child.communicate(timeout=60)
        left = still_running(tag)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"{where}: processes {left} go on"
        # Python itself was only starting; workers that start find no parent any more
        early = (sent == signal.SIGINT and "in main" not in errors) or sent == signal.SIGKILL
        assert early or child.returncode in CODES[sent], f"{where}: {child.returncode}\n{errors}"
        assert early or "Traceback" not in errors, f"{where}\n{errors}"
        names = [path.name for path in out.iterdir()]
        assert names in ([], ["r.html"]) and (names or not old), f"{where}: {names}"
        if names:
            page = target.read_text()
            whole = page.startswith("<!doctype html>") and page.rstrip().endswith("</html>")
            assert (old and page == OLD) or (whole and "postmortem-incident" in page), where
        shutil.rmtree(out)


def test_a_signal_while_a_class_is_made_keeps_its_exit_code(tmp_path: Path) -> None:
    """A class is made by `exec` of a text, and Python notes an interrupt in one as its own end."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, signal, importlib.abc\n"
        "class Finder(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'postmortem.analyze':\n"
        "            exec('os.kill(os.getpid(), signal.SIGTERM); import time; time.sleep(9)')\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    words = ["analyze", str(logs_of(tmp_path / "logs", 1)), "--output", str(tmp_path / "r.html")]
    done = python("-m", "postmortem", *words, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert done.returncode == 143 and not done.stderr


def test_a_process_killed_while_writing_leaves_nothing(tmp_path: Path) -> None:
    """The report once had a name of its own beside its target until it was whole."""
    code = (
        "import os, sys, pathlib; from postmortem.system import output\n"
        "os.fsync = lambda _: os.kill(os.getpid(), 9)\n"
        "output.write_file(pathlib.Path(sys.argv[1]), 'new' * 9999)"
    )
    for files in ({}, {"r.html": OLD}):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        done = python("-c", code, tmp_path / "r.html")
        assert done.returncode == -signal.SIGKILL
        assert {p.name: p.read_text() for p in tmp_path.iterdir()} == files


def _timed(logs: Path, folder: Path) -> float:
    start = time.monotonic()
    child = started("warm", logs, folder / "warm.html", 2)
    child.communicate(timeout=120)
    assert child.returncode == 0
    start = time.monotonic()
    started("warm", logs, folder / "warm.html", 2).communicate(timeout=120)
    return time.monotonic() - start


# ── a full disk ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Make file systems of so many kilobytes."""
    made: list[Path] = []

    def mount(kilobytes: int) -> Path:
        place = tmp_path / f"disk{len(made)}"
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("no tmpfs can be mounted here")
        made.append(place)
        return place

    yield mount
    for place in made:
        subprocess.run(["umount", str(place)], check=False, capture_output=True)


@needs("root", "mount")
@pytest.mark.parametrize("form", ["html", pytest.param("ndjson", marks=pytest.mark.slow)])
def test_a_disk_that_is_full_at_any_byte(form: str, small_disk: Callable[[int], Path], tmp_path: Path) -> None:
    """The disk has room for more and more of the report; until it fits, the old one stays."""
    logs = logs_of(tmp_path / "logs", 2)
    text = getattr(report, f"render_{form}")(analyze([str(logs)]))
    fitted = 0
    pages = len(text.encode()) // 4096
    for size in (8, 12, *range(16, pages * 4 + 40, max(4, pages // 8 * 4))):
        place = small_disk(size)
        target = place / f"r.{form}"
        target.write_text(OLD)
        try:
            output.write_file(target, text)
            fitted += 1
            assert target.read_text() == text
        except PostmortemError as error:
            assert "No space left on device" in error.message and str(target) in error.message and error.hint
            assert target.read_text() == OLD
        assert [p.name for p in place.iterdir()] == [target.name]
    assert fitted


@pytest.mark.release
@needs("root", "mount")
@pytest.mark.slow
def test_a_full_disk_everywhere(small_disk: Callable[[int], Path], tmp_path: Path) -> None:
    """The cache and temporary files on a full disk, and the output too: one sentence."""
    logs = logs_of(tmp_path / "logs", 2)
    for room in (4, 1024):
        disk = small_disk(room)
        (disk / "filler").write_bytes(b"x" * 4096) if room == 4 else None
        environment = {"XDG_CACHE_HOME": str(disk / "cache"), "TMPDIR": str(disk)}
        for target, code in ((tmp_path / "r.html", 0), (disk / "r.html", 1)):
            words = ["analyze", str(logs), "--output", str(target), "--jobs", "2"]
            done = python("-m", "postmortem", *words, env=environment)
            assert done.returncode in (code, 0) and "Traceback" not in done.stderr, done.stderr
            assert (done.returncode == 0) == target.exists()
            assert done.returncode == 0 or "No space left on device" in done.stderr
            assert not list(disk.rglob("*.tmp")), "an incomplete file is removed"


# ── files in flux ───────────────────────────────────────────────────────────────────────────────────────────


def _grow(path: Path) -> None:
    with path.open("a") as file:
        file.write("2026-11-20 22:00:00,548 INFO [rank1] later\n" * 100)


def _rotate(path: Path) -> None:
    path.rename(path.with_name("rank1.log.1"))
    path.write_text("2026-11-20 22:00:00,548 INFO [rank1] step 1 loss 2.0\n")


def _becomes(make: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda path: (path.unlink(), make(path))


FLUX: dict[str, Callable[[Path], object]] = {
    "grows": _grow,
    "shrinks": lambda path: os.truncate(path, 1000),
    "is emptied": lambda path: os.truncate(path, 0),
    "vanishes": lambda path: path.unlink(),
    "rotates": _rotate,
    "becomes a folder": _becomes(Path.mkdir),
    "becomes a FIFO": _becomes(os.mkfifo),
    "becomes a link": _becomes(lambda path: path.symlink_to("/etc/passwd")),
    "loses its rights": lambda path: path.chmod(0),
}
MOMENTS = ("scandir", "lstat", "open", "fstat", "pread", "close", "lseek")
SHORT = GOOD[-3000:].partition("\n")[2]
QUICK = ("shrinks", "rotates")


@pytest.mark.parametrize("change", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in FLUX])
def test_a_file_changes_at_any_moment(change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after each call on it: the run ends, the ledger adds up and has the losses."""
    for moment in MOMENTS:
        for at in range(1, 12):
            logs = logs_of(tmp_path / f"{moment}{at}", 2, SHORT)
            changed = logs / "rank1.log"
            with monkeypatch.context() as patch:
                hit = _at(patch, moment, at, logs, lambda path=changed: FLUX[change](path))
                try:
                    document = analyze([str(logs)], Options(workers=1)).document
                except PostmortemError:  # of the folder itself
                    assert hit and moment in ("scandir", "lstat")
                    shutil.rmtree(logs)
                    continue
            ledger = document["ledger"]
            assert ledger["bytes"] == ledger["scanned"] + sum(row["bytes"] for row in ledger["skipped"]), (moment, at)
            assert not any("internal error" in row["reason"] for row in ledger["skipped"]), ledger
            lost = [row for row in ledger["skipped"] if row.get("lost")]
            assert not lost or document["verdict"]["outcome"] != "healthy"
            shutil.rmtree(logs)
            if not hit:
                break


def _at(patch: pytest.MonkeyPatch, name: str, at: int, folder: Path, act: Callable[[], object]) -> list[int]:
    """Act before the at-th call of a function of `os` on the folder. The list is empty until then."""
    real: Callable[..., Any] = getattr(os, name)
    hit: list[int] = []
    calls = [0]

    def call(first: Any, *args: Any, **kwargs: Any) -> Any:
        where = str(Path(f"/proc/self/fd/{first}").readlink()) if isinstance(first, int) else str(first)
        if where.startswith(str(folder)) and not hit:
            calls[0] += 1
            if calls[0] == at:
                hit.append(at)
                act()
        return real(first, *args, **kwargs)

    patch.setattr(os, name, call)
    return hit


# ── the same bytes everywhere ───────────────────────────────────────────────────────────────────────────────

OOM, HEALTHY = (ROOT / "sample_logs" / name / "logs" for name in ("host-oom-cache-of-rank-2", "healthy-two-hosts"))
PLACES = [
    {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "0"},
    {"TZ": "Pacific/Kiritimati", "LC_ALL": "tr_TR.UTF-8", "PYTHONHASHSEED": "1", "LANG": "tr_TR.UTF-8"},
    {"TZ": "America/St_Johns", "LC_ALL": "POSIX", "PYTHONHASHSEED": "77", "PYTHONUTF8": "0", "COLUMNS": "20"},
]
CHILD = """
import sys
from postmortem import scan
from postmortem.cli.app import run
jobs, engine, target, other, *paths = sys.argv[1:]
if engine == "re2":
    real = scan.Engine.compile.__func__
    scan.Engine.compile = classmethod(lambda cls, signatures, **more: real(cls, signatures, **more | {"prefer": "re2"}))
for name, logs in (("failed", paths), ("healthy", [other])):
    outputs = [word for form in ("json", "html", "md") for word in ("--output", f"{target}/{name}.{form}")]
    assert run(["analyze", *logs, "--jobs", jobs, "--quiet", *outputs]) == 0
"""


def pythons() -> list[str]:
    """This Python, and others that $POSTMORTEM_PYTHONS names, with what the project needs."""
    return [sys.executable, *filter(None, os.environ.get("POSTMORTEM_PYTHONS", "").split(":"))]


WAYS = [(1, "hyperscan"), (1, "re2"), (2, "hyperscan"), (3, "hyperscan")]
ALL = pytest.param(PLACES, WAYS, id="all", marks=[pytest.mark.slow, pytest.mark.release])


@pytest.mark.parametrize(
    ("places", "ways"), [pytest.param(PLACES[1:], WAYS[:1], id="two", marks=pytest.mark.slow), ALL]
)
def test_the_matrix_of_places_gives_the_same_bytes(places: list[dict[str, str]], ways: Any, tmp_path: Path) -> None:
    """Jobs, engine, locale, time zone, seed of hashes, order of the arguments, version of Python."""
    folders = sorted(map(str, OOM.iterdir()))
    written: dict[str, dict[str, bytes]] = {}
    for interpreter, (jobs, engine), (number, place) in itertools.product(pythons(), ways, enumerate(places)):
        order = random.Random(number).sample(folders, len(folders))
        target = tmp_path / str(len(written))
        target.mkdir()
        done = subprocess.run(
            [interpreter, "-c", CHILD, str(jobs), engine, str(target), str(HEALTHY), *order],
            env=os.environ | {"PYTHONPATH": str(ROOT)} | place, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        written[f"{interpreter} {jobs} {engine} {place}"] = {path.name: path.read_bytes() for path in target.iterdir()}
    first = next(iter(written.values()))
    assert len(first) == 6 and not [name for name, files in written.items() if files != first]


def test_the_packed_events_do_not_depend_on_the_python() -> None:
    """Python 3.13 left the system's number out of the head of gzip, and the page had other bytes."""
    page = report.render_html(solved(OOM.parent))
    packed = re.search(r'id="postmortem-events">([^<]+)<', page)
    assert packed and base64.b64decode(packed[1])[:10] == b"\x1f\x8b\x08" + bytes(5) + b"\x02\x03"
