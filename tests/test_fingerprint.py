"""The same failure has one fingerprint, whenever, wherever and by whomever it is told; another has another."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, SAMPLES, solved
from postmortem.fingerprint import fingerprint, frame, normalised, program
from postmortem.history.pseudonyms import Keyed, hidden
from postmortem.history.rows import row

sys.path.insert(0, str(ROOT / "benchmarks"))

import fingerprints as measured

FAILED = [p for p in sorted(SAMPLES.iterdir()) if (p / "logs").is_dir() and not p.name.startswith("healthy")]


def of(sample: str) -> str:
    found = solved(SAMPLES / sample).document["fingerprint"]
    assert found
    return found


# ── what must never change, because histories keep it ───────────────────────────────────────────────────────


def test_values_of_old_are_those_of_today() -> None:
    assert fingerprint("host-oom", "kernel-oom-killed-process", ["python", ""], None) == "591c3021e7074691"
    said = ["ValueError: sample #: label # outside of [#]"]
    assert fingerprint("python-exception", "python-exception", said, "train.py:checked") == "90b48d137d486f9f"
    hardware = ["gpu-017", "0000:3b:00"]
    assert (
        fingerprint("gpu-hardware", "xid-79-gpu-off-bus", ["79"], None, hardware) == "249b8233b497f1cb-51d6a7"
    )


@pytest.mark.parametrize(
    ("line", "same"),
    [
        (
            "ValueError: sample 67: label 4711 outside of [0, 10)",
            "ValueError: sample #: label # outside of [#]",
        ),
        ("norms [7.4746, 7.4746, 3.592]", "norms [#]"),
        ("versions differ: {0: '2.13.0+cpu', 1: '2.12.1'}", "versions differ: [#]"),
        ("rank 3 on node-b lost 10.77.0.2:58798", "rank # on @ lost @"),
        ("ranks 0, 1 and 2 of [::ffff:10.77.0.2]:29500", "rank # of @"),
        ("No such file: '/data/alice/part-00003.bin'", "No such file: '/'"),
        ("s3://bucket/run-7/a.pt at 0x7f2734585ad8", "/ at #"),
        ("grad norm 1.5e-07, loss nan", "grad norm #, loss nan"),
        ("commit 9c09de6ad11a7226 of node-bb", "commit # of node-bb"),
        ("KeyError: 'features'", "KeyError: 'features'"),
        ("aten::add of std::out_of_range", "aten::add of std::out_of_range"),
    ],
)
def test_of_a_line_stays_what_does_not_change_from_run_to_run(line: str, same: str) -> None:
    assert normalised(line, {"node-b", "x"}) == same
    assert normalised(same, {"node-b"}) == normalised(same)


@pytest.mark.parametrize(
    "line", ["[" * 50_000, "/" * 50_000, "1:" * 50_000, "((1" * 50_000, "\x1f\ud800", ""]
)
def test_hostile_lines_cost_nothing(line: str) -> None:
    assert len(normalised(line, {"node-b"})) <= 400
    assert fingerprint(None, "x", [line], line)


def test_a_function_is_known_again_when_its_line_has_moved() -> None:
    traceback = {
        "frames": (
            ("/run/train.py", 40, "<module>"),
            ("/run/train.py", 26, "main"),
            ("torch/x.py", 9, "barrier"),
        )
    }
    assert frame("train.py:26", [{}, traceback]) == "train.py:main>barrier"
    stack = {
        "frames": (
            ("torch/x.py", 9, "Work.barrier"),
            ("torch/y.py", 1, "wrapper"),
            ("train.py", 33, "Job.main"),
        )
    }
    assert frame("train.py:33", [stack], innermost_first=True) == "train.py:main>barrier"
    assert frame("train.py:99", [traceback]) == "train.py"
    died = {
        "frames": (
            ("/run/train.py", 26, "main"),
            ("/lib/torch/utils/data/_utils/signal_handling.py", 73, "handler"),
        )
    }
    assert frame("train.py:26", [died]) == ""  # wherever the rank was when a worker of its died


def test_every_python_is_one_program() -> None:
    assert {program(name) for name in ("python", "python3", "python3.11", "pt_main_thread")} == {"python"}
    assert program("pt_data_worker") == "pt_data_worker"


# ── on the samples ──────────────────────────────────────────────────────────────────────────────────────────


def test_out_of_memory_is_not_one_failure() -> None:
    """A rank that grows, a worker of its loader, and a vocabulary that the start loads: each has another remedy."""
    assert of("host-oom-cache-of-rank-2") == of("oom-on-second-host")
    three = {of(s) for s in ("oom-on-second-host", "oom-of-dataloader-worker", "vocabulary-eats-master")}
    assert len(three) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("sigkill-from-outside", "sigkill-on-second-host"),
        ("sigkill-from-outside", "slurm-task-killed"),  # told by another launcher
        ("swapped-collectives", "swapped-collectives-detail"),  # told by stacks, and by torch itself
        ("rank-0-started-twice", "same-rank-twice"),
        ("bad-label-one-rank", "bad-label-spawned"),
        ("restart-fails-three-times", "restart-meets-stale-addresses"),
        ("decoder-segfault-in-worker", "worker-segfault-in-broken-line"),
    ],
)
def test_the_same_told_in_two_ways(one: str, other: str) -> None:
    assert of(one) == of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("segfault-no-kernel-log", "aborted-after-the-end"),  # SIGSEGV is not SIGABRT
        ("double-precision-metrics", "larger-last-batch"),  # another type, another size
        ("bad-label-one-rank", "target-out-of-range-clock-ahead"),
        ("checkpoint-to-slow-disk", "slow-object-store"),
        ("early-rank-waits-in-barrier", "skipped-collective"),
    ],
)
def test_another_failure_of_the_same_kind(one: str, other: str) -> None:
    assert of(one) != of(other)


def test_hardware_is_told_apart_by_its_host_and_address() -> None:
    a, b = (fingerprint("gpu-hardware", "xid", [], None, [host, "0000:3b:00"]) for host in ("n1", "n2"))
    assert a != b and a.partition("-")[0] == b.partition("-")[0]
    assert "-" not in fingerprint("host-oom", "kernel-oom", [], None, ["n1"])


def test_pairs_of_samples() -> None:
    """The measurement of benchmarks/fingerprints.py without its variants, which take minutes."""
    known = [(p.name, measured.label(p), solved(p).document["fingerprint"]) for p in FAILED]
    told = [
        (name, measured.UNTOLD.get(name, measured.UNTOLD.get(cause, cause)), mark)
        for name, cause, mark in known
    ]
    found, wrong, missed = measured.pairs(told)
    assert found >= 25 and wrong <= 3 and missed <= 3


def test_pairs_are_counted() -> None:
    known = [
        ("a", "x", "1"),
        ("b", "x", "1"),
        ("c", "x", "2"),
        ("d", "y", "2"),
        ("e", "y", None),
        ("f", "y", None),
    ]
    assert measured.pairs(known) == (1, 1, 2 + 3)


@pytest.mark.parametrize("sample", FAILED[::6], ids=lambda p: p.name)  # the benchmark reads them all
def test_other_hosts_pids_and_folders_change_nothing(sample: Path, tmp_path: Path) -> None:
    document: Any = solved(sample).document
    away = measured.elsewhere(document, random.Random(sample.name))
    found = measured.read(measured.changed(sample / "logs", tmp_path, away, hosts=True))
    assert found["fingerprint"] == document["fingerprint"]


def test_a_healthy_run_has_none() -> None:
    assert solved(SAMPLES / "healthy-torchrun").document["fingerprint"] is None


def test_a_store_without_names_keeps_no_hash_of_one() -> None:
    """Who knows the names of a cluster's hosts could try them all."""
    document: Any = dict(solved(SAMPLES / "oom-on-second-host").document)
    document["fingerprint"] = f"{document['fingerprint']}-4f2a1b"
    document["verdict"] = document["verdict"] | {"category": "gpu-hardware"}
    kept = row(hidden(document, Keyed(b"k" * 32)))
    assert kept.cause == document["fingerprint"].partition("-")[0]
    assert kept.fingerprint != document["fingerprint"] and kept.fingerprint.startswith(f"{kept.cause}-")
