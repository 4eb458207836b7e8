"""Texts about a crash, in tests/data/crashes: by gdb 13, pystack 1.7 and gcc 12's sanitizers of real runs with torch 2.13 (paths
shortened); journal-verbose.txt and coredumpctl-list.json are of systemd 252, valgrind-*.log of Valgrind 3.19, lldb.txt of lldb 14,
and eu-stack.txt of elfutils 0.188. The other texts of coredumpctl, and those of apport, compute-sanitizer and cuda-gdb have the form of their manuals, and are synthetic."""

from __future__ import annotations

import base64
import gzip
import io
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT, table
from postmortem import documents
from postmortem.analyze import analyze
from postmortem.documents import crash
from postmortem.model import Source
from postmortem.report.html import render_html

CRASHES = ROOT / "tests" / "data" / "crashes"
EXPECTED = table("crash_texts")["expected"]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_text_about_a_crash_names_the_code(name: str) -> None:
    category, code, words = EXPECTED[name]
    verdict = analyze(CRASHES / name).document["verdict"]
    assert (verdict["outcome"], verdict["category"], verdict["culprit"]["code"]) == ("incident", category, code)
    assert words in verdict["headline"]
    assert "better evidence" not in str(verdict["because"])


@pytest.mark.parametrize("packed", [False, True])
def test_a_secret_in_an_entry_of_the_journal_is_not_shown(packed: bool, tmp_path: Path) -> None:
    text = (
        (CRASHES / "journal-verbose.txt")
        .read_text()
        .replace("HOME=/root", "HOME=/root\n                     WORD=hunter2")
    )
    if packed:  # -o json: the order of the fields is that of a hash
        fields = {
            "COREDUMP_ENVIRON": "WORD=hunter2\nRANK=5",
            "COREDUMP_PID": "20340",
            "COREDUMP_SIGNAL_NAME": "SIGSEGV",
        }
        text = json.dumps(fields | {"COREDUMP_EXE": "/usr/bin/python3"})
    (tmp_path / "journal.txt").write_text(text)
    incident = analyze(tmp_path)
    assert incident.document["verdict"]["culprit"]["ranks"] == [5]
    assert "hunter2" not in str(incident.document) + str(incident.timeline.to_dict())


def test_what_is_printed_after_a_race_does_not_make_a_run_healthy(tmp_path: Path) -> None:
    report = (CRASHES / "tsan_main.log").read_text()
    (tmp_path / "rank0.log").write_text(report + "step 2 loss 0.4\nstep 3 loss 0.3\ndone\n")
    assert analyze(tmp_path).document["verdict"]["pattern"] == "sanitizer-undefined-behavior"


def test_the_stacks_of_a_living_process_are_no_failure() -> None:
    assert analyze(CRASHES / "eu-stack.txt").document["verdict"]["outcome"] == "undetermined"


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
    bars = render_html(incident).partition('<table class="bars" aria-label="GPU memory by line of code">')[2]
    bars = bars.partition("</table>")[0]
    assert bars.count("<svg ") == len(row["held"]) == 1 and "attention.py:88 scores" in bars and 'class="rest"' in bars


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


# ── what other programs keep of a crash: synthetic, as their sources write it ───────────────────────────────────────────


