"""Texts about a crash, in tests/data/crashes: by gdb 13, pystack 1.7 and gcc 12's sanitizers of real runs with torch 2.13 (paths
shortened); those of coredumpctl, apport, compute-sanitizer and cuda-gdb have the form of their manuals, and are synthetic."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from postmortem.analyze import analyze
from postmortem.documents import crash
from postmortem.report.html import render_html

CRASHES = ROOT / "tests" / "data" / "crashes"
EXPECTED = {
    "gdb-segv.txt": (
        "native-crash",
        "kernels.cpp:11",
        "(pid 17538) crashed with SIGSEGV in gather_row (kernels.cpp:11), table=NULL",
    ),
    "gdb-abort.txt": ("native-crash", "kernels.cpp:15", "aborted (SIGABRT) in check_shape (kernels.cpp:15)"),
    "gdb-thread.txt": (
        "native-crash",
        "kernels.cpp:11",
        "crashed with SIGSEGV in gather_row (kernels.cpp:11), table=NULL",
    ),
    "pystack-segv.txt": (
        "native-crash",
        "kernels.cpp:11",
        "at address 0x300 in gather_row (kernels.cpp:11), called from train.py:13",
    ),
    "pystack-abort.txt": ("native-crash", "kernels.cpp:15", "aborted (SIGABRT) in check_shape (kernels.cpp:15)"),
    "asan.log": (
        "native-crash",
        "k.cpp:3",
        "(pid 30122) made an invalid memory access: heap-buffer-overflow in gather_row (k.cpp:3)",
    ),
    "tsan_main.log": ("native-crash", "k.cpp:6", "data race in bump (k.cpp:6)"),
    "compute-sanitizer.log": (
        "gpu-fault",
        "kernels.cu:33",
        "Invalid __global__ write of size 4 bytes in scale_rows (kernels.cu:33)",
    ),
    "cuda-gdb.txt": ("gpu-fault", None, "Warp Illegal Address in scale_rows"),
    "coredumpctl-info.txt": (
        "native-crash",
        None,
        "on gpu-3 (pid 20075) crashed with SIGSEGV in gather_row (libkernels.so)",
    ),
    "coredumpctl-list.txt": ("native-crash", None, "(pid 20075) crashed with SIGSEGV"),
    "apport.crash": (
        "native-crash",
        "kernels.cpp:11",
        "Rank 3 (pid 20075) crashed with SIGSEGV in gather_row (kernels.cpp:11), table=NULL",
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_text_about_a_crash_names_the_code(name: str) -> None:
    category, code, words = EXPECTED[name]
    verdict = analyze(CRASHES / name).document["verdict"]
    assert (verdict["outcome"], verdict["category"], verdict["culprit"]["code"]) == ("incident", category, code)
    assert words in verdict["headline"]
    assert "better evidence" not in str(verdict["because"])


def test_a_run_that_goes_on_after_undefined_behavior_has_not_failed_of_it(tmp_path: Path) -> None:
    report = (CRASHES / "ubsan.log").read_text()
    (tmp_path / "rank0.log").write_text(report + "step 2 loss 0.4\nstep 3 loss 0.3\ntraining finished\n")
    assert analyze(tmp_path).document["verdict"]["outcome"] == "healthy"


def test_frames_of_the_interpreter_and_of_torch_are_not_the_users() -> None:
    for file in (
        "Python/ceval.c",
        "../csu/libc-start.c",
        "/pytorch/c10/util/Exception.cpp",
        "/usr/include/c++/12/thread",
    ):
        assert not crash.is_users(file)
    assert crash.is_users("/opt/train/kernels.cpp") and crash.is_users("kernels.cu")


# ── snapshots of GPU memory: synthetic, with the structure of torch/cuda/memory.py ──────────────────────────────────


def snapshot(steps: int = 10, oom: bool = True) -> dict[str, Any]:
    frames = [
        {"filename": "/opt/venv/lib/python3.11/site-packages/torch/nn/functional.py", "line": 2100, "name": "softmax"}
    ]
    frames.append({"filename": "/opt/train/attention.py", "line": 88, "name": "scores"})
    block = {"size": 1 << 30, "requested_size": 1 << 30, "state": "active_allocated", "frames": frames}
    idle = {"size": 15 << 30, "requested_size": 0, "state": "inactive", "frames": []}
    segment = {"device": 0, "total_size": 40 << 30, "allocated_size": 25 << 30, "blocks": [*([block] * 25), idle]}
    trace: list[dict[str, Any]] = [
        {"action": "alloc", "size": 512, "frames": frames, "time_us": i} for i in range(steps)
    ]
    trace += [{"action": "oom", "size": 2 << 30, "device_free": 22 << 20, "time_us": 1795208014000000}] if oom else []
    return {"segments": [segment], "device_traces": [trace], "allocator_settings": {}}


def test_a_snapshot_names_the_line_that_holds_most(tmp_path: Path) -> None:
    path = tmp_path / "snapshot_rank3.pickle"
    path.write_bytes(pickle.dumps(snapshot()))
    verdict = analyze(tmp_path).document["verdict"]
    assert verdict["category"] == "gpu-oom" and verdict["culprit"]["ranks"] == [3]
    assert "25.0 GiB of 40.0 GiB of GPU 0 are held by attention.py:88 scores" in verdict["headline"]
    assert any("15.0 GiB free in them" in line for line in verdict["evidence"][0]["context"])


def test_the_page_has_a_bar_for_each_line_of_code(tmp_path: Path) -> None:
    (tmp_path / "snapshot_rank3.pickle").write_bytes(pickle.dumps(snapshot()))
    incident = analyze(tmp_path)
    (row,) = incident.document["memory"]
    assert row["rank"] == 3 and [held["code"] for held in row["held"]][0].startswith("attention.py:88")
    page = render_html(incident)
    assert page.count("<meter ") == len(row["held"]) == 1 and f'max="{row["reserved"]}"' in page


def test_a_snapshot_without_a_failed_allocation_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(snapshot(oom=False)))
    assert analyze(tmp_path).document["verdict"]["outcome"] == "undetermined"


def test_of_a_cut_snapshot_the_segments_are_read(tmp_path: Path) -> None:
    data = pickle.dumps(snapshot(steps=5000))
    (tmp_path / "snapshot.pickle").write_bytes(data[: len(data) // 2])
    (tmp_path / "rank0.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    assert "held by attention.py:88 scores" in analyze(tmp_path).document["verdict"]["headline"]


def test_a_snapshot_with_code_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return print, ("run",)

    (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps({**snapshot(), "more": Evil()}))
    assert "builds more than plain data" not in str(analyze(tmp_path).document["verdict"]["outcome"])


def test_the_launcher_knows_the_signal_that_pystack_calls_a_segmentation_fault(tmp_path: Path) -> None:
    text = (CRASHES / "pystack-segv.txt").read_text()
    (tmp_path / "pystack.txt").write_text(text)
    pid = text.partition("pid: ")[2].partition(" ")[0]
    (tmp_path / "agent.log").write_text(
        "E1120 21:20:00.000000 17000 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: -7) "
        f"local_rank: 1 (pid: {pid}) of binary: /opt/venv/bin/python\n"
    )
    assert " crashed with SIGBUS " in analyze(tmp_path).document["verdict"]["headline"]
