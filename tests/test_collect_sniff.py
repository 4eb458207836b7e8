"""The kind of a file, by its name and its first lines: each row of `kinds.yaml` by its samples, and what is none."""

from __future__ import annotations

import pickle
import random

from postmortem.input.sniff import kind
from postmortem.system import forms

KINDS = forms.rows("input/kinds")
RING_BUFFER = KINDS["a kernel ring buffer"]["sample"][0]
LAUNCH = KINDS["lines of torchrun's logger"]["sample"][0]
CONSOLES = (
    ("slurm-42221.out", LAUNCH),
    ("none_zwxwqhe4/attempt_0/2/stderr.log", LAUNCH),
    ("x.log", 'Traceback (most recent call last):\n  File "torch/distributed/elastic/multiprocessing/errors/__init__.py", line 367, in wrapper\n'),
    ("run.log", "[rank1]:[E1118 20:32:23.955028747 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: x\n"),
    ("train.log", "2026-11-20 21:14:56,279 INFO [rank0] train: initializing process group backend=gloo\n"),
    ("job.log", "2026-11-20 22:36:50.846 engine INFO: job 8 task 1/3 on vm\n"),
    ("pod.log", "2026-11-20T22:36:50.846Z worker INFO: step 1 loss 0.5\n"),
    ("rank0.log", "2026-11-20T22:36:50.846Z INFO train: epoch 0 step 1 loss 0.5\n"),
    ("pod.log", "2026-11-20T22:36:50.846123Z Traceback (most recent call last):\n2026-11-20T22:36:50.846124Z RuntimeError: x\n"),
    ("slurm.err", "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=38205392.0.\nsrun: error: node117: task 0: Out Of Memory\n"),
    ("x.log", "[3] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device\n"),
    ("rank2.err", 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n  File "t.py", line 3 in f\n'),
    ("x", "[2022-07-26 19:14:55,449] [WARNING] [runner.py:159:fetch_hostfile] Unable to find hostfile\n"),
    ("session_latest/logs/worker-0a1b2c3d4e5f-01000000-23762.out", ":job_id:01000000\n:actor_name:TrainController\n"),
    ("x.txt", "EPOCH=1 LOSS=2.1\nEPOCH=2 LOSS=1.9\nEPOCH=3 LOSS=1.8\n"),
    ("x.txt", "a line without a form\n"),
    ("x.txt", ""),
)  # fmt: skip
OTHERS = (
    ("kernel", "kern.log.1", b""),
    ("kernel", "dmesg.txt.gz", b""),
    ("kernel", "x", b"\xef\xbb\xbf" + RING_BUFFER.encode()),
    ("kernel", "x", bytes(4096) + RING_BUFFER.encode()),
    ("json-lines", "attempt_0/0/stdout.log", b'{"asctime": "2026-11-20 22:33:15,660", "message": "x"}\n'),
)


def test_each_sample_has_the_kind_of_its_row() -> None:
    for why, row in KINDS.items():
        for sample in [row["sample"]] if isinstance(row["sample"], str) else row["sample"]:
            assert kind(row.get("path", "x.txt"), sample.encode()) == (row["kind"], why), sample


def test_other_files() -> None:
    assert {
        name: kind(name, head.encode()) for name, head in CONSOLES if kind(name, head.encode())[0] != "console"
    } == {}
    assert [kind(name, head)[0] for _, name, head in OTHERS] == [want for want, _, _ in OTHERS]


def test_pickles_are_flight_recorders_by_their_keys_and_never_loaded() -> None:
    dump = pickle.dumps({"version": "2.10", "pg_config": {}, "entries": []}, protocol=2)
    assert kind("fr_rank0.pkl", dump)[0] == kind("nccl_trace_rank_0", dump)[0] == "flight-recorder"
    hostile = b"\x80\x04cposix\nsystem\n(X\x02\x00\x00\x00idtR."
    assert kind("fr_rank0.pkl", hostile) == ("binary", "binary (pickle)")


def test_text_with_nuls_is_text_and_data_is_not() -> None:
    text = b"step 12 loss 0.25 of rank 3\n" * 200
    assert kind("a.log", text + bytes(8000) + text)[0] == "console", "a page that the disk lost"
    assert kind("a.log", text.replace(b"loss", b"los\0"))[0] == "console", "a NUL in each line"
    assert kind("a.log", bytes(65536))[0] == "console", "logrotate truncated it, the writer went on where it was"
    assert kind("a.log", "损失 0.25 训练\n".encode("gbk") * 300)[0] == "console", "an encoding of before UTF-8"
    assert kind("a.log", "\x1b[36m(TrainController pid=23641)\x1b[0m é\n".encode() * 100)[0] == "console"
    for noise in (random.Random(0).randbytes(20_000), b"".join(n.to_bytes(8, "little") for n in range(8000))):
        assert kind("a.log", noise) == ("binary", "binary (no text)")


def test_deep_json_does_not_exhaust_the_stack() -> None:
    assert kind("x.jsonl", b'{"a":' * 30_000)[0] in ("console", "json-lines")
