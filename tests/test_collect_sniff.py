"""The kind of a file, by its name and its first lines: each row of `kinds.yaml` by its samples, and what is none; and the
facts in a path, and names that must not be taken for one."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

from conftest import table
from postmortem.input import Identity, identify
from postmortem.input.names import source
from postmortem.input.sniff import kind
from postmortem.system import forms

KINDS = forms.rows("input/kinds")
RING_BUFFER = KINDS["a kernel ring buffer"]["sample"][0]
LAUNCH = KINDS["lines of torchrun's logger"]["sample"][0]
LOGGER = ("slurm-42221.out", "none_zwxwqhe4/attempt_0/2/stderr.log")
CONSOLES = [*((name, LAUNCH) for name in LOGGER), *table("collect_sniff")["consoles"]]
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


def test_torchruns_tree_has_everything_but_the_rank() -> None:
    found = identify("node-a/torchelastic/none_zwxwqhe4/attempt_1/2/stderr.log")
    assert found == Identity("node-a", None, 2, 1, "none_zwxwqhe4", "stderr")
    packed = identify("job_77_u_3q8ac3/attempt_0/15/error.json.gz")
    assert packed == Identity(None, None, 15, 0, "job_77_u_3q8ac3", None)
    path = Path("/data/none_zwxwqhe4/attempt_0/2/stdout.log")
    assert identify("2/stdout.log", path).run == "none_zwxwqhe4", "from inside the tree"
    assert identify("b.tar!/2/stdout.log", Path("/data/none_zwxwqhe4/attempt_0/b.tar")).run is None


def test_ranks_hosts_and_streams() -> None:
    for fact in ("rank", "host", "stream"):
        known = table("collect_names")[f"{fact}s"]
        assert {label: getattr(identify(label), fact) for label in known} == known
    assert identify("local_rank_3.log")[1:3] == identify("node-b/localrank3.err")[1:3] == (None, 3)


def test_a_task_is_a_rank_only_without_a_launcher_inside() -> None:
    path = Path("/x/task_3.out")
    assert source("task_3.out", "console", 1, path, b"step 1\n").rank == 3
    assert source("task_3.out", "agent", 1, path, b"").rank is None
    assert source("task_3.out", "console", 1, path, b"W1120 torch/distributed/run.py:874] x\n").rank is None


def test_the_given_folder_itself_may_be_a_host() -> None:
    assert identify("agent.err", Path("/logs/node-b/agent.err")).host == "node-b"
    assert identify("rank0.log", Path("/mnt/nfs01/rank0.log")).host is None