def minidump(variables: bytes = b"RANK=3\0WORLD_SIZE=8\0WANDB_API_KEY=planted-4f1c\0", signal: int = 11) -> bytes:
    """Breakpad's minidump_format.h: streams of the exception, the modules, and copies of files of /proc."""
    base, at = 0x7F0000000000, 24 + 12 * 5
    name = "/opt/train/libkernels.so".encode("utf-16-le")
    streams: dict[int, bytes] = {}
    streams[0x47670004] = b"Name:\tpython3\nPid:\t4242\nThreads:\t4\n"
    streams[0x47670006] = b"python3\0-u\0train.py\0"
    streams[0x47670007] = variables
    after = at + sum(map(len, streams.values())) + 168 + 112
    streams[6] = struct.pack("<4IQQ2I15Q2I", 4242, 0, signal, 0, 0, 0x300, 0, 0, *[0] * 15, 1232, after)
    module = struct.pack("<QIIII", base, 0x10000, 0, 0, after + 1232)
    streams[4] = struct.pack("<I", 1) + module.ljust(108, b"\0")
    context = bytes(248) + struct.pack("<Q", base + 0x1149) + bytes(1232 - 256)
    rows = b""
    for kind, data in streams.items():
        rows += struct.pack("<3I", kind, len(data), at)
        at += len(data)
    assert at == after
    head = b"MDMP" + struct.pack("<5I", 0xA793, 5, 24, 0, 1795895410)
    return head + rows + b"".join(streams.values()) + context + struct.pack("<I", len(name)) + name


def test_a_minidump_names_rank_signal_address_and_module(tmp_path: Path) -> None:
    (tmp_path / "b9a2c7d0.dmp").write_bytes(minidump())
    document = analyze(tmp_path).document
    headline = document["verdict"]["headline"]
    assert headline.startswith("Rank 3 (pid 4242) crashed with SIGSEGV at address 0x300 in libkernels.so+0x1149 at ")
    assert "planted" not in str(document)


@given(st.lists(st.tuples(st.integers(0, 700), st.binary(min_size=1, max_size=8)), max_size=20), st.integers(0, 1900))
def test_no_minidump_makes_the_reader_raise(changes: list[tuple[int, bytes]], length: int) -> None:
    data = bytearray(minidump())
    for at, piece in changes:
        data[at : at + len(piece)] = piece
    data = data[:length]
    list(documents.IN_PARTS["minidump"](Source("x.dmp", "minidump", len(data)), documents.Parts(Bytes(data)), ""))


class Bytes(io.BytesIO):
    """A stream that can be read at any place."""

    def read_at(self, at: int, n: int) -> bytes:
        return self.getvalue()[at : at + n]

    def pass_over(self, n: int) -> int:
        return len(self.read(n))


def test_a_folder_of_abrt_names_the_rank_and_the_signal(tmp_path: Path) -> None:
    folder = tmp_path / "ccpp-2026-11-20-20:59:37.123-4242"
    folder.mkdir()
    files = {"reason": "python3.11 killed by SIGSEGV", "environ": "RANK=3\nWANDB_API_KEY=planted-4f1c\n", "uid": "1000"}
    files |= {"executable": "/usr/bin/python3.11", "cmdline": "python -u train.py", "last_occurrence": "1795208377"}
    for name, text in files.items():
        (folder / name).write_text(text)
    document = analyze(tmp_path).document
    assert document["verdict"]["headline"].startswith("Rank 3 (pid 4242) crashed with SIGSEGV")
    assert "planted" not in str(document)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_the_core_in_a_report_of_apport_is_read(pack: Any, tmp_path: Path) -> None:
    """A real core of a rank, in the form that problem_report.py writes."""
    core = gzip.decompress(next((ROOT / "sample_logs/core-null-table-no-kernel-log/logs").glob("core.*")).read_bytes())
    packed = pack(core)
    lines = [b" " + base64.b64encode(packed[at : at + 4096]) for at in range(0, len(packed), 4096)]
    head = b"ProblemType: Crash\nDate: Fri Nov 20 20:59:37 2026\nExecutablePath: /usr/bin/python3.11\nSignal: 11\n"
    head += b"CoreDump: base64\n"
    (tmp_path / "_usr_bin_python3.11.0.crash").write_bytes(head + b"\n".join(lines) + b"\n")
    headline = analyze(tmp_path).document["verdict"]["headline"]
    assert "Rank 1 " in headline and "(pid 8766) crashed with SIGSEGV at address 0x300 in libkernels.so" in headline
    assert "20:59:37" in headline
