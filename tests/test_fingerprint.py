"""The same failure has one fingerprint, whenever, wherever and by whatever log it is reported; another has another."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, SAMPLES, solved, table
from postmortem import library
from postmortem.fleet.history.filing import Keyed, hidden
from postmortem.fleet.history.rows import row
from postmortem.model.fingerprint import fingerprint, frame, normalised, program

sys.path.insert(0, str(ROOT / "benchmarks"))

import fingerprints as measured

FAILED = [p for p in sorted(SAMPLES.iterdir()) if (p / "logs").is_dir() and not p.name.startswith("healthy")]


def of(sample: str) -> str:
    found = solved(SAMPLES / sample).document["fingerprint"]
    assert found
    return found


def test_stored_values_never_change() -> None:
    assert fingerprint("host-oom", "kernel-oom-killed-process", ["python", ""], None) == "2.a24cf64783af3dfe"
    words = ["ValueError: sample #: label # outside of [#]"]
    assert fingerprint("python-exception", "python-exception", words, "train.py:checked") == "2.c996f9365f547aef"
    hardware = ["gpu-017", "0000:3b:00"]
    assert fingerprint("gpu-hardware", "xid-79-gpu-off-bus", ["79"], None, hardware) == "2.fb0567f7199cc6b4-51d6a7"


def test_a_normalized_line_is_the_same_in_every_run() -> None:
    for line, same in table("fingerprint")["normalized"].items():
        assert normalised(line, {"node-b", "x"}) == same
        assert normalised(same, {"node-b"}) == normalised(same)
    for line in ("[" * 50_000, "/" * 50_000, "1:" * 50_000, "((1" * 50_000, "\x1f\ud800", ""):  # hostile ones
        assert len(normalised(line, {"node-b"})) <= 400
        assert fingerprint(None, "x", [line], line)


TRAIN = "/run/train.py"
MAIN, STEP = (TRAIN, 40, "<module>"), (TRAIN, 26, "main")


def test_a_function_is_the_same_after_an_edit_and_in_every_python_and_torch() -> None:
    traceback = {"frames": (MAIN, STEP, ("torch/x.py", 9, "barrier"))}
    assert frame("train.py:26", [{}, traceback]) == "train.py:main>barrier"
    assert frame("train.py:99", [traceback]) == "train.py"
    stack = {"frames": (("torch/x.py", 9, "Work.barrier"), ("torch/y.py", 1, "wrapper"), ("train.py", 33, "Job.main"))}
    assert frame("train.py:33", [stack], innermost_first=True) == "train.py:main>barrier"
    assert frame("train.py:33", [stack], innermost_first=True, call=False) == "train.py:main"
    handler = ("/lib/torch/utils/data/_utils/signal_handling.py", 73, "handler")
    assert frame("train.py:26", [{"frames": (STEP, handler)}]) == ""  # wherever the rank was when its worker died
    # Python 3.12 has no frame for a list comprehension, and torch 2.2 renamed the caller of forward
    plain = {"frames": (MAIN, (TRAIN, 4, "shards"))}
    nested = {"frames": (*plain["frames"], (TRAIN, 4, "<listcomp>"))}
    assert frame("train.py:4", [nested]) == frame("train.py:4", [plain]) == "train.py:shards"
    for name in ("_call_impl", "_wrapped_call_impl"):
        call = (STEP, ("torch/nn/modules/module.py", 1, name), ("ddp.py", 2, "forward"))
        assert frame("train.py:26", [{"frames": call}]) == "train.py:main>forward"


def test_every_python_is_one_program() -> None:
    assert {program(name) for name in ("python", "python3", "python3.11", "pt_main_thread")} == {"python"}
    assert program("pt_data_worker") == "pt_data_worker"


def test_samples_of_one_failure_and_of_others() -> None:
    """Out of memory has three: a rank that grows, a worker of its loader, and a vocabulary of the start."""
    for one, other in table("fingerprint")["same"]:
        assert of(one) == of(other), (one, other)
    for one, other in table("fingerprint")["different"]:
        assert of(one) != of(other), (one, other)


def alone(folder: Path, line: str) -> str:
    """The fingerprint of a log that holds one line."""
    folder.mkdir()
    (folder / "rank0.log").write_text(f"{line}\n")
    found: str = measured.read(folder)["fingerprint"]
    return found


def test_a_failure_is_the_same_in_every_release_of_torch(tmp_path: Path) -> None:
    """The examples of a pattern are one failure in several releases."""
    names = ("address-in-use", "cuda-no-device", "cuda-out-of-memory", "cuda-illegal-address", "launcher-sighup")
    for name in names:
        found = library.load().get(name)
        assert found
        values = {alone(tmp_path / f"{name}{n}", e.text) for n, e in enumerate(found.matches)}
        assert len(found.matches) > 1 and len(values) == 1


def test_single_lines_of_one_failure_and_of_another(tmp_path: Path) -> None:
    for number, (same, other) in enumerate(table("fingerprint")["lines"]):
        values = {alone(tmp_path / f"{number}-{n}", line) for n, line in enumerate(same)}
        assert len(values) == 1 and alone(tmp_path / f"{number}-other", other) not in values


def test_hardware_is_identified_by_host_and_address() -> None:
    a, b = (fingerprint("gpu-hardware", "xid", [], None, [host, "0000:3b:00"]) for host in ("n1", "n2"))
    assert a != b and a.partition("-")[0] == b.partition("-")[0]
    assert "-" not in fingerprint("host-oom", "kernel-oom", [], None, ["n1"])


def test_pairs_of_samples() -> None:
    """The measurement of benchmarks/fingerprints.py without its variants, which take minutes."""
    known = [(p.name, measured.label(p), solved(p).document["fingerprint"]) for p in FAILED]
    found_in_logs = [
        (name, measured.INDISTINCT.get(name, measured.INDISTINCT.get(cause, cause)), mark)
        for name, cause, mark in known
    ]
    found, wrong, missed = measured.pairs(found_in_logs)
    assert found >= 28 and wrong <= 1 and missed <= 1


@pytest.mark.parametrize("sample", FAILED[::12], ids=lambda p: p.name)  # the benchmark reads them all
def test_other_hosts_pids_and_folders_change_nothing(sample: Path, tmp_path: Path) -> None:
    document: Any = solved(sample).document
    away = measured.elsewhere(document, random.Random(sample.name))
    found = measured.read(measured.changed(sample / "logs", tmp_path, away, hosts=True))
    assert found["fingerprint"] == document["fingerprint"]


def test_a_healthy_run_has_none() -> None:
    assert solved(SAMPLES / "healthy-torchrun").document["fingerprint"] is None


def test_a_store_without_names_has_no_hash_of_one() -> None:
    """Anyone who knows the names of the hosts could try them all."""
    document: Any = dict(solved(SAMPLES / "oom-on-second-host").document)
    document["fingerprint"] = f"{document['fingerprint']}-4f2a1b"
    document["verdict"] = document["verdict"] | {"category": "gpu-hardware"}
    found = row(hidden(document, Keyed(b"k" * 32)))
    assert found.cause == document["fingerprint"].partition("-")[0]
    assert found.fingerprint != document["fingerprint"] and found.fingerprint.startswith(f"{found.cause}-")
