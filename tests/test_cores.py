"""Core files. The cores are those of sample_logs: real ones, cut by scripts/cut_core.py to what is read of them."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import resource
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard
from gathered import document, members
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT, needs, python
from postmortem import blocks, documents, reading
from postmortem.analyze import analyze
from postmortem.documents import core
from postmortem.input import collect
from postmortem.library import load
from postmortem.model import Event, Source
from postmortem.system import core_files
from postmortem.system.core_files import Core

CORES = {
    path.parent.parent.name: gzip.decompress(path.read_bytes()) for path in ROOT.glob("sample_logs/*/logs/core.*.gz")
}
NULL = CORES["core-null-table-no-kernel-log"]
HEAD, ROW = 64, 56


def crash(data: bytes, name: str = "core.8766") -> Event:
    return next(e for e in read(data, name) if e.kind == "crash")


def read(data: bytes, name: str = "core.8766") -> list[Event]:
    """Read a core as one that is compressed: forward only."""
    source = Source(name, "core", len(data))
    return blocks.parse_parts(source, documents.Parts(Forward(data)), load())


class Forward:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def read(self, n: int) -> bytes:
        self.at += n
        return self.data[self.at - n : self.at]

    def read_at(self, at: int, n: int) -> bytes | None:
        return None

    def pass_over(self, n: int) -> int:
        return len(self.read(n))


def rows(data: bytes) -> list[list[int]]:
    count = struct.unpack_from("<H", data, 56)[0]
    return [list(row) for row in struct.iter_unpack("<IIQQQQQQ", data[HEAD : HEAD + ROW * count])]


def changed(data: bytes, at: int, form: str, value: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(form, out, at, value)
    return bytes(out)


def test_a_core_names_rank_signal_address_module_and_command() -> None:
    e = crash(NULL, "core.python.8766.node-a.1795897490")
    assert (e.rank, e.pid, e.host, e.time) == (1, 8766, "node-a", 1795897490)
    assert e.fields["signal"] == "SIGSEGV" and e.fields["detail"] == "at address 0x300 in libkernels.so+0x467e"
    assert "`/opt/train/venv/bin/python -u train.py segv`" in e.text and "main thread of 4" in e.text
    assert "WORLD_SIZE=4" in e.context[1] and "TORCHELASTIC_RUN_ID" in e.context[1]


def test_the_thread_that_crashed_need_not_be_the_main_one() -> None:
    assert ", thread " in crash(CORES["core-crash-in-thread"]).text


def test_a_bus_error_names_the_mapped_file() -> None:
    assert "of the mapped file /dev/shm/batches_1" in crash(CORES["core-dev-shm-full"]).text


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("core.8766.gz", gzip.compress),
        ("core.8766.xz", lzma.compress),
        ("core.8766.lz4", lz4.frame.compress),
        ("core.python3.0.bc02b0a7404d4ec2a28e0ab2471d5b03.8766.1795897490000000.zst", zstandard.compress),
        ("core", bytes),
    ],
)
def test_a_core_alone_is_an_incident_however_it_is_packed(name: str, pack: Any, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(pack(NULL))
    incident = analyze(tmp_path)
    assert incident.document["verdict"]["headline"].startswith("Rank 1 ")
    assert (
        "(pid 8766) crashed with SIGSEGV at address 0x300 in libkernels.so" in incident.document["verdict"]["headline"]
    )
    ledger = incident.document["ledger"]
    assert ledger["bytes"] == ledger["scanned"] + sum(row["bytes"] for row in ledger["skipped"])


def test_nothing_of_the_environment_but_the_listed_names_is_read_out(tmp_path: Path) -> None:
    secret = b"WANDB_API_KEY=planted-4f1c0de2"
    at = NULL.index(b"_=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")
    planted = NULL[:at] + secret + NULL[at + len(secret) :]
    assert b"planted" in planted and len(planted) == len(NULL)
    (tmp_path / "core.1").write_bytes(planted)
    (tmp_path / "core.2").write_bytes(planted.replace(b"MASTER_ADDR=", b"MASTER_ADDX="))
    incident = analyze(tmp_path)
    events = [e for found in reading.read_all(collect([str(tmp_path)]).containers) for e in found.events]
    for text in (str(incident.document), incident.timeline.to_csv(), str(events)):
        assert "planted" not in text and "MASTER_ADDX" not in text


def test_a_cut_core_gives_what_is_there_and_names_what_is_missing(tmp_path: Path) -> None:
    events = read(NULL[:-60000])
    assert [e.pid for e in events if e.kind == "crash"] == [8766]
    texts = [e.text for e in events if e.kind == "unreadable"]
    assert any("without the part that has the environment" in text for text in texts)
    (tmp_path / "core").write_bytes(NULL[:-60000])
    lost = [row["reason"] for row in analyze(tmp_path).document["ledger"]["skipped"] if row.get("lost")]
    assert any("cut: the file ends before" in reason for reason in lost)


def test_damaged_headers_and_notes_cost_one_sentence() -> None:
    note = rows(NULL)[0]
    assert note[0] == 4
    many = (
        NULL[:56]
        + struct.pack("<H", 65534)
        + NULL[58:64]
        + (struct.pack("<IIQQQQQQ", *[1, 0, 0, 1 << 12, 0, 1 << 60, 0, 0]) * 65534)
    )
    overlapping = b"".join(
        struct.pack("<IIQQQQQQ", *(row if row[0] == 4 else [1, 0, 0, 0, 0, 1 << 47, 0, 0])) for row in rows(NULL)
    )
    for data in (
        many,
        NULL[:HEAD] + overlapping + NULL[HEAD + len(overlapping) :],
        changed(NULL, note[2] + 4, "<I", 0xFFFFFFFF),
        changed(NULL, HEAD + 32, "<Q", 1 << 60),
        changed(NULL, HEAD + 8, "<Q", (1 << 64) - 5),
        changed(NULL, 32, "<Q", (1 << 63) + 17),
        NULL[:20],
        NULL[:64],
        NULL[:4] + b"\1" + NULL[5:],
    ):
        assert [e for e in read(data) if e.kind == "unreadable"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60000), st.binary(min_size=1, max_size=8)), max_size=30), st.integers(0, 210000)
)
def test_no_core_makes_the_reader_raise(changes: list[tuple[int, bytes]], length: int) -> None:
    data = bytearray(NULL)
    for at, piece in changes:
        data[at : at + len(piece)] = piece
    list(core.parse(Source("core", "core", length), documents.Parts(Forward(bytes(data[:length])))))


def test_a_core_of_another_process_does_not_accuse(tmp_path: Path) -> None:
    """The logs of one run, and the core of another that was left in the folder."""
    for path in (ROOT / "sample_logs/core-null-table-no-kernel-log/logs").rglob("*.*"):
        if path.is_file() and not path.name.startswith("core"):
            target = tmp_path / path.relative_to(path.parents[len(path.parents) - 1])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    (tmp_path / "core.8804").write_bytes(CORES["core-dev-shm-full"])
    verdict = analyze(tmp_path).document["verdict"]
    assert verdict["category"] == "native-crash" and 8804 not in verdict["culprit"]["pids"]


CRASH = """\
import ctypes

