"""As SQLite tests itself: the first system call fails, then the second, … until a run completes. The calls are those
of C below Python, of this process and of its workers, on logs, outputs and caches."""

from __future__ import annotations

import errno
import json
import mmap
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import GOOD, ROOT, needs

C = Path(__file__).parent / "system" / "failing.c"
DOCUMENTED = {0, 1, 2, 3, 10, 11, 12}
OLD = "the report of yesterday\n"


class Faults:
    """A process under the failing library, and what fails in it."""

    STATE = struct.Struct("5q16s512s")

    def __init__(self, folder: Path, *kind: str) -> None:
        self.folder = folder
        library = folder / "failing.so"
        build = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(C), "-ldl", "-w"]
        subprocess.run(build, check=True, timeout=120)
        state = folder / "state"
        state.write_bytes(bytes(self.STATE.size))
        with state.open("r+b") as file:
            self.state = mmap.mmap(file.fileno(), self.STATE.size)
        (folder / "t").mkdir()
        environment = os.environ | {
            "LD_PRELOAD": str(library), "FAULT_STATE": str(state), "PYTHONPATH": str(ROOT),
            "XDG_CACHE_HOME": str(folder / "t" / "cache"), "TMPDIR": str(folder / "t"),
        }  # fmt: skip
        self.server = subprocess.Popen(
            [sys.executable, str(C.parent / "server.py"), *kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment, cwd=folder,
        )  # fmt: skip
        self._answer()

    def _answer(self) -> Any:
        assert self.server.stdout
        return json.loads(self.server.stdout.readline())["code"]

    def run(
        self, words: list[str], name: str = "", at: int = 0, error: int = 0, lasting: bool = False, below: str = "t"
    ) -> tuple[int, str, bool]:
        """The exit code, standard error, and whether anything failed."""
        assert self.server.stdin
        self.state[:] = self.STATE.pack(0, at, error, lasting, 0, name.encode(), str(self.folder / below).encode())
        err = self.folder / "err"
        order = {"words": words, "out": str(self.folder / "out"), "err": str(err)}
        self.server.stdin.write(json.dumps(order) + "\n")
        self.server.stdin.flush()
        code = self._answer()
        hits = self.STATE.unpack(self.state[:])[4]
        self.state[:] = bytes(self.STATE.size)
        return code, err.read_text(), hits > 0

    def end(self) -> None:
        assert self.server.stdin
        self.server.stdin.close()
        self.server.wait(30)


@contextmanager
def made_faults(folder: Path, *kind: str) -> Iterator[Faults]:
    made = Faults(folder, *kind)
    logs = made.folder / "t" / "logs"
    logs.mkdir()
    for rank in range(2):
        (logs / f"rank{rank}.log").write_text(GOOD.replace("rank0", f"rank{rank}"))
    (made.folder / "t" / "out").mkdir()
    yield made
    made.end()


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    with made_faults(tmp_path_factory.mktemp("faults"), "warm") as made:
        yield made


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    """Each run reads the cache on disk, and fills it."""
    with made_faults(tmp_path_factory.mktemp("cold")) as made:
        yield made


def words(faults: Faults, jobs: int) -> list[str]:
    there = faults.folder / "t"
    target = str(there / "out" / "r.json")
    return ["analyze", str(there / "logs"), "--output", target, "--exit-code", "--jobs", str(jobs)]


def whole(faults: Faults, jobs: int) -> dict[str, Any]:
    """The document of a run in which nothing fails; it warms the caches too."""
    code, errors, _ = faults.run(words(faults, jobs))
    assert code == 0, errors
    document: dict[str, Any] = json.loads((faults.folder / "t" / "out" / "r.json").read_text())
    assert document["verdict"]["outcome"] == "healthy"
    return document


def series(
    faults: Faults,
    name: str,
    error: int,
    jobs: int = 1,
    lasting: bool = False,
    step: int = 1,
    below: str = "t",
    most: int = 2000,
) -> int:
    """Fail every call in turn, and check the outputs. Return the number of runs."""
    usual = whole(faults, jobs)
    out = faults.folder / "t" / "out"
    target = out / "r.json"
    for at in range(1, most, step):
        target.write_text(OLD)
        code, errors, hit = faults.run(words(faults, jobs), name, at, error, lasting, below)
        where = f"{name} {at} {os.strerror(error)} (jobs {jobs}{', lasting' if lasting else ''}): {code}\n{errors}"
        assert code in DOCUMENTED and "Traceback" not in errors and "internal error" not in errors, where
        text = target.read_text()
        if code in (0, 10, 11, 12):
            document = json.loads(text)
            ledger = document["ledger"]
            assert ledger["bytes"] == ledger["scanned"] + sum(row["bytes"] for row in ledger["skipped"]), where
            assert not any("internal error" in row["reason"] for row in ledger["skipped"]), where + str(ledger)
            assert code != 0 or document == usual, where
        else:
            assert text == OLD and errors.startswith("postmortem: ") and errors.count("\n") <= 2, where
        assert [p.name for p in out.iterdir() if name != "unlink"] in ([], ["r.json"]), where
        if not hit:
            return at
    return most


CALLS = [
    ("open", errno.EIO), ("open", errno.EMFILE), ("open", errno.EACCES), ("read", errno.EIO), ("read", errno.ESTALE), ("fstat", errno.EIO), ("stat", errno.EACCES),
    ("write", errno.ENOSPC), ("write", errno.EIO), ("write", errno.EDQUOT), ("fsync", errno.EIO), ("fsync", errno.ENOSPC), ("rename", errno.EACCES), ("rename", errno.EXDEV),
    ("close", errno.EIO), ("fchmod", errno.EPERM), ("mkdir", errno.EROFS), ("unlink", errno.EROFS), ("mmap", errno.ENOMEM),
]  # fmt: skip
EACH = 1 if os.environ.get("POSTMORTEM_FAULTS") == "all" else 11  # every call once in a campaign
pytestmark = [needs("cc"), pytest.mark.slow]


@pytest.mark.parametrize(("name", "error"), CALLS)
def test_every_call_may_fail(faults: Faults, name: str, error: int) -> None:
    runs = series(faults, name, error, step=1 if name == "rename" else EACH)
    assert runs > (name not in ("mmap", "mkdir", "unlink")), "nothing of this kind was called"
    series(faults, name, error, lasting=True, step=EACH)


@pytest.mark.parametrize("name", ["open", "read", "fstat", "close"])
def test_every_call_on_the_cache_may_fail(cold: Faults, name: str) -> None:
    assert series(cold, name, errno.EIO, step=EACH, below="t/cache") > 1


@pytest.mark.parametrize(
    ("name", "error"), [(n, e) for n, e in CALLS if n not in ("mmap", "mkdir", "unlink", "fchmod")]
)
def test_every_call_of_workers_may_fail(faults: Faults, name: str, error: int) -> None:
    """On the logs and on the output; two workers share the counting."""
    for below in ("t/logs", "t/out"):
        series(faults, name, error, jobs=2, below=below, most=60, step=EACH)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_store_that_cannot_be_written_is_reported(faults: Faults, error: int) -> None:
    """SQLite's own calls, from the k-th on."""
    whole(faults, 1)
    store = faults.folder / "t" / "store"
    store.mkdir(exist_ok=True)
    for at in (1, 3, 9, 27, 81, 243):
        for file in store.iterdir():
            file.unlink()
        history = ["--history", str(store / "fleet.db")]
        code, errors, hit = faults.run([*words(faults, 1), *history], "write", at, error, True, "t/store")
        filed = "history" in json.loads((faults.folder / "t" / "out" / "r.json").read_text())
        assert code == 0 and (filed or "not filed in the history" in errors) and "internal error" not in errors, errors
        assert filed or hit
    assert not hit


@pytest.mark.parametrize(
    ("name", "error"),
    [("open", errno.EROFS), ("write", errno.ENOSPC), ("rename", errno.EACCES), ("mkdir", errno.EROFS)],
)
def test_a_cache_that_cannot_be_written_costs_nothing(cold: Faults, name: str, error: int) -> None:
    """From the first call on, as on a full or read-only home."""
    usual = whole(cold, 1)
    cache = cold.folder / "t" / "cache"
    for path in sorted(cache.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    cache.rmdir()
    code, errors, hit = cold.run(words(cold, 1), name, 1, error, True, "t/cache")
    assert hit and code == 0 and "error" not in errors
    assert json.loads((cold.folder / "t" / "out" / "r.json").read_text()) == usual
    assert not list(cache.rglob("*.tmp"))
