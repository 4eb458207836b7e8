"""The journal of `postmortem run` beside a console: how a process ended is known by its own line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from postmortem.analyze import analyze
from postmortem.blocks import read_text

HEAD = ("run", "postmortem run on node-a: torchrun train.py", {})
STARTS = [("start", f"rank {rank} pid {4710 + rank} runs", {"pid": 4710 + rank}) for rank in range(3)]
OOM = "memory cgroup /job counted an OOM kill when pid 4711 (python, rank 1) ended by SIGKILL"
NO_OOM = "memory cgroup /job counted no OOM kill when pid 4711 (python, rank 1) ended by SIGKILL"
TORCHRUN = """\
epoch 0 step {n} loss 2.30
E1120 21:20:01.061000 4700 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 4711) of binary: python3
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_21:20:01
  host      : node-a
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 4711)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4711
============================================================
"""


def lines(*records: tuple[str, str, dict[str, Any]]) -> str:
    said = [
        {
            "time": f"2026-11-20T21:20:{n:02d}.000000Z",
            "host": "node-a",
            "event": event,
            "message": text,
            **facts,
        }
        for n, (event, text, facts) in enumerate(records)
    ]
    return "".join(json.dumps(record) + "\n" for record in said)


def verdict(folder: Path, *records: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    (folder / "run.jsonl").write_text(lines(HEAD, *STARTS, *records))
    (folder / "stderr.log").write_text(TORCHRUN)
    return dict(analyze([str(folder)]).document["verdict"])


KILLED = ("end", "rank 1 (pid 4711) killed by SIGKILL", {"pid": 4711, "signal": "SIGKILL"})


def test_a_sigkill_alone_has_no_sender(tmp_path: Path) -> None:
    found = verdict(tmp_path, KILLED)
    assert (found["category"], found["confidence"]) == ("external-signal", "hypothesis")


def test_with_the_cgroups_count_it_is_an_oom_kill(tmp_path: Path) -> None:
    found = verdict(tmp_path, KILLED, ("oom", OOM, {"pid": 4711}))
    assert (found["category"], found["confidence"]) == ("host-oom", "established")
    assert found["culprit"]["ranks"] == [1] and found["culprit"]["hosts"] == ["node-a"]


def test_where_the_cgroup_counted_none_it_is_somebodys_signal(tmp_path: Path) -> None:
    found = verdict(tmp_path, KILLED, ("kill", NO_OOM, {"pid": 4711}))
    assert (found["category"], found["confidence"]) == ("external-signal", "established")
    assert not [m for m in found.get("missing", []) if "kernel log" in str(m)]


def test_the_journal_is_read_as_what_it_is_and_nothing_else() -> None:
    """Ends and processes, but no progress, no last words: the wrapper is no rank."""
    events = read_text(lines(HEAD, *STARTS, KILLED, ("done", "the command ended: exit code 1", {})), kind="run")
    assert {e.kind for e in events} == {"pid", "exit", "pattern"}
    assert {e.rank for e in events if e.kind == "pid"} == {0, 1, 2}
    (end,) = [e for e in events if e.kind == "exit"]
    assert (end.rank, end.pid, end.host, end.speaker) == (1, 4711, "node-a", "launcher")


@pytest.mark.parametrize("kind", ["console", "kernel", "json-lines"])
def test_a_rank_that_prints_the_sentence_establishes_nothing(kind: str) -> None:
    assert not [e for e in read_text(f"step 1\n{OOM}\n{NO_OOM}\n", kind=kind) if e.pattern]
