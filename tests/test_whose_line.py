"""Whose line it is: prefixes, numbers of files, the launcher's list; and what looks like a rank and is none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from postmortem.analyze import analyze
from postmortem.blocks import read_text
from postmortem.diagnose.numbering import numbered
from postmortem.diagnose.same import stem
from postmortem.formats.envelope import learn, peel
from postmortem.model import Source

TRACE = 'Traceback (most recent call last):\n  File "/opt/train.py", line 29, in main\n    step()\n'
LOST = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1117"


def ranks_of(names: list[str], world: int | None = None, said: Mapping[str, int] = {}) -> dict[str, int]:
    from collections import Counter

    sources = [Source(name, "console", 1) for name in names]
    stems = {name: stem(name) for name in names}
    votes = {stem(name): Counter([rank]) for name, rank in said.items()}
    found = numbered(sources, stems, votes, world)
    return {name: found[stems[name]] for name in names if stems[name] in found}


@pytest.mark.parametrize(
    "names",
    [
        ["train-r0.log", "train-r1.log", "train-r1.log.1", "train-r1.log.2.gz"],
        ["proc_0.txt", "proc_1.txt"],
        ["s/p0.out", "s/p0.err", "s/p1.out", "s/p1.err"],
    ],
)
def test_ranks_by_the_word_before_the_number(names: list[str]) -> None:
    found = ranks_of(names)
    assert set(found) == set(names)
    assert found[names[0]] == 0 and found[names[-1]] == 1


@pytest.mark.parametrize("names", [["go.0.log", "go.1.log"], ["gnn.0.log", "gnn.1.log"], ["f1-0.txt", "f2-1.txt"]])
def test_ranks_by_the_size_of_the_job(names: list[str]) -> None:
    assert ranks_of(names) == {}
    assert ranks_of(names, 2) == {names[0]: 0, names[1]: 1}
    assert ranks_of(names, 8) == {}


def test_ranks_by_what_one_of_them_says() -> None:
    names = ["worker-00.log", "worker-01.log", "worker-02.log"]
    assert ranks_of(names, 16) == {}
    assert ranks_of(names, 16, {names[2]: 2}) == {name: i for i, name in enumerate(names)}
    assert ranks_of(names, 16, {names[2]: 5}) == {}


@pytest.mark.parametrize(
    ("names", "world"),
    [
        (["node0.log", "node1.log"], 2),
        (["attempt0.log", "attempt1.log"], 2),
        (["p1.log", "p2.log"], None),
        (["p0.log", "p1.log", "p2.log"], 2),
        (["a0-p0.log", "a1-p0.log", "a0-p1.log", "a1-p1.log"], None),
    ],
)
def test_other_things_are_numbered_too(names: list[str], world: int | None) -> None:
    assert ranks_of(names, world) == {}


@pytest.mark.parametrize(
    ("line", "rank", "local"),
    [
        ("[rank0]:[rank2]: ValueError: x", 2, 0),
        ("[trainer0]:[rank2]: ValueError: x", 2, 0),
        ("[default1]:[rank3]: ValueError: x", 3, 1),
        ("[rank0]: [rank2] is gone", 0, None),
        ("[2/3] c++ -MMD -MF main.o.d -DTORCH_EXTENSION_NAME=fused", None, None),
        ("[3/8] loading shards", None, None),
        ("python -m launch --local_rank=0 --node-rank=1 train.py", None, None),
        ("local rank: 0 ready", None, None),
        ("rank=1 batch 8", 1, None),
    ],
)
def test_prefixes_and_what_looks_like_them(line: str, rank: int | None, local: int | None) -> None:
    assert (peel(line).rank, peel(line).local_rank) == (rank, local)


def test_a_column_of_ranks_is_told_from_progress() -> None:
    ranks = [f"[{i % 3}/3] step {i // 3}" for i in (0, 2, 1, 3, 5, 4, 7, 6, 8, 9, 11, 10, 13, 12, 14)]
    assert peel(ranks[1], learn(ranks)).rank == 2
    progress = [f"[{i}/9] compile part {i}" for i in range(1, 10)]
    assert peel(progress[1], learn(progress)).rank is None
    angles = [f"<r{i % 3}> tile {i}" for i in (0, 2, 1, 3, 5, 4, 7, 6, 8, 9, 11, 10, 13, 12, 14)]
    assert peel(angles[1], learn(angles)).rank == 2


def verdict(tmp_path: Path, **files: str) -> dict[str, object]:
    for name, text in files.items():
        (tmp_path / name.replace("__", ".")).write_text(text)
    return dict(analyze([str(tmp_path)]).document["verdict"])


def culprits(tmp_path: Path, **files: str) -> object:
    told = verdict(tmp_path, **files)
    assert told["outcome"] == "incident"
    culprit = told["culprit"]
    assert isinstance(culprit, dict)
    return culprit["ranks"]


def test_one_prefixed_line_does_not_make_a_console_a_ranks(tmp_path: Path) -> None:
    warning = (
        "[rank0]:[W1122 00:32:19.446476778 ProcessGroupNCCL.cpp:1479] Warning: destroy_process_group() was not called\n"
    )
    assert culprits(tmp_path, train__log=f"world_size: 4\n{TRACE}ValueError: label 91\n{warning}") == []


def listed(*codes: int) -> str:
    head = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n" + "=" * 60 + "\nFailures:\n"
    return head + "".join(
        f"[{r}]:\n  time      : 2026-11-22_08:43:49\n  host      : localhost\n  rank      : {r} (local_rank: {r})\n"
        f"  exitcode  : {code} (pid: {2800 + r})\n  error_file: <N/A>\n"
        for r, code in enumerate(codes)
    )


def test_the_one_that_failed_by_itself_raised_what_nobody_else_did(tmp_path: Path) -> None:
    text = f"{TRACE}ValueError: label 91 in shard 7\n{listed(-15, -15, 1, -15)}"
    assert culprits(tmp_path, console__log=text) == [2]


def test_heads_that_stand_together_have_their_own_exceptions(tmp_path: Path) -> None:
    head, *frames = TRACE.splitlines(keepends=True)
    both = head * 2 + "".join(line * 2 for line in frames)
    text = f"{both}{LOST}1\n{LOST}2\n{TRACE}ValueError: label 91 in shard 7\n{listed(-15, 1, -15)}"
    events = [e for e in read_text(text) if e.kind == "exception" and not e.fields.get("wrapper")]
    assert [e.fields["line"] for e in events] == [f"{LOST}1", f"{LOST}2", "ValueError: label 91 in shard 7"]
    assert culprits(tmp_path, console__log=text) == [1]


def test_all_that_failed_alike_raised_it(tmp_path: Path) -> None:
    error = "ModuleNotFoundError: No module named 'fused_adam_ext'\n"
    assert culprits(tmp_path, console__log=f"{TRACE}{error}{TRACE}{error}{listed(1, 1)}") == [0, 1]


def test_what_a_rank_says_in_its_name_it_said_before(tmp_path: Path) -> None:
    error = "CUDA error: uncorrectable ECC error encountered"
    later = f"[E ProcessGroupNCCL.cpp:916] [Rank 1] NCCL watchdog thread terminated with exception: {error}\n"
    assert culprits(tmp_path, train__log=f"{TRACE}RuntimeError: {error}\n{later}") == [1]


BOX = """\
[rank1]: ╭───────────────── Traceback (most recent call last) ─────────────────╮
[rank1]: │ /opt/train/train.py:23 in <module>                                  │
[rank1]: │                                                                     │
[rank1]: │   20 │   if step == 31:                                             │
[rank1]: │ ❱ 23 main()                                                         │
[rank1]: │                                                                     │
[rank1]: │ /opt/train/a/folder/of/a/very/long/name/that/does/not/fit/data.py:1 │
[rank1]: │ 0 in encode                                                         │
[rank1]: │ ❱ 10 │   return [vocab[token] for token in line]                    │
[rank1]: │ ╭──────── locals ────────╮                                          │
[rank1]: │ │ at = data.py:99 in x   │                                          │
[rank1]: │ ╰────────────────────────╯                                          │
[rank1]: ╰─────────────────────────────────────────────────────────────────────╯
[rank1]: ValueError: example 17 of the shard has 32 tokens, but the labels have
[rank1]: 31
"""


def test_a_box_is_a_traceback() -> None:
    event = next(e for e in read_text(BOX) if e.kind == "exception")
    assert event.fields["line"] == "ValueError: example 17 of the shard has 32 tokens, but the labels have 31"
    assert event.fields["code"] == "data.py:10"
    assert (event.rank, event.where.line) == (1, 14)


STYLES = {
    "mpich": "[{r}] {line}",
    "prrte": "[prterun-node-81231@1,{r}]<stderr>: {line}",
    "torchrun --tee": "[default{r}]:{line}",
    "a role": "[trainer{r}]:{line}",
    "docker compose": "trainer-{r}  | {line}",
    "replicas of compose": "rank{r}-1  | {line}",
    "kubectl --prefix": "[pod/train-worker-{r}/pytorch] {line}",
    "stern": "train-worker-{r} pytorch {line}",
    "parallel --tag": "{r}\t{line}",
    "own": "[worker-{r}] {line}",
    "own, short": "R{r}: {line}",
    "own, in words": "(rank {r}) {line}",
    "behind a date": "20261122-1306{r}4 worker={r} {line}",
    "behind a time and a level": "11-22 13:19:1{r},204 INFO [local {r}] {line}",
    "with a pid": "[bench {r}/3 pid 3248{r}] {line}",
    "behind what transformers' examples log": "11/22/2026 16:09:5{r} - INFO - __main__ - rank {r} {line}",
    "hashes": "#{r}# {line}",
    "logger -s": "<13>Nov 22 13:26:38 summ-rank{r}[1096{r}]: {line}",
    "a name with a number": "2026-11-22 15:26:15,743 ignite.engine.Engine[{r}] INFO: {line}",
    "a name, a slash": "[2026-11-22 15:19:07.225201] NOTICE: OCR/{r}: {line}",
    "logfmt": 'at=2026-11-22T13:21:4{r}+0000 lvl=info worker={r} msg="{line}"',
}


def common(style: str, world: str) -> str:
    head, *frames = TRACE.splitlines()
    lines = [(r, f"step {i} loss 2.1") for i in range(5) for r in (1, 0, 2)]
    lines += [(r, world) for r in (2, 0, 1)]
    failing = [(1, line) for line in (head, *frames, "ValueError: label 91 in shard 7")]
    lost = [(r, line) for r in (0, 2) for line in (head, *frames, f"{LOST}{r}")]
    return "".join(STYLES[style].format(r=r, line=line) + "\n" for r, line in lines + failing + lost)


@pytest.mark.parametrize("style", STYLES)
def test_numbered_writers_are_ranks_where_there_is_one_for_each(style: str, tmp_path: Path) -> None:
    assert culprits(tmp_path, job__log=common(style, "up, world size 3")) == [1]


@pytest.mark.parametrize("style", ["docker compose", "kubectl --prefix", "torchrun --tee"])
def test_and_not_where_a_writer_may_be_of_several(style: str, tmp_path: Path) -> None:
    assert culprits(tmp_path, job__log=common(style, "up, world size 24")) == []


def test_epochs_that_rise_are_no_writers() -> None:
    lines = [f"layer {i}: norm 0.{k}" for k in range(3) for i in range(4)]
    assert not learn(lines).lead
    assert not learn([f"step {i}: loss 2.1" for i in range(20)]).lead


def test_the_local_rank_of_a_nodes_console_is_that_nodes(tmp_path: Path) -> None:
    error = "[default1]:ModuleNotFoundError: No module named 'fused_adam_ext'\n"
    trace = "".join(f"[default1]:{line}\n" for line in TRACE.splitlines())
    other = "".join(f"[default1]:{line}\n" for line in (*TRACE.splitlines(), f"{LOST}1"))
    lists = [
        listed(1, 1),
        listed(1, 1).replace("rank      : 1", "rank      : 3").replace("rank      : 0", "rank      : 2"),
    ]
    assert culprits(tmp_path, a1__console=other + lists[0], a2__console=trace + error + lists[1]) == [3]


REFUSED = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/opt/train/fraud.py", line 9, in <module>
[rank1]:     s = socket.create_connection(("127.0.0.1", 6390), timeout=3)
[rank1]:   File "/usr/lib/python3.11/socket.py", line 836, in create_connection
[rank1]:     sock.connect(sa)
[rank1]: ConnectionRefusedError: [Errno 111] Connection refused

[rank1]: The above exception was the direct cause of the following exception:

[rank1]: Traceback (most recent call last):
[rank1]:   File "/opt/train/fraud.py", line 10, in <module>
[rank1]:     raise RuntimeError("feature store is gone") from e
[rank1]: RuntimeError: feature store is gone
"""


