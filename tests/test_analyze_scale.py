"""The whole analysis on many logs: the same document however it is read, bounded reports, partial reports."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pool_work
import pytest

from conftest import SAMPLES, corpus, needs, typed_rows
from postmortem import report, scan
from postmortem.analyze import Incident, Options, analyze
from postmortem.system import pool

reading: Any = import_module("postmortem.reading")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return corpus.make(tmp_path_factory.mktemp("logs"), ranks=16, size=32 << 10, seed=5, every=400)


def text(incident: Incident) -> str:
    return json.dumps(incident.document, sort_keys=True)


def read(folder: Path, **options: Any) -> Incident:
    return analyze([str(folder)], Options(**options))


@pytest.fixture(scope="module")
def calm(logs: Any) -> Incident:
    """The logs as they are, read by one process."""
    return read(logs.folder, workers=1)


def test_the_document_does_not_depend_on_the_workers(logs: Any, calm: Incident) -> None:
    """One process, two, threads behind an executor: the same bytes, and the planted failure."""
    one, verdict = text(calm), calm.document["verdict"]
    assert (verdict["pattern"], verdict["culprit"]["ranks"]) == ("kernel-oom-killed-process", [logs.culprit])
    assert text(read(logs.folder, workers=2)) == one
    with ThreadPoolExecutor(3) as threads:
        assert text(read(logs.folder, executor=threads)) == one


@pytest.mark.slow
def test_one_odd_rank_among_a_thousand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of one shape are parsed once, and events come in columns: the document is that of lines read each in full."""
    corpus.make(tmp_path, ranks=1024, size=1 << 10, seed=9)
    with (tmp_path / "node-0064" / "rank519.log").open("a") as log:
        log.write("2026-11-20 05:12:07,100 INFO [rank519] train: loss is nan\n")
    shared = read(tmp_path, workers=2)
    assert shared.timeline["text"].astype(str).str.endswith("loss is nan").any()
    for name in ("model.digits", "formats.envelope", "blocks.signs"):
        monkeypatch.setattr(f"postmortem.{name}.LONG", 0)
    assert text(read(tmp_path, workers=1)) == text(shared)