note = "planted-memory-" + "5f2b9c0d" * 3

def gather_row(table, row):
    return ctypes.string_at(table + 256 * row)

gather_row(0, 3)
"""


def unlimited() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)


def crashed(folder: Path, **more: str) -> int:
    """Run a rank that crashes in `folder`; return its pid."""
    (folder / "train.py").write_text(CRASH)
    env = {**os.environ, "RANK": "3", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "run7", **more}

    words = [sys.executable, "train.py", "--api-key=planted-argument-99aa77"]
    rank = subprocess.Popen(words, env=env, cwd=folder, preexec_fn=unlimited)
    assert rank.wait() == -signal.SIGSEGV
    return rank.pid


@needs("core files", "pystack")
def test_an_archive_has_what_the_core_of_a_dead_rank_states_and_nothing_of_its_memory(tmp_path: Path) -> None:
    """The logs are lost, and the kernel's log is that of a host with other jobs."""
    secrets = {"WANDB_API_KEY": "planted-variable-4f1c0de2", "NCCL_TOKEN_SECRET": "planted-token-77"}
    pid = crashed(tmp_path, **secrets)
    archive = tmp_path / "archive.tar.zst"
    done = python("-m", "postmortem", "collect", "-o", archive, "--job", "run7", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = {name: data for name, data in members(archive).items() if "/core/" in name}
    assert sorted(name.rpartition(".")[2] for name in found) == ["json", "txt"]
    assert sum(map(len, found.values())) < 100_000 and not any(b"planted" in data for data in members(archive).values())
    verdict = document(archive)["verdict"]
    assert f"Rank 3 on {os.uname().nodename} (pid {pid}) crashed with SIGSEGV at address 0x300" in verdict["headline"]
    assert verdict["culprit"]["code"] == "train.py:6" and "planted" not in str(verdict)


@needs("core files")
def test_a_core_of_another_job_is_not_collected(tmp_path: Path) -> None:
    crashed(tmp_path)
    archive = tmp_path / "archive.tar.zst"
    python("-m", "postmortem", "collect", "-o", archive, "--job", "run8", cwd=tmp_path)
    assert not [name for name in members(archive) if "/core/" in name]


@needs("core files")
def test_run_names_the_core_and_saves_what_it_states(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CRASH)
    env = {"RANK": "3", "LOCAL_RANK": "0", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "run7"}
    words = ("-m", "postmortem", "run", "--folder", "runs", "--without", "hook", "--", sys.executable, "train.py")
    done = python(*words, cwd=tmp_path, env=env, preexec_fn=unlimited)
    (saved,) = tmp_path.glob("runs/*/core.*.json")
    journal = saved.with_name("run.jsonl").read_text()
    assert f"a core of rank 3 (pid {saved.suffixes[0][1:]}) was written: {tmp_path}/core" in journal
    assert "crashed: segmentation fault in train.py:6" in " ".join(done.stderr.split()), "by faulthandler's stack"


@needs("core files")
def test_where_a_handler_raised_the_signal_again_the_core_has_no_place(tmp_path: Path) -> None:
    pid = crashed(tmp_path, PYTHONFAULTHANDLER="1")
    path = core_files.find(pid, str(tmp_path))
    found = core_files.read(core_files.File(path))
    assert found.raised and not found.place and found.address == -1
    verdict = analyze(path).document["verdict"]
    assert verdict["headline"] == f"Rank 3 (pid {pid}) crashed with SIGSEGV." and verdict["confidence"] == "supported"


@settings(max_examples=40, deadline=None)
@given(st.recursive(st.none() | st.integers() | st.text() | st.floats(), lambda x: st.lists(x, max_size=3)))
def test_no_collected_core_makes_the_reader_raise(value: Any) -> None:
    names = (*Core.__dataclass_fields__, "core_file", "written")
    for name in names:
        record = {"core_file": "core", "pid": 7, "threads": 1, "signal": 11, "environment": {"RANK": "1"}, name: value}
        list(core.head(Source("core.json", "core-head", 0), json.dumps(record).encode()))