def test_a_service_that_refuses_is_no_peer_and_the_programs_word_for_it_counts(tmp_path: Path) -> None:
    peer = "".join(f"[rank0]: {line}\n" for line in (*TRACE.splitlines(), f"{LOST}1"))
    assert culprits(tmp_path, job__log=REFUSED + peer) == [1]
    inside = REFUSED.replace("/usr/lib/python3.11/socket.py", "/opt/venv/torch/distributed/rendezvous.py")
    assert culprits(tmp_path, job__log=inside + peer) == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("rank 1 on tcp://192.0.2.7:44285 pid 17797", (1, 17797)),
        ("2026-11-22 11:56:02 INFO Rank 3 (node-a) running, pid=4711", (3, 4711)),
        ("rank 1 started a data worker, pid 17797", None),
        ("rank 1 lost its peer, pid 17797", None),
        ("gave rank 1 of pid 17797 up", None),
    ],
)
def test_a_rank_that_introduces_itself_with_its_pid(line: str, told: tuple[int, int] | None) -> None:
    found = [(e.rank, e.fields["pid"]) for e in read_text(line + "\nready\n") if e.kind == "pid"]
    assert found == ([told] if told else [])


NO_IFACE = TRACE + "RuntimeError: ifa != nullptr. Unable to find address for: ib9\n"


