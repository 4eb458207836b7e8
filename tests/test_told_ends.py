"""An end of which only a launcher, a shell or a scheduler tells is a failure,
and never more than what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from postmortem.analyze import Options, analyze

DEEPSPEED = (
    "[ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py', '--local_rank=1'] exits with return code = {}\n"
)
SPAWN = (
    'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n'
    "    mp.spawn(work, nprocs=2)\n"
    "Exception: process 1 terminated with signal {}\n"
)
SPAWN_SEGV = (
    "W1121 15:50:55.360000 25772 torch/multiprocessing/spawn.py:165] Terminating process 25823 via signal SIGTERM\n"
    'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n'
    "    mp.spawn(work, nprocs=2)\n"
    "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGSEGV\n"
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
CANCELLED = (
    "slurmstepd: error: *** STEP 40341.0 ON node7 CANCELLED AT 2023-12-12T17:52:24 ***\n"
    "srun: error: node7: tasks 0-2: Terminated\n"
)
EVICTED = (
    "004 (77.000.000) 2024-01-01 00:00:02 Job was evicted.\n\t(0) CPU times\n"
    "\tReason: Job not found at execution machine\n"
)
STEPS = "epoch 0 step 3 loss 2.11\nepoch 0 step 4 loss 2.05\n"
NAMELESS = (
    'Traceback (most recent call last):\n  File "train.py", line 61, in main\nIndexError: list index out of range\n'
) + STEPS
FAULT = "Memory access fault by GPU node-5 on address 0x7ec4dfe0e000. Reason: Write access to a read-only page.\n"
AGENT = "E1120 21:11:13.884000 4711 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 1) local_rank: 1 (pid: 4713) of binary: python3\n"
TASKS = (
    '5: Traceback (most recent call last):\n5:   File "train.py", line 210, in <module>\n'
    "5: ValueError: odd batch\n"
    "srun: error: node12: task 5: Exited with exit code 1\n"
    "slurmstepd: error: *** STEP 90211.0 ON node11 CANCELLED AT 2023-02-11T09:41:57 ***\n"
    "srun: error: node11: tasks 0-3: Terminated\n"
)
API = "torch/distributed/elastic/multiprocessing/api.py"
STOPPED = f"W1121 16:08:12.234000 45 {API}:1028] Sending process 50 closing signal SIGTERM\n"
FAILED = f"E1121 16:08:12.436000 45 {API}:1002] failed (exitcode: {{}}) local_rank: 1 (pid: 51) of binary: python3\n"
RECEIVED = "W1121 16:09:42.008000 45 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting down workers\n"
READ = (
    "[15:52:21] ERROR rank 1: OSError: [Errno 5] Input/output error on /data/x.bin, {}\n"
    "[15:52:22] INFO rank 1: closing\n"
)
MODELS = "".join(
    f"[rank{r}]: RuntimeError: DDP expects same model across all ranks, but Rank {r} has {n} params, while rank {x} has inconsistent {m} params.\n"
    for r, n, x, m in ((0, 4, 2, 6), (1, 4, 2, 6), (2, 6, 0, 4))
)
MISSED = (
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "/opt/train/t.py", line 8, in <module>\n'
    "[rank1]:     dist.all_reduce(t)\n"
    "[rank1]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:4\n"
)
CASES = {
    "a read that was tried again": (READ.format("retry 1/3 succeeded"), ("healthy", None, [])),
    "a read that was tried again, in vain": (READ.format("retry 3/3 failed, giving up"),
                                             ("incident", "storage", [1])),
    "a worker that the launcher did not stop": (STOPPED + FAILED.format(-15),
                                                ("incident", "external-signal", [1])),
    "a worker that the launcher stopped": (STOPPED.replace("50", "51") + FAILED.format(-15),
                                           ("incident", "peer-lost", [])),
    "a launcher that is stopped long after a kill": (STOPPED + FAILED.format(-9) + RECEIVED,
                                                     ("incident", "external-signal", [1])),
    "two models of one size and one of another": (MODELS, ("incident", "ddp-usage", [2])),
    "DeepSpeed's -9 has no sender": (DEEPSPEED.format(-9), ("incident", "external-signal", [])),
    "DeepSpeed's -11 is a crash": (DEEPSPEED.format(-11), ("incident", "native-crash", [])),
    "DeepSpeed's 1 says nothing": (DEEPSPEED.format(1), ("incident", "python-exception", [])),
    "old spawn's bare Exception is another's death": (SPAWN.format("SIGKILL"),
                                                      ("incident", "external-signal", [1])),
    "spawn's exception only carries the end that it tells of": (SPAWN_SEGV,
                                                                ("incident", "native-crash", [1])),
    "a crash that the shell tells of after the others had missed the process": (
        MISSED + "go.sh: line 8:  1050 Segmentation fault      RANK=$r python t.py\n",
        ("incident", "native-crash", []),
    ),
    "a shell's Killed behind a bar": (" 12%|#2   | 121/1000 [10:11<1:14:00,  5.05s/it]Killed\n",
                                      ("incident", "external-signal", [])),
    "a task's exit code and no word": ("srun: error: node7: task 3: Exited with exit code 7\n",
                                       ("incident", "python-exception", [3])),
    "a task's exit code, after which Slurm ends the step": (
        "srun: error: node7: task 3: Exited with exit code 7\n" + CANCELLED,
        ("incident", "python-exception", [3])),
    "a step that Slurm ends, after which a task has an exit code": (
        CANCELLED + "srun: error: node7: task 3: Exited with exit code 7\n", ("incident", "scheduler", [])),
    "HTCondor evicts a job": (EVICTED, ("incident", "scheduler", [])),
    "HTCondor evicts a job and runs it to its end": (EVICTED + "\t(1) Normal termination (return value 0)\n",
                                                     ("healthy", None, [])),
    "a cancelled STEP is no progress of the rank that failed": (TASKS, ("incident", "python-exception", [5])),
    "the others go on for some steps after a nameless rank has raised": (NAMELESS + AGENT,
                                                                         ("incident", "python-exception",
                                                                          [1])),
    "so they do after a GPU's fault, which no process survives": (FAULT + STEPS,
                                                                  ("incident", "gpu-fault", [])),
    "what srun tells of belongs to the nameless exception before it": (
        NAMELESS + "srun: error: node7: task 3: Exited with exit code 1\n",
        ("incident", "python-exception", [3])),
    "DeepSpeed's 1 belongs to the nameless exception before it": (NAMELESS + DEEPSPEED.format(1),
                                                                  ("incident", "python-exception", [])),
    "an exception after which all went well was handled": (NAMELESS + "training finished\n",
                                                           ("healthy", None, [])),
    "Ray's folded copies come late": (RAY, ("incident", "python-exception", [1])),
    "a clean end of DeepSpeed": ("[INFO] [launch.py:347:main] Process 41 exits successfully.\n",
                                 ("healthy", None, [])),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_told_of_an_end(name: str, tmp_path: Path) -> None:
    text, expected = CASES[name]
    (tmp_path / "train.log").write_text("epoch 0 | loss 2.31\n" + text if not text.startswith("5: ") else text)
    verdict = analyze([str(tmp_path)], Options()).document["verdict"]
    assert (verdict["outcome"], verdict["category"], verdict["culprit"]["ranks"]) == expected


def test_an_unknown_prefix_before_every_line_of_a_traceback(tmp_path: Path) -> None:
    """Collectors label lines in ways nobody can list;
    what stands before the word Traceback stands before the rest too."""
    lines = (
        "Traceback (most recent call last):",
        '  File "train.py", line 412, in main',
        "    f(x)",
        "KeyError: 'mask'",
    )
    (tmp_path / "out.log").write_text("loading\n" + "".join(f"stderr | {line}\n" for line in lines))
    evidence = analyze([str(tmp_path)], Options()).document["verdict"]["evidence"]
    assert evidence[0]["line"] == 5


def test_nccl_writes_the_pid_of_the_rank_whose_file_it_is(tmp_path: Path) -> None:
    """No line names rank and pid together; the file's name and NCCL's `host:pid:thread [device]` do."""
    for rank, pid in ((0, 4100), (1, 4101)):
        said = f"node7:{pid}:{pid + 9} [{rank}] NCCL INFO Using network IB\n"
        (tmp_path / f"rank{rank}.log").write_text(said + "step 1 loss 2.3\nstep 2 loss 2.2\n")
    killed = (
        "Out of memory: Killed process 4101 (python3) total-vm:9830KB, anon-rss:6432kB, file-rss:5kB, shmem-rss:0kB"
    )
    (tmp_path / "dmesg.txt").write_text(f"[  812.000101] {killed}, UID:1000 pgtables:1310kB oom_score_adj:0\n")
    assert analyze([str(tmp_path)], Options()).document["verdict"]["culprit"]["ranks"] == [1]


@pytest.mark.parametrize(
    "line",
    [
        "| 1 | done",
        "INFO:trainer:done",
        "[Rank 1] done",
        "process 1: done",
        "\u3010进程1\u3011done",
        "[15:52:22] INFO   done    train.py:55",
    ],
)
def test_done_is_a_goodbye_where_it_is_all_that_a_rank_says(line: str, tmp_path: Path) -> None:
    (tmp_path / "rank1.log").write_text(f"Nov 21 16:15:49 | 1 | train 0.30 loss=1.390\n{line}\n")
    assert [r["why"] for r in analyze([str(tmp_path)]).document["ranks"]] == ["reported that it finished"]


@pytest.mark.parametrize("line", ["epoch 3: done", "[12/60] done", "loading data... done", "compiling: done"])
def test_done_may_speak_of_something_else(line: str, tmp_path: Path) -> None:
    (tmp_path / "rank1.log").write_text(f"Nov 21 16:15:49 | 1 | train 0.30 loss=1.390\n{line}\n")
    assert [r["why"] for r in analyze([str(tmp_path)]).document["ranks"]] != ["reported that it finished"]


COLUMNS = {
    "a bar on each side": "Nov 21 16:15:{:02d} | {} | step {} loss 1.4\n",
    "a colon": "{1}: step {2} loss 1.4\n",
}


@pytest.mark.parametrize("form", COLUMNS.values(), ids=COLUMNS.keys())
def test_bare_numbers_in_a_column_are_ranks_where_they_are_mixed(form: str, tmp_path: Path) -> None:
    lines = [form.format(s, rank, s) for s in range(6) for rank in (0, 2, 1)]
    (tmp_path / "console.log").write_text("".join(lines))
    assert [r["rank"] for r in analyze([str(tmp_path)]).document["ranks"]] == [0, 1, 2]


def test_bare_numbers_that_only_rise_are_epochs(tmp_path: Path) -> None:
    (tmp_path / "console.log").write_text(
        "".join(f"16:15:{s:02d} | {epoch} | step {s} loss 1.4\n" for epoch in range(3) for s in range(6))
    )
    assert analyze([str(tmp_path)]).document["ranks"] == []


def test_a_restart_whose_lines_name_no_step_recovers_where_the_launcher_is_content(tmp_path: Path) -> None:
    """torchrun tells of each life that fails; of one that ends well it says nothing at all."""
    for attempt in (0, 1):
        for rank in (0, 1):
            folder = tmp_path / f"te/none_a1b2c3d4/attempt_{attempt}/{rank}"
            folder.mkdir(parents=True)
            (folder / "stdout.log").write_text(f"Nov 21 16:0{8 + attempt}:0{rank} | {rank} | phase A\n")
    failed = tmp_path / "te/none_a1b2c3d4/attempt_0/1/stderr.log"
    failed.write_text('Traceback (most recent call last):\n  File "t.py", line 4, in train\n    f(x)\nKeyError: 3\n')
    (tmp_path / "agent.err").write_text(FAILED.format(1))
    assert analyze([str(tmp_path)]).document["verdict"]["outcome"] == "recovered"


def test_a_rank_that_quotes_the_controller_of_ray_begins_no_new_life(tmp_path: Path) -> None:
    """Only the controller's own lines number the lives of a job;
    one life would lose what the other knows of the ranks."""
    quoted = "Attempting to start training worker group of size 2 with the following resources: [{'CPU': 1}] * 2\n"
    for rank, pid in ((0, 4100), (1, 4101)):
        said = f"node7:{pid}:{pid + 9} [{rank}] NCCL INFO Using network IB\nstep 2 loss 2.2\n"
        (tmp_path / f"rank{rank}.log").write_text(quoted + "step 1 loss 2.3\n" + quoted + said)
    killed = (
        "Out of memory: Killed process 4101 (python3) total-vm:9830kB, anon-rss:6432kB, file-rss:5kB, shmem-rss:0kB"
    )
    (tmp_path / "dmesg.txt").write_text(f"[  812.000101] {killed}, UID:1000 pgtables:1310kB oom_score_adj:0\n")
    document = analyze([str(tmp_path)], Options()).document
    assert document["verdict"]["culprit"]["ranks"] == [1] and document["job"]["attempts"] == 1


def steps(first: int, last: int) -> str:
    return "".join(f"SpawnProcess-{i} INFO: step {n}\n" for n in range(first, last, 10) for i in (1, 2))


LOOP = "MainProcess ERROR: attempt {} failed: ProcessExitedException('process 1 terminated with signal SIGKILL')\n"


def outcome_of(tmp_path: Path, text: str) -> str:
    (tmp_path / "job.log").write_text(text)
    return str(analyze([str(tmp_path / "job.log")]).document["verdict"]["outcome"])


def test_a_scripts_own_loop_begins_a_new_life_behind_the_end_of_a_process(tmp_path: Path) -> None:
    again = steps(0, 40) + LOOP.format(1) + steps(0, 90) + "MainProcess INFO: training finished\n"
    assert outcome_of(tmp_path, again) == "recovered"
    assert outcome_of(tmp_path, steps(0, 40) + LOOP.format(1) + steps(0, 30) + LOOP.format(2)) == "incident"


def test_what_only_goes_on_is_no_new_life(tmp_path: Path) -> None:
    """The next epoch begins at 0, too, but what is counted had grown behind the line."""
    text = steps(0, 40) + LOOP.format(1) + steps(40, 90) + steps(0, 90) + "MainProcess INFO: training finished\n"
    assert outcome_of(tmp_path, text) == "healthy"


WORK = "".join(f"[{r}] step {n}\n" for n in range(0, 80, 20) for r in (1, 0))


@pytest.mark.parametrize(
    ("line", "category"),
    [
        ("ERROR: Job failed: exit code 137", "external-signal"),
        ("make: *** [Makefile:12: train] Error 139", "native-crash"),
        ("Command exited with non-zero status 3", "python-exception"),
        ('level=error msg="job failed: signal: killed"', "external-signal"),
        ("xargs: python3: terminated by signal 9", "external-signal"),
    ],
)
def test_a_job_of_which_only_the_code_is_told_ended_so(line: str, category: str, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(f"{WORK}{line}\n")
    told = analyze([str(tmp_path)]).document["verdict"]
    assert (told["outcome"], told["category"], told["culprit"]["ranks"]) == ("incident", category, [])


def test_the_code_of_a_helper_is_no_end_where_work_goes_on(tmp_path: Path) -> None:
    text = f"{WORK}ERROR: Step 'upload' failed with exit code 3\n" + WORK.replace("step ", "step 1")
    assert outcome_of(tmp_path, text) == "healthy"


def test_a_launcher_that_refuses_its_arguments_is_of_its_host(tmp_path: Path) -> None:
    usage = "gpu7: usage: torchrun [-h] [--nnodes NNODES]\n" * 8
    text = f"gpu5: NODE_RANK=0\n{usage}gpu7: torchrun: error: argument --node-rank: expected one argument\n"
    (tmp_path / "all.txt").write_text(text + "clush: gpu7: exited with exit code 2\n")
    told = analyze([str(tmp_path)]).document["verdict"]
    assert (told["category"], told["culprit"]["hosts"]) == ("environment", ["gpu7"])


ABORTED = "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
SHOWN = (
    "JobId=7 JobName=train\n   JobState=FAILED Reason=JobLaunchFailure Dependency=(null)\n"
    "   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:9\n   SubmitTime=2026-11-23T06:36:13\n"
)


def test_tasks_that_srun_ended_after_a_batch_script_was_killed_are_nobody_elses_doing(tmp_path: Path) -> None:
    """The batch script dies of kill -9; Slurm clears up, and srun reports its tasks as terminated."""
    (tmp_path / "train-7.out").write_text(f"{STEPS}{ABORTED}srun: error: vm: tasks 0-1: Terminated\n")
    assert analyze([str(tmp_path)]).document["verdict"]["culprit"]["ranks"] == []
    (tmp_path / "scontrol.txt").write_text(SHOWN)
    verdict = analyze([str(tmp_path)]).document["verdict"]
    assert (verdict["pattern"], verdict["culprit"]["ranks"]) == ("rank-exit-sigkill", [])


def test_a_task_that_was_terminated_before_srun_cleared_up_got_its_signal_from_outside(
    tmp_path: Path,
) -> None:
    (tmp_path / "train-7.out").write_text(f"{STEPS}srun: error: vm: task 1: Terminated\n{ABORTED}")
    verdict = analyze([str(tmp_path)]).document["verdict"]
    assert (verdict["pattern"], verdict["culprit"]["ranks"]) == ("rank-exit-signalled", [1])
