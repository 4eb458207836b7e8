"""The facts in a path, and names that must not be taken for one."""

from __future__ import annotations

from pathlib import Path

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


RANKS = {
    "rank3.log": 3, "rank_3.err": 3, "rank-12.out": 12, "rank0_pid123.txt": 0, "fr_rank2.json": 2,
    "nccl_trace_rank_5": 5, "comm_lib_trace_rank_17": 17, "train.rank0007.log.gz": 7, "1.0/rank.3/stdout": 3,
    "global_rank_9.txt": 9, "b.tgz!/out/rank_4/x.log": 4, "Rank1.log": 1,
    **dict.fromkeys(("proc3.err", "r12.out", "worker-3.log", "worker_3.log", "gpu3.log", "train.3.log", "ranking3.log",
                     "rank.log", "frank3.log", "rank3b.log", "slurm-48211_3.out")),
}  # fmt: skip
HOSTS = {
    "node-a/rank0.log": "node-a", "node-a/kernel/dmesg.txt": "node-a", "logs/nid001291/console.log": "nid001291",
    "dmesg-node-0112.txt": "node-0112", "node-0112.dmesg.txt": "node-0112", "node-0112_dmesg.txt.gz": "node-0112",
    "dmesg_gpu-h100-node3.txt": "gpu-h100-node3", "host=lrdn2296/x.log": "lrdn2296", "lrdn2296/x.log": "lrdn2296",
    "ip-10-0-143-177/agent.err": "ip-10-0-143-177", "10.0.143.177/agent.err": "10.0.143.177",
    "node12.hpc.example/x": "node12.hpc.example", "journal-dgx-07.log": "dgx-07", "gpu003/train.log": "gpu003",
    "bert-worker-3.log": "bert-worker-3", "pods/bert-master-0/x.log": "bert-master-0",
    "bundle.tar.gz!/node-b/rank1.log": "node-b", "node-c.tar.gz!/dmesg.txt": "node-c",
    "run_0931/node-a/x.log": "node-a", "compute-st-gpu-4/slurmd.log": "compute-st-gpu-4", "node1.log": "node1",
    **dict.fromkeys(("logs/rank0.log", "kernel/dmesg_T.txt", "kernel/journalctl_k_short-iso.txt", "agent-b.out",
                     "run_0931/agent.err", "attempt_0/0/stderr.log", "torchelastic/none_zwxwqhe4/attempt_0/0/stderr.log",
                     "rank0/stdout", "2026-11-20/x.log", "step100/x.log", "worker-3.log", "gpu7/x.log", "h100/x.log",
                     "exp-7b-lr3/x.log", "slurm-48211.out", "session_latest/logs/raylet.out", "pyspy/rank0_pid1.txt",
                     "llama70/x.log", "v2.1/x.log", "48211/x.log", "train-2/x.log", "messages", "task_3.out")),
}  # fmt: skip
STREAMS = {
    "rank0.out": "stdout", "rank0.err": "stderr", "stdout.log": "stdout", "x_stderr.txt.gz": "stderr",
    "slurm-8.out": None, "slurm-8.err": "stderr", "train.log": None, "output.txt": None, "errors.txt": None,
}  # fmt: skip


def test_ranks_hosts_and_streams() -> None:
    assert {label: identify(label).rank for label in RANKS} == RANKS
    assert {label: identify(label).host for label in HOSTS} == HOSTS
    assert {label: identify(label).stream for label in STREAMS} == STREAMS
    assert identify("local_rank_3.log")[1:3] == identify("node-b/localrank3.err")[1:3] == (None, 3)


def test_a_task_is_a_rank_only_without_a_launcher_inside() -> None:
    path = Path("/x/task_3.out")
    assert source("task_3.out", "console", 1, path, b"step 1\n").rank == 3
    assert source("task_3.out", "agent", 1, path, b"").rank is None
    assert source("task_3.out", "console", 1, path, b"W1120 torch/distributed/run.py:874] x\n").rank is None


def test_the_given_folder_itself_may_be_a_host() -> None:
    assert identify("agent.err", Path("/logs/node-b/agent.err")).host == "node-b"
    assert identify("rank0.log", Path("/mnt/nfs01/rank0.log")).host is None