def test_a_complaint_once_for_each_rank_of_one_node_is_of_all_its_ranks(tmp_path: Path) -> None:
    second = listed(-15, 1).replace("rank      : 1", "rank      : 3").replace("rank      : 0", "rank      : 2")
    waited = (
        TRACE + "torch.distributed.DistStoreError: wait timeout after 15000ms, keys: /default_pg/0//cpu//0/2\n"
    ) * 2
    files = {"a1__log": waited + listed(1, 1), "a2__log": NO_IFACE * 2 + second}
    assert culprits(tmp_path, **files) == [2, 3]
    files["a2__log"] = NO_IFACE * 3 + second
    assert culprits(tmp_path, **files) == []


LOGGED = """\
2026-11-22 11:59:10 [error    ] step failed                    rank=1
Traceback (most recent call last):
  File "/srv/warm.py", line 7, in <module>
    store.wait(keys)
ValueError: no such key

2026-11-22 11:59:11 [info     ] leaving                        rank=0
"""


def test_a_traceback_below_a_loggers_error_is_the_loggers() -> None:
    event = next(e for e in read_text(LOGGED) if e.kind == "exception")
    assert event.rank == 1
    bare = next(e for e in read_text(LOGGED.replace("[error    ]", "[info     ]")) if e.kind == "exception")
    assert bare.rank is None