def test_compressed_logs_give_the_same_verdict(logs: Any, calm: Incident, tmp_path: Path) -> None:
    import zstandard

    for number, path in enumerate(sorted(p for p in logs.folder.rglob("*") if p.is_file())):
        pack, suffix = (gzip.compress, ".gz") if number % 2 else (zstandard.compress, ".zst")
        target = tmp_path / path.relative_to(logs.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.with_name(target.name + suffix).write_bytes(pack(path.read_bytes()))
    plain, packed = text(calm), text(read(tmp_path))
    for suffix in (".gz", ".zst"):
        packed = packed.replace(f".log{suffix}", ".log").replace(f".txt{suffix}", ".txt")
    one, other = (json.loads(t) for t in (plain, packed))
    for part in ("verdict", "chain", "findings", "ranks", "clocks", "trace"):
        assert one[part] == other[part], part


def test_a_flood_changes_no_verdict(logs: Any, calm: Incident, tmp_path: Path) -> None:
    """The first and last hits of a pattern are reported: a thousand warnings between them hide nothing."""
    failed = b"[c10d] The client socket has failed to connect to [node-0000]:29500 (errno: 110)\n"
    flood = b"[W1120 05:00:00.000000000 socket.cpp:460] %b" % failed * 1_000
    for path in (p for p in logs.folder.rglob("*") if p.is_file()):
        target = tmp_path / path.relative_to(logs.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        data = path.read_bytes()
        cut = data.index(b"\n", len(data) // 2) + 1
        target.write_bytes(data if path.suffix == ".txt" else data[:cut] + flood + data[cut:])
    before, flooded = calm.document["verdict"], read(tmp_path).document["verdict"]
    for name in ("outcome", "category", "pattern", "culprit", "headline"):
        assert flooded[name] == before[name]


def divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a megabyte were 64."""
    small = scan.parts
    monkeypatch.setattr(scan, "parts", lambda size: small(size, 1 << 20, 1 << 20))


@pytest.fixture
def console(logs: Any, tmp_path: Path) -> Path:
    """All ranks on one console of some megabytes, the kernel log beside it."""
    files = sorted(p for p in logs.folder.rglob("*") if p.is_file() and p.suffix != ".txt")
    lines = [f"[default{n}]:{line}" for n, p in enumerate(files) for line in p.read_text(errors="replace").splitlines()]
    (tmp_path / "console.log").write_text("\n".join([*lines[:500], *lines * 9]) + "\n")
    return tmp_path


def test_a_large_log_is_read_in_parts_with_the_same_document(console: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = text(read(console, workers=1))
    divided(monkeypatch)
    assert len(scan.parts((console / "console.log").stat().st_size)) >= 4
    assert text(read(console, workers=2)) == whole


def test_a_part_that_kills_its_worker_is_named_and_the_rest_is_read(
    console: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines after the lost part have their numbers."""
    divided(monkeypatch)
    monkeypatch.setattr(reading, "read_bundle", pool_work.read_or_die_at_the_second_part)
    rest = read(console, workers=2)
    (lost,) = rest.document["ledger"]["skipped"]
    assert (lost["path"], lost["bytes"]) == ("console.log", 1 << 20)
    assert lost["reason"] == "bytes 1,048,576 to 2,097,152: the worker that read it died (SIGKILL)"
    lines = (console / "console.log").read_text().split("\n")
    places = [(e.where.line or 0, e.text) for e in typed_rows(rest) if e.where.source == "console.log"]
    later = [(line, text) for line, text in places if line > len(lines) // 2]
    assert len(later) > 10
    assert not [text for line, text in later if text.strip()[-20:] not in lines[line - 1]]


def test_a_small_share_of_lines_changes_no_verdict(logs: Any, calm: Incident, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the 16 ranks were 10,000: twelve ordinary lines of each are read, and those with hits."""
    whole = calm.document["verdict"]
    monkeypatch.setattr(reading, "LINES", 100)
    few = read(logs.folder).document["verdict"]
    for name in ("outcome", "category", "pattern", "culprit", "headline"):
        assert few[name] == whole[name]


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_gives_a_partial_report_that_begins_with_the_loss(logs: Any, workers: int) -> None:
    def interrupt(done: int, total: int, label: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    incident = read(logs.folder, workers=workers, progress=interrupt)
    assert incident.interrupted
    skipped = incident.document["ledger"]["skipped"]
    assert skipped and {row["reason"] for row in skipped} == {"interrupted before it was read"}
    page = report.render_html(incident)
    assert page.index("Not everything was read") < page.index("How it happened")


@pytest.mark.release
@pytest.mark.slow
def test_deadly_logs_are_named_and_the_verdict_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = corpus.make(tmp_path, ranks=96, size=8 << 10, seed=9, every=200)
    calm = read(tmp_path, workers=1).document["verdict"]
    ends = ("died (SIGKILL)", "died (SIGSEGV)", "took too long", "ran out of memory")
    deadly = dict(zip(("kill", "fault", "hang", "starve"), ends, strict=True))
    for kind in deadly:
        (tmp_path / f"{kind}-0.log").write_text("step 1\n" * 200)
    monkeypatch.setattr(pool, "DEADLINE", 10.0)
    monkeypatch.setattr(reading, "read_bundle", pool_work.read_or_die)
    document = read(tmp_path, workers=2).document
    lost = {row["path"]: row["reason"] for row in document["ledger"]["skipped"]}
    assert lost == {f"{kind}-0.log": f"the worker that read it {end}" for kind, end in deadly.items()}
    assert len(document["sources"]) == 96 + 1, "all the others, and the kernel log"
    assert document["verdict"]["culprit"] == calm["culprit"] and calm["culprit"]["ranks"] == [made.culprit]
    assert document["verdict"]["headline"] == calm["headline"]


@pytest.mark.slow
def test_a_page_of_two_thousand_ranks_can_be_mailed(tmp_path: Path) -> None:
    corpus.make(tmp_path, ranks=2000, size=4 << 10, seed=3, every=300)
    incident = read(tmp_path)
    page = report.render_html(incident)
    assert len(page.encode()) < 2 << 20
    assert len(incident.document["ranks"]) == 2000 and "500 of 2,000 ranks" in page


def cluster() -> Any:
    from distributed import LocalCluster

    return LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)


@pytest.mark.slow
@needs("distributed")
def test_dask_gives_the_same_document_though_a_worker_is_killed(logs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real scheduler and two worker processes; one is killed with SIGKILL when the first task is done."""
    monkeypatch.setattr(pool, "BUNDLE", 1 << 18)
    with cluster() as made, pool.dask(made.scheduler_address) as executor:
        victims = [worker.pid for worker in made.workers.values()]

        def kill(done: int, total: int, label: str) -> None:
            if victims:
                os.kill(victims.pop(), signal.SIGKILL)
                victims.clear()

        there = text(read(logs.folder, executor=executor, progress=kill))
        assert not victims
    assert there == text(read(logs.folder, workers=1))


@pytest.mark.slow
@needs("distributed")
def test_a_dask_worker_that_cannot_see_the_logs_is_a_usage_error(logs: Any) -> None:
    from postmortem.errors import UsageError
    from postmortem.input import Container

    with cluster() as made, pool.dask(made.scheduler_address) as executor:
        gone = Container(Path("/nowhere/rank0.log"), "rank0.log", 10, "plain")
        with pytest.raises(UsageError, match="a worker, cannot see /nowhere/rank0.log"):
            reading.read_all([gone], reading.Ways(executor=executor))


@pytest.mark.slow
@needs("mpiexec", "mpi4py")
def test_mpi_gives_the_same_document(tmp_path: Path) -> None:
    """As in docs/performance.md: one rank distributes, the others read."""
    folder = str(SAMPLES / "oom-on-second-host" / "logs")
    command = ("-m", "postmortem", "analyze", folder, "--format", "json", "--output", "-")
    alone = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, check=True).stdout
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    mpi = ("mpiexec", "--oversubscribe", "-n", "3", sys.executable, "-m", "mpi4py.futures", *command)
    words = [*mpi, "--executor", "mpi4py.futures:MPIPoolExecutor"]
    done = subprocess.run(words, cwd=tmp_path, env=os.environ | allowed, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == alone
