"""The facts in a path, and names that must not be taken for one."""

from __future__ import annotations

from pathlib import Path

from conftest import table
from postmortem.input import Identity, identify
from postmortem.input.names import source


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
