"""Healthy logs beside lines of kernels, schedulers and Kubernetes: a job that finished did not fail."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from postmortem.analyze import analyze
from postmortem.input import sniff
from postmortem.library import load

HERE = Path(__file__).resolve().parent
HEALTHY = HERE.parent / "sample_logs" / "healthy-torchrun" / "logs"
NAMES = {"kernel": "dmesg.txt", "gpu-hardware": "dmesg.txt", "scheduler": "slurmctld.log", "kubernetes": "events.txt"}
NAMES_A_RANK = ("kernel-oom-summary", "slurm-task-out-of-memory")  # of this job, and that it was killed
TOGETHER = 8  # lines in one analysis


def foreign() -> Iterator[tuple[str, str]]:
    """Every line of a host or a cluster that would accuse a rank or a host: file, text."""
    for pattern in load().patterns.values():
        name = NAMES.get(pattern.family)
        if name is None or pattern.derived or pattern.role not in ("cause", "symptom") or pattern.id in NAMES_A_RANK:
            continue
        for example in pattern.matches:
            text = example.text.strip("\n")
            if name == "dmesg.txt" and not text.startswith("["):
                text = f"[ 1234.500000] {text}"
            if text and sniff.kind(name, text.encode())[0] in ("kernel", "scheduler", "kubernetes"):
                yield name, f"{text}\n"


def test_a_job_that_finished_did_not_fail_whatever_others_state(tmp_path: Path) -> None:
    lines: dict[str, list[str]] = defaultdict(list)
    for name, text in foreign():
        lines[name].append(text)
    assert sum(map(len, lines.values())) > 150
    for name, texts in lines.items():
        for at in range(0, len(texts), TOGETHER):
            folder = tmp_path / f"{name}-{at}"
            shutil.copytree(HEALTHY, folder)
            (folder / name).write_text("".join(texts[at : at + TOGETHER]))
            verdict = analyze([str(folder)]).document["verdict"]
            assert verdict["outcome"] == "healthy", (verdict["headline"], texts[at : at + TOGETHER])


def test_a_job_that_a_scheduler_ends_after_its_final_message_was_hanging(tmp_path: Path) -> None:
    work = "".join(f"2026-11-20 08:00:{s:02d} INFO rank 0: step {s} loss 2.1\n" for s in range(30))
    end = "slurmstepd: error: *** JOB 992 ON node01 CANCELLED AT 2026-11-20T10:00:00 DUE TO TIME LIMIT ***\n"
    (tmp_path / "rank0.log").write_text(work + "2026-11-20 08:00:31 INFO rank 0: Training finished.\n" + end)
    assert analyze([str(tmp_path)]).document["verdict"]["pattern"] == "slurm-time-limit"


XID = "[111403.118] NVRM: Xid (PCI:0000:91:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
RAISED = 'Traceback (most recent call last):\n  File "/opt/train.py", line 5, in <module>\n    main()\n'


@pytest.mark.parametrize(
    "last, pattern, outcome",
    [
        (f"{RAISED}ValueError: bad label 9\n", "python-exception", "incident"),
        (f"{RAISED}RuntimeError: CUDA error: unspecified launch failure\n", "xid-79-gpu-fell-off-bus", "incident"),
        (
            f"{RAISED}RuntimeError: CUDA error: device-side assert triggered\n",
            "cuda-device-side-assert-error",
            "incident",
        ),
    ],
)
def test_an_undated_line_counts_where_the_ranks_confirm_it(
    tmp_path: Path, last: str, pattern: str, outcome: str
) -> None:
    (tmp_path / "rank0.log").write_text("".join(f"rank 0: step {s} loss 2.1\n" for s in range(30)) + last)
    (tmp_path / "dmesg.txt").write_text(XID)
    verdict = analyze([str(tmp_path)]).document["verdict"]
    assert (verdict["pattern"], verdict["outcome"]) == (pattern, outcome)


def test_a_fault_of_another_program_on_the_same_host_is_not_this_jobs(tmp_path: Path) -> None:
    """A host with several users: its kernel reports another process during this job."""
    work = "".join(f"2026-11-20 08:00:{s:02d} INFO rank 0: step {s} loss 2.1\n" for s in range(30))
    (tmp_path / "rank0.log").write_text(f"{work}{RAISED}ValueError: bad label 9\n")
    xid = (
        "NVRM: Xid (PCI:0000:91:00): 31, pid=7777, name=python3, Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS"
    )
    (tmp_path / "journal.txt").write_text(f"2026-11-20T08:00:11.000000+00:00 node-x kernel: {xid}\n")
    assert analyze([str(tmp_path)]).document["verdict"]["pattern"] == "python-exception"