def test_numbered_files_that_complain_of_a_peer_are_ranks_whatever_they_are_called(tmp_path: Path) -> None:
    lost = "\n".join(["INFO - eeg - Started", f"{LOST}", ""])
    error = "INFO - eeg - Started\n" + TRACE + "ValueError: not enough values to unpack (expected 3, got 2)\n"
    assert culprits(tmp_path, eeg_0__txt=lost, eeg_1__txt=error, eeg_2__txt=lost) == [1]


def test_and_not_where_nobody_does(tmp_path: Path) -> None:
    error = "INFO - eeg - Started\n" + TRACE + "ValueError: not enough values to unpack (expected 3, got 2)\n"
    fine = "INFO - eeg - Started\nINFO - eeg - step 3 of 9\n"
    assert culprits(tmp_path, eeg_0__txt=fine, eeg_1__txt=error, eeg_2__txt=fine) == []


def test_a_tag_with_a_pid_is_an_introduction() -> None:
    event = next(e for e in read_text("vqa[15832] rank 0 up\nvqa[15833] rank 1 up\n") if e.kind == "pid")
    assert (event.rank, event.fields["pid"]) == (0, 15832)


def test_a_dict_of_the_environment_says_who_it_is() -> None:
    said = "15:19:37 slot 3 {'RANK': '0', 'WORLD_SIZE': '4', 'MASTER_PORT': '29941'}\n"
    event = next(e for e in read_text(said) if e.kind == "identity")
    assert (event.fields["said_rank"], event.fields["world"]) == (0, 4)
