"""No input kills the analysis: arbitrary bytes, torn samples, missing files,
foreign files beside the job's own."""

from __future__ import annotations

import io
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from fuzz.targets import KINDS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import solved
from postmortem import blocks as parsers
from postmortem import scan
from postmortem.analyze import Options, analyze
from postmortem.errors import NothingReadable
from postmortem.library import load
from postmortem.model import Source

SAMPLES = Path(__file__).parent.parent / "sample_logs"
INCIDENTS = sorted(p.parent for p in SAMPLES.glob("*/truth.json"))
WATCHDOG = (
    b"[rank0]:[E1120 21:05:58.401527057 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective "
    b"operation timeout: "
    b"WorkNCCL(SeqNum=2, OpType=ALLREDUCE, Timeout(ms)=10) ran for 11 milliseconds\n"
)
FRAGMENTS = [
    b"Traceback (most recent call last):\n", b'  File "a.py", line 3, in f\n', b"ValueError: x\n",
    b"Fatal Python error: Aborted\n", b"Thread 0x00007f (most recent call first):\n",
    b"  rank      : 1 (local_rank: 1)\n", b"  exitcode  : -9 (pid: 12) (SIGKILL)\n", b"[rank1]: ",
    b"[default0]:", b"1: ", b"Killed process 12 (python3) total-vm:1kB, anon-rss:1kB\n", b"\r", b"\n",
    b"\x00", b"\xff\xfe", b"\x1b[31m", WATCHDOG, b"2026-02-30 25:61:61,999 ", b"[99999999999999.999999] ",
    b"step 5 loss nan\n", b'{"message": {"message": 3}}', b"\x80\x04]q\x00.",
    b"keys: /default_pg/0//cpu//0/99999999999999999999\n",
    b"rank 5 of 999999999999, pid 99999999999\n", b"NVRM: Xid (PCI:0000:48:00): 79, ",
]  # fmt: skip
soup = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=40)), max_size=30).map(b"".join)


@pytest.fixture(scope="module")
def engine() -> scan.Engine:
    return scan.Engine.compile([*load().signatures(), *parsers.OPENERS])


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=soup, kind=st.sampled_from(KINDS), rank=st.one_of(st.none(), st.integers(0, 3)))
def test_no_parser_raises_on_any_bytes(engine: scan.Engine, data: bytes, kind: str, rank: int | None) -> None:
    source = Source("x.log", kind, len(data), rank=rank)
    scanned = scan.scan(source, io.BytesIO(data), engine, want_content=kind in parsers.DOCUMENT_KINDS)
    lines = data.count(b"\n") + 1
    for event in parsers.parse(scanned, load()):
        assert event.where.line is None or 1 <= event.where.line <= lines


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    files=st.lists(
        st.tuples(
            st.sampled_from(["rank0.log", "rank1.err", "dmesg.txt", "error.json", "agent.err", "fr_rank0.pkl"]),
            soup,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_the_whole_analysis_never_raises(
    files: list[tuple[str, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("soup")
    for name, data in files:
        (folder / name).write_bytes(data)
    try:
        document = analyze([str(folder)]).document
    except NothingReadable:
        return
    assert document["verdict"]["headline"]
    assert document["ledger"]["bytes"] == document["ledger"]["scanned"] + sum(
        row["bytes"] for row in document["ledger"]["skipped"]
    )


@pytest.mark.parametrize("take", [1, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", INCIDENTS, ids=lambda p: p.name)
def test_a_missing_file_never_makes_an_innocent_rank_guilty(case: Path, take: int, tmp_path: Path) -> None:
    """Take any one file away: the verdict may weaken, but nobody innocent is blamed with certainty."""
    import json

    truth = json.loads((case / "truth.json").read_text())
    files = sorted(p for p in (case / "logs").rglob("*") if p.is_file() and p.stat().st_size)
    for gone in random.Random(case.name).sample(files, min(len(files), take)):
        copy = tmp_path / "logs"
        shutil.copytree(case / "logs", copy)
        (copy / gone.relative_to(case / "logs")).unlink()
        try:
            verdict = analyze([str(copy)]).document["verdict"]
        except NothingReadable:
            verdict = None
        shutil.rmtree(copy)
        if verdict and truth.get("ranks") is not None and verdict["confidence"] == "established":
            assert set(verdict["culprit"]["ranks"]) <= set(truth["ranks"]), (gone.name, verdict["headline"])


def stale() -> list[Any]:
    """Each incident with one form of stamp; with the other one too where there is time."""
    stamps = {"dated": "[Mon Mar  2 04:11:52 2020]", "undated": "[ 1234.567890]"}
    failed = [case for case in INCIDENTS if "healthy" not in case.name]
    return [
        pytest.param(case, stamp, id=f"{case.name}-{name}", marks=() if (i + j) % 2 else pytest.mark.slow)
        for i, case in enumerate(failed)
        for j, (name, stamp) in enumerate(stamps.items())
    ]


@pytest.mark.parametrize(("case", "stamp"), stale())
def test_a_stale_kernel_log_changes_nothing(case: Path, stamp: str, tmp_path: Path) -> None:
    """A kernel log with another job's kill and another job's GPU in it, from days before,
    lies beside nearly every real job."""
    before = solved(case).document["verdict"]
    copy = tmp_path / "logs"
    shutil.copytree(case / "logs", copy)
    kill = (
        "Killed process 3999901 (python3) total-vm:1425944kB, anon-rss:717428kB, file-rss:94192kB, shmem-rss:0kB, UID:0"
    )
    lines = [
        "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        f"Memory cgroup out of memory: {kill} pgtables:1932kB oom_score_adj:0",
        "python3[3999902]: segfault at 300 ip 00007fe3e635f4be sp 00007ffd986459d0 error 4 in libk.so[24b]",
        "NVRM: Xid (PCI:0000:91:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    ]
    (copy / "old_dmesg.txt").write_text("".join(f"{stamp} {line}\n" for line in lines))
    after = analyze([str(copy)], Options()).document["verdict"]
    if before["confidence"] == "hypothesis" and after["confidence"] in ("hypothesis", "supported"):
        # a rank vanished and nobody says why:
        # another guess may take the place of that one, but none becomes certain
        return
    assert (after["outcome"], after["culprit"]["ranks"]) == (before["outcome"], before["culprit"]["ranks"]), after[
        "headline"
    ]


@pytest.mark.parametrize("case", [c for c in INCIDENTS if "healthy" not in c.name], ids=lambda p: p.name)
def test_an_older_healthy_run_beside_it_changes_nothing(case: Path, tmp_path: Path) -> None:
    """People keep runs side by side: the healthy one must not lend its ranks,
    its goodbyes or its pids to the failed one."""
    before = solved(case).document["verdict"]
    copy = tmp_path / "logs"
    shutil.copytree(case / "logs", copy)
    shutil.copytree(SAMPLES / "healthy-torchrun" / "logs", copy / "previous_run")
    document = analyze([str(copy)]).document
    after = document["verdict"]
    assert (after["outcome"], after["culprit"]["ranks"]) == (before["outcome"], before["culprit"]["ranks"]), after[
        "headline"
    ]
    assert [job["outcome"] for job in document["other_jobs"]] == ["healthy"]
