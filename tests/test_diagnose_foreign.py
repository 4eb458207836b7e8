"""Healthy logs beside lines of kernels, schedulers and Kubernetes: a job that finished did not fail."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import SAMPLES
from postmortem.analyze import analyze
from postmortem.input import sniff
from postmortem.library import load

HEALTHY = SAMPLES / "healthy-torchrun" / "logs"
NAMES = {"kernel": "dmesg.txt", "gpu-hardware": "dmesg.txt", "scheduler": "slurmctld.log", "kubernetes": "events.txt"}
NAMES_A_RANK = ("kernel-oom-summary", "slurm-task-out-of-memory")  # of this job, and that it was killed


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


@pytest.mark.parametrize("together", [40, pytest.param(8, marks=pytest.mark.slow)])  # lines in one analysis
def test_a_job_that_finished_did_not_fail_whatever_others_state(together: int, tmp_path: Path) -> None:
    lines: dict[str, list[str]] = defaultdict(list)
    for name, text in foreign():
        lines[name].append(text)
    assert sum(map(len, lines.values())) > 150
    for name, texts in lines.items():
        for at in range(0, len(texts), together):
            folder = tmp_path / f"{name}-{at}"
            shutil.copytree(HEALTHY, folder)
            (folder / name).write_text("".join(texts[at : at + together]))
            verdict = analyze([str(folder)]).document["verdict"]
            assert verdict["outcome"] == "healthy", (verdict["headline"], texts[at : at + together])
