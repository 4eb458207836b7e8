"""An end of which only a launcher, a shell or a scheduler tells is a failure, and never more than what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from postmortem.analyze import Options, analyze

DEEPSPEED = "[ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py', '--local_rank=1'] exits with return code = {}\n"
SPAWN = (
    'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    mp.spawn(work, nprocs=2)\n'
    "Exception: process 1 terminated with signal {}\n"
)
RAY = (
    "(TrainController pid=70) - (ip=192.0.2.2, pid=81) world_rank=0, local_rank=0, node_rank=0\n"
    "(TrainController pid=70) - (ip=192.0.2.2, pid=82) world_rank=1, local_rank=1, node_rank=0\n"
    "(RayTrainWorker pid=82) Traceback (most recent call last):\n"
    '(RayTrainWorker pid=82)   File "loop.py", line 4, in train_func\n'
    "(RayTrainWorker pid=82)     raise RuntimeError('odd shard')\n"
    "(RayTrainWorker pid=82) RuntimeError: odd shard\n"
    "(RayTrainWorker pid=82) rank 1 step 3 loss 0.09 [repeated 7x across cluster]\n"
    "(TrainController pid=70) Traceback (most recent call last): [repeated 2x across cluster]\n"
    '(TrainController pid=70)   File "loop.py", line 4, in train_func [repeated 2x across cluster]\n'
    "(TrainController pid=70) RuntimeError: odd shard [repeated 2x across cluster]\n"
)
TASKS = (
    '5: Traceback (most recent call last):\n5:   File "train.py", line 210, in <module>\n5: ValueError: odd batch\n'
    "srun: error: node12: task 5: Exited with exit code 1\n"
    "slurmstepd: error: *** STEP 90211.0 ON node11 CANCELLED AT 2023-02-11T09:41:57 ***\nsrun: error: node11: tasks 0-3: Terminated\n"
)
CASES = {
    "DeepSpeed's -9 has no sender": (DEEPSPEED.format(-9), ("incident", "external-signal", [])),
    "DeepSpeed's -11 is a crash": (DEEPSPEED.format(-11), ("incident", "native-crash", [])),
    "DeepSpeed's 1 says nothing": (DEEPSPEED.format(1), ("undetermined", "python-exception", [])),
    "old spawn's bare Exception is another's death": (SPAWN.format("SIGKILL"), ("incident", "external-signal", [1])),
    "a shell's Killed behind a bar": (" 12%|#2   | 121/1000 [10:11<1:14:00,  5.05s/it]Killed\n", ("incident", "external-signal", [])),
    "a task's exit code and no word": ("srun: error: node7: task 3: Exited with exit code 7\n", ("undetermined", "python-exception", [3])),
    "a cancelled STEP is no progress of the rank that failed": (TASKS, ("incident", "python-exception", [5])),
    "Ray's folded copies come late": (RAY, ("incident", "python-exception", [1])),
    "a clean end of DeepSpeed": ("[INFO] [launch.py:347:main] Process 41 exits successfully.\n", ("healthy", None, [])),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_told_of_an_end(name: str, tmp_path: Path) -> None:
    text, expected = CASES[name]
    (tmp_path / "train.log").write_text("epoch 0 | loss 2.31\n" + text if not text.startswith("5: ") else text)
    verdict = analyze([str(tmp_path)], Options()).document["verdict"]
    assert (verdict["outcome"], verdict["category"], verdict["culprit"]["ranks"]) == expected


def test_an_unknown_prefix_before_every_line_of_a_traceback(tmp_path: Path) -> None:
    """Collectors label lines in ways nobody can list; what stands before the word Traceback stands before the rest too."""
    lines = ("Traceback (most recent call last):", '  File "train.py", line 412, in main', "    f(x)", "KeyError: 'mask'")
    (tmp_path / "out.log").write_text("loading\n" + "".join(f"stderr | {line}\n" for line in lines))
    evidence = analyze([str(tmp_path)], Options()).document["verdict"]["evidence"]
    assert evidence[0]["line"] == 5


def test_nccl_writes_the_pid_of_the_rank_whose_file_it_is(tmp_path: Path) -> None:
    """No line names rank and pid together; the file's name and NCCL's `host:pid:thread [device]` do."""
    for rank, pid in ((0, 4100), (1, 4101)):
        said = f"node7:{pid}:{pid + 9} [{rank}] NCCL INFO Using network IB\n"
        (tmp_path / f"rank{rank}.log").write_text(said + "step 1 loss 2.3\nstep 2 loss 2.2\n")
    killed = "Out of memory: Killed process 4101 (python3) total-vm:9830KB, anon-rss:6432kB, file-rss:5kB, shmem-rss:0kB"
    (tmp_path / "dmesg.txt").write_text(f"[  812.000101] {killed}, UID:1000 pgtables:1310kB oom_score_adj:0\n")
    assert analyze([str(tmp_path)], Options()).document["verdict"]["culprit"]["ranks"] == [1]
