"""Missing files, and foreign files beside the job's own, blame no innocent rank; our own verdict in a log
is no evidence. For odd bytes see test_fuzz.py."""

from __future__ import annotations

import json
import random
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from conftest import SAMPLES, solved, table
from postmortem import reading
from postmortem.analyze import Options, analyze
from postmortem.blocks import read_text
from postmortem.errors import NothingReadable
from postmortem.report import render_terminal

INCIDENTS = sorted(p.parent for p in SAMPLES.glob("*/truth.json"))


FEW = [
    pytest.param(case, id=case.name, marks=() if n % 12 == 0 else pytest.mark.slow) for n, case in enumerate(INCIDENTS)
]


@pytest.mark.parametrize("case", FEW)
def test_a_missing_file_never_makes_an_innocent_rank_guilty(
    case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Remove any one file: the verdict may weaken, but no innocent rank is blamed with certainty."""
    monkeypatch.setattr(reading, "_read", cache(reading._read))  # the other files are the same each time
    truth = json.loads((case / "truth.json").read_text())
    logs, aside = tmp_path / "logs", tmp_path / "gone"
    shutil.copytree(case / "logs", logs)
    files = sorted(p for p in logs.rglob("*") if p.is_file() and p.stat().st_size)
    for gone in random.Random(case.name).sample(files, min(len(files), 8)):
        gone.rename(aside)
        try:
            verdict = analyze([str(logs)]).document["verdict"]
        except NothingReadable:
            verdict = None
        aside.rename(gone)
        if verdict and truth.get("ranks") is not None and verdict["confidence"] == "established":
            assert set(verdict["culprit"]["ranks"]) <= set(truth["ranks"]), gone.name


OLD_KERNEL_LOG = table("robust")["old_kernel_log"]
STAMPS = {"dated": "[Mon Mar  2 04:11:52 2020]", "undated": "[ 1234.567890]"}
FAILED = [case for case in INCIDENTS if "healthy" not in case.name]


def beside() -> list[Any]:
    """Each incident with one foreign neighbor; with all of them where there is time."""
    kinds = [*STAMPS, "healthy run"]
    return [
        pytest.param(case, kind, id=f"{case.name}-{kind}", marks=() if (i - j) % 9 == 0 else pytest.mark.slow)
        for i, case in enumerate(FAILED)
        for j, kind in enumerate(kinds)
    ]


@pytest.mark.parametrize(("case", "kind"), beside())
def test_a_stale_kernel_log_or_an_older_run_changes_nothing(case: Path, kind: str, tmp_path: Path) -> None:
    """A kernel log of another job, days before, is next to nearly every real job, and people store runs side by
    side: neither may lend its ranks, pids or ends to the failed one."""
    before = solved(case).document["verdict"]
    copy = tmp_path / "logs"
    shutil.copytree(case / "logs", copy)
    if kind == "healthy run":
        shutil.copytree(SAMPLES / "healthy-torchrun" / "logs", copy / "previous_run")
    else:
        (copy / "old_dmesg.txt").write_text("".join(f"{STAMPS[kind]} {line}\n" for line in OLD_KERNEL_LOG))
    document = analyze([str(copy)], Options()).document
    after = document["verdict"]
    if kind == "healthy run":
        assert [job["outcome"] for job in document["other_jobs"]] == ["healthy"]
    elif before["confidence"] == "hypothesis" and after["confidence"] in ("hypothesis", "supported"):
        return  # a rank vanished without a reason: another guess may replace that one, but none becomes certain
    found, wanted = ((v["outcome"], v["culprit"]["ranks"]) for v in (after, before))
    assert found == wanted, after["headline"]


@pytest.mark.parametrize("third", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_a_verdict_on_the_terminal_holds_no_event(third: int) -> None:
    assert len(FAILED) > 3
    for sample in FAILED[third::3]:
        for width, prefix in (
            (80, ""),
            (120, "0: "),
            (80, "[pod/train-0/main] "),
        ):  # srun --label, kubectl logs --prefix
            shown = render_terminal(solved(sample), width=width, color=width == 120, report="/home/me/logs/report.html")
            log = "".join(f"{prefix}{line}\n" for line in shown.splitlines())
            assert not [e for e in read_text(log) if e.kind != "line"], f"{sample.name} {prefix!r}\n{log}"


def test_what_follows_the_verdict_is_evidence_again() -> None:
    verdict = render_terminal(solved(SAMPLES / "oom-on-second-host"))
    lost = "srun: error: node-a: task 3: Out Of Memory"
    (event,) = (e for e in read_text(f"{verdict}{lost}\n") if e.pattern)
    assert (event.text, event.where.line) == (lost, len(verdict.splitlines()) + 1)


def test_a_verdict_that_was_appended_to_a_log_changes_nothing(tmp_path: Path) -> None:
    """As a batch script does: what it prints goes into the output of the job, which is read again."""
    log = tmp_path / "train-1.out"
    log.write_text(
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/work/train.py", line 23, in bad_label\n'
        "[rank1]: ValueError: sample 67: label 4711 outside of [0, 10)\n"
        "srun: error: node-a: task 1: Exited with exit code 1\n"
    )
    first = analyze([str(log)])
    with log.open("a") as file:
        file.write(render_terminal(first) * 2)
    before, after = (one.document["verdict"] for one in (first, analyze([str(log)])))
    assert [e["line"] for e in after["evidence"]] == [e["line"] for e in before["evidence"]]
    assert {**after, "evidence": []} == {**before, "evidence": []}
