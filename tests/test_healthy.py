"""What is said of logs that look like a failure and are none, and of those that look well and are not.

Each case is a short log made of lines as their programs print them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from postmortem.analyze import Options, analyze
from postmortem.blocks import signs


def steps(first: int, last: int, every: int = 10) -> str:
    return "".join(
        f"2026-03-02 10:0{n // 100}:{n % 60:02} INFO train: step {n} loss {3 - n / 1000:.3f}\n"
        for n in range(first, last + 1, every)
    )


def bar(n: int, of: int = 1000) -> str:
    return f"{100 * n // of:3}%|{'#' * (n * 10 // of):10}| {n}/{of} [00:{n % 60:02}<05:10,  3.12it/s]\n"


FATAL = (
    "Traceback (most recent call last):\n"
    '  File "/work/train.py", line 88, in <module>\n    main()\n'
    '  File "/work/train.py", line 71, in main\n    loss = criterion(model(x), y)\n'
    "ValueError: Expected input batch_size (32) to match target batch_size (31).\n"
)
LOGGED = (
    "2026-03-02 10:00:40 ERROR train: sample 4711 is broken, next one\n"
    "Traceback (most recent call last):\n"
    '  File "/work/data.py", line 19, in load\n    return decode(raw)\n'
    '  File "/work/data.py", line 31, in decode\n    raise ValueError("bad header")\n'
    "ValueError: bad header\n"
)
WANDB = (
    "wandb: Waiting for W&B process to finish... (failed 1). Press Control-C to abort syncing.\n"
    "wandb: Run summary:\nwandb:   train/loss 1.2\nwandb:   train/global_step 400\n"
    "wandb: Synced 5 W&B file(s), 0 media file(s), 2 artifact file(s)\n"
)
IBV = "node-a:871:902 [0] misc/ibvwrap.cc:94 NCCL WARN Call to ibv_open_device failed\n"
STALL = (
    "[1,0]<stderr>:[2026-03-02 10:00:40.1: W horovod/common/stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n"
    "[1,0]<stderr>:Stalled ranks:\n[1,0]<stderr>:3: [horovod_allreduce.0, horovod_allreduce.1]\n"
)
STORE = (
    "[rank3]:[W302 10:09:45.590596433 ProcessGroupNCCL.cpp:1781] [PG ID 0 PG GUID 0(default_pg) Rank 3] "
    'Failed to check the "should dump" '
    "flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe\n"
)
KEEPALIVE = "WARNING:torch.distributed.elastic.rendezvous.dynamic_rendezvous:The node 'node-a_78_0' has failed to send a keep-alive heartbeat to the rendezvous '2092' due to an error of type RendezvousConnectionError.\n"
ATEXIT = "Error in atexit._run_exitfuncs:\nOSError: [Errno 116] Stale file handle\n"
UNLINK = (
    "Traceback (most recent call last):\n"
    '  File "/usr/lib/python3.10/multiprocessing/util.py", line 300, in _run_finalizers\n    finalizer()\n'
    '  File "/usr/lib/python3.10/multiprocessing/synchronize.py", line 87, in _cleanup\n    '
    "sem_unlink(name)\n"
    "FileNotFoundError: [Errno 2] No such file or directory\n"
)
MLPERF = ':::MLLOG {"namespace": "", "time_ms": 1697137762523, "event_type": "INTERVAL_END", "key": "run_stop", "value": null, "metadata": {"status": "success"}}\n'
SERVER = (
    "INFO:     Started server process [4242]\nINFO:     Application startup complete.\n"
    "INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)\n"
)
POST = 'INFO:     192.0.2.7:44212 - "POST /v1/completions HTTP/1.1" {}\n'
ASGI = (
    "ERROR:    Exception in ASGI application\nTraceback (most recent call last):\n"
    '  File "/opt/venv/lib/python3.11/site-packages/uvicorn/protocols/http/h11_impl.py", line 429, in '
    "run_asgi\n"
    "    result = await app(scope, receive, send)\n"
    '  File "/work/api.py", line 70, in chat\n    body = json.loads(raw)\n'
    "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n"
)
OPTIONAL = (
    "WARNING: flash-attn is not there, going on without it\nTraceback (most recent call last):\n"
    '  File "/work/model.py", line 9, in _try_import\n    import flash_attn\n'
    "ModuleNotFoundError: No module named 'flash_attn'\n"
)
TORCHRUN = "E0302 10:01:13.432000 25687 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0 (pid: 25690) of binary: /opt/venv/bin/python\n"
SIGTERM = "W0302 10:01:13.399000 25687 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 25691 closing signal SIGTERM\n"
HELPER = "srun: error: node-a: task 0: Exited with exit code 1\n"
DESYNC = (
    "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
    "\t   - [0, 1] joined but didn't finish collective #12 (count from 1)\n"
)
RANKS = "".join(
    f"node-a:87{r}:90{r} [{r}] NCCL INFO ncclCommInitRank comm 0x55{r} rank {r} nranks 2 cudaDev {r} busId 5{r}000 - Init COMPLETE\n"
    for r in (0, 1)
)
LAUNCH = "Namespace(config='a.yaml', lr=0.1)\n"
PASSWD = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
GOOD = {  # the run went well, whatever it got over
    "counts that grow to the last line": steps(0, 90),
    "a bar that got to its end": bar(998) + bar(1000),
    "the Trainer's last summary": bar(999) + "{'train_runtime': 2332.8, 'train_loss': 0.62, 'epoch': 1.0}\n",
    "Lightning's last word": steps(0, 20) + "`Trainer.fit` stopped: `max_epochs=10` reached.\n",
    "DeepSpeed's launcher is content": (
        "[2026-03-02 10:09:01,069] [INFO] [launch.py:351:main] Process 9521 exits successfully.\n"
    ),
    "an exit code of its shell": steps(0, 20) + "+ echo exit code: 0\nexit code: 0\n",
    "a goodbye in Portuguese": "2026-03-02 16:30:31,730 - INFO - Treinamento concluído com sucesso\n",
    "a goodbye in Chinese": steps(0, 20) + "训练完成，模型已保存\n",
    "scores are the last thing": "Final Precision: 0.6150\nFinal F1 Score: 0.5870\nmAP@[.5:.95]: 0.1149\n",
    "a table of scores": ("          P       R       F\nLOC   78.50   82.88   80.63\nORG   75.43   77.65   76.52\n"),
    "what was written where": "Model and tokenizer saved to ./t5_finetuned\n",
    "InfiniBand's device is not opened": IBV + steps(0, 90),
    "Horovod stalled once": steps(0, 30) + STALL + steps(40, 90),
    "a broken sample": steps(0, 30) + LOGGED + steps(40, 90),
    "an optional module": OPTIONAL + steps(0, 90),
    "one request of many is bad": SERVER
    + POST.format("200 OK")
    + ASGI
    + POST.format("500 Internal Server Error")
    + POST.format("200 OK"),
    "a server that somebody stopped": SERVER
    + POST.format("200 OK")
    + "INFO:     Shutting down\nINFO:     Application shutdown complete.\n",
    "the store was gone at exit": steps(0, 90) + "Training finished.\n" + STORE,
    "heartbeats fail at exit": MLPERF + KEEPALIVE * 3,
    "a stale handle at exit, and the script's last words": MLPERF
    + ATEXIT
    + "RESULT,SSD,,1219,org,2026-03-02 05:33:45 AM\n",
    "finalizers complain": MLPERF + UNLINK * 2 + "RESULT,SSD,,1219,org,2026-03-02 05:33:45 AM\n",
    "CollNet is not there": (
        "node-a:68:69 [0] transport.cc:253 NCCL WARN Cannot initialize CollNet, using point-to-point network instead\n"
        + steps(0, 90)
    ),
    "a helper step of the batch script": HELPER + steps(0, 90) + "Training finished.\n",
    "a batch is dropped, and bye": steps(0, 60)
    + "2026-03-02 10:01:00 WARNING train: batch 61 dropped\n"
    + steps(70, 90)
    + "bye\n",
    "tests that expect their failures": FATAL + "=========== short test summary info ===========\n3 passed in 59.70s\n",
    "a build": "configure: WARNING: no valgrind\nSuccessfully built 2f1a\nSuccessfully tagged job:latest\n",
    "a package is not resolved, and installed": (
        "ERROR: pip's dependency resolver does not look at all packages\nSuccessfully installed torch-2.7.0\n"
    ),
    "a download is tried again": "2026-03-02 10:00:00 WARNING hub: read failed, retry 1/5\n" + steps(0, 90),
    "a warning that only a rank at work prints": bar(0)
    + (
        "[rank2]:[W302 02:29:25.96 reducer.cpp:1500] Warning: find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters in the forward pass.\n"
    ),
}
SWEEP = (
    "Traceback (most recent call last):\n"
    '  File "/work/sweep.py", line 13, in <module>\n    net = build(width, drop)\n'
    "ValueError: dropout probability has to be between 0 and 1, but got 1.3\n"
    "[W 2026-03-02 10:00:42] Trial 2 failed because of the following error: ValueError('dropout probability has to be between 0 and 1, but got 1.3')\n"
)
TRIALS = "".join(f"[I 2026-03-02 10:00:4{{}}] Trial {n} finished with value: 0.{9 - n}\n".format(n) for n in (0, 1))
GOOD |= {
    "a sweep that goes on behind a trial that failed": (
        TRIALS + SWEEP + "[I 2026-03-02 10:00:45] Trial 3 finished with value: 0.4\nsweep.py: exit code 0\n"
    ),
}
LOST_METRICS = (
    "Traceback (most recent call last):\n"
    '  File "/work/train.py", line 11, in <module>\n    tracker.log(step)\n'
    "ConnectionError: tracker: 503 Service Unavailable\n"
    "metrics of this step are lost, training goes on\n"
)
GOOD |= {
    "who says below a traceback that work goes on": LOST_METRICS + LOST_METRICS + "Saving the model ... done\nrc=0\n",
    "a script that kills its own helper behind the run": (
        "rank 0: 60 steps, exported\nrank 1: 60 steps, exported\ntraining ended with 0\n"
        "run.sh: line 8:  9939 Killed                  python sidecar.py\nsidecar ended with 137\n"
    ),
}
AGAIN = {  # it failed, was started again in the same file, and went well
    "the next launch of the script": LAUNCH + FATAL + LAUNCH + steps(0, 90) + "Training finished.\n",
    "the next launch of torchrun": steps(0, 30)
    + "[rank0]: "
    + "[rank0]: ".join(FATAL.splitlines(True))
    + TORCHRUN
    + steps(0, 90)
    + "Training finished.\n",
}
BAD = {  # it was ended, or nobody knows: whatever is said, it is neither healthy nor recovered
    "a bar that is drawn again": bar(29) + bar(30) + FATAL + bar(30),
    "an outer bar that is drawn again": bar(3, 10) + bar(29) + bar(30) + FATAL + bar(3, 10),
    "wandb sums up": steps(0, 30) + FATAL + WANDB,
    "another rank skips a batch of its own below it": steps(0, 30)
    + FATAL
    + "batch 31 skipped, no labels\n"
    + steps(40, 40),
    "the script says done": steps(0, 30) + FATAL + "\nreal\t0m56.895s\nuser\t0m11.272s\ndone\n",
    "a date of the script": (
        "srun: error: node-a: task 1: Out Of Memory\nsrun: Force Terminated StepId=8538.0\n"
        "Finished at: 2026-03-02T15:37:59\n"
    ),
    "typescript's last line": steps(0, 30)
    + FATAL
    + 'Script done on 2026-03-02 06:36:56+00:00 [COMMAND_EXIT_CODE="1"]\n',
    "a wrapper: exit code 137": steps(0, 90) + "monitor: rank 2 exited with exit code 137\n",
    "a wrapper: signal 9": steps(0, 90) + "process 12345 killed by signal 9\n",
    "a wrapper: all codes": steps(0, 90) + "watchdog: exit codes [-9, -9, -9, -9]\n",
    "a wrapper sends SIGKILL": steps(0, 90) + "2026-03-02 10:11:28 watchdog: tasks still alive, sending SIGKILL\n",
    "a shell: Killed": steps(0, 90) + "Killed\n",
    "a shell: Bus error": steps(0, 90) + "Bus error (core dumped)\n",
    "a script's exit code": steps(0, 90) + "job ended with exit code: 3\n",
    "an exception without a traceback": steps(0, 90) + "RuntimeError: CUDA driver error: unknown error\n",
    "an exception as its script prints it": steps(0, 90)
    + "ValueError(\"directory 'mel' does not exist\")\n\nSet HYDRA_FULL_ERROR=1\n",
    "a last word: FATAL": steps(0, 90) + "FATAL: loss diverged at step 91, aborting training run\n",
    "a last word: failed": (
        "[Step 12] Training (~3 hour(s))...\nTraining failed: model file not found.\n  Common causes:\n  1. cuDNN\n"
    ),
    "C++ gives up": steps(0, 90) + "terminate called without an active exception\n",
    "a debugger saw the crash": steps(0, 90) + 'Thread 1 "python" received signal SIGSEGV, Segmentation fault.\n',
    "a test case failed, the next one finished": "Running test case 2\n" + FATAL + "Finished test case 3\n",
    "an unset variable": (
        "/var/spool/job7/slurm_script: line 30: USER_: unbound variable\n= Elapsed runtime : 00:00:09\n"
    ),
    "no command of that name": "bash: torchrun: command not found\n",
    "no log at all": PASSWD,
    "ranks that nobody sees at work": RANKS,
    "ranks and a bar at its beginning": RANKS + bar(0),
    "a desync report alone": DESYNC,
    "preempted": (
        steps(0, 80) + "SIGUSR1: 10 s until preemption, will checkpoint\n2026-03-02 10:01:30 INFO writing checkpoint\n"
    ),
    "DeepSpeed's launcher is told to stop": (
        steps(0, 30) + "[2026-03-02 10:01:03,101] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 20143\n"
        "[2026-03-02 10:01:03,101] [INFO] [launch.py:324:sigkill_handler] Main process received SIGINT, exiting\n"
    ),
    "torchrun stops its workers": bar(66, 100) + bar(67, 100) + SIGTERM,
    "torchrun and no life after": steps(0, 30) + FATAL + TORCHRUN,
    "the second launch fails too": LAUNCH + FATAL + LAUNCH + steps(0, 20) + FATAL,
    "a server that cannot start": (
        "INFO:     Started server process [4242]\nINFO:     Waiting for application startup.\n" + FATAL
    ),
    "a server's last request failed": SERVER + POST.format("200 OK") + ASGI,
    "a traceback that is cut off": steps(0, 30) + "".join(FATAL.splitlines(True)[:3]),
    "Ctrl-C": steps(0, 30) + FATAL.rsplit("ValueError", 1)[0] + "KeyboardInterrupt\n",
    "NCCL's last warning": (
        RANKS + "node-a:870:900 [0] misc/shmutils.cc:129 NCCL WARN Error while attaching to shared memory segment\n"
    ),
    "oneCCL's error": (
        "2026:03:02-16:35:45:(3598) |CCL_ERROR| exec.cpp:134 start_workers: condition failed\n"
        "failed to start worker # 0\n"
    ),
    "only complaints": (
        "2026-03-02 10:00:00 WARNING fs: could not open /data/a.bin\n"
        "2026-03-02 10:00:01 WARNING fs: could not open /data/b.bin\n"
    ),
}


IGNORED = (
    "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f3c2d0a5ee0>\n"
    "Traceback (most recent call last):\n"
    '  File "/opt/conda/lib/python3.8/site-packages/torch/utils/data/dataloader.py", line 1328, in __del__\n'
    "    self._shutdown_workers()\n"
    "AssertionError: can only test a child process\n"
)
# what `rm -r` of a temporary folder on NFS raises while a worker still has a file open: pytorch issue 143471
CLEANED = (
    "Traceback (most recent call last):\n"
    '  File "/usr/lib64/python3.9/multiprocessing/util.py", line 300, in _run_finalizers\n    finalizer()\n'
    '  File "/usr/lib64/python3.9/multiprocessing/util.py", line 133, in _remove_temp_dir\n'
    "    rmtree(tempdir)\n"
    "OSError: [Errno 16] Device or resource busy: '.nfs0000000000000a1700000c2d'\n"
)
GOOD |= {
    "a temporary folder that the loader could not remove": steps(0, 40) + CLEANED + steps(50, 90) + CLEANED,
    "a destructor that Python ignores": steps(0, 90) + IGNORED,
    "a logger that fails": (
        steps(0, 40) + "--- Logging error ---\nTraceback (most recent call last):\n"
        '  File "/usr/lib/python3.10/logging/__init__.py", line 1100, in emit\n    msg = '
        "self.format(record)\n"
        "TypeError: not all arguments converted during string formatting\n" + steps(50, 90)
    ),
    "a table that is printed again and again": "".join(
        f"| rollout/ep_rew_mean | {n * 3} |\n| time/total_timesteps | {n * 2048} |\n" for n in range(1, 9)
    ),
    "numbers without a name": "".join(f"({n}, tensor({280 - n}.34), 0.55{n})\n" for n in range(1, 7)),
}
BAD |= {
    "the terminal was closed": steps(0, 90) + "Connection to 192.0.2.3 closed by remote host.\n",
    "a server that its starter lost": steps(0, 90)
    + "Server process exited with code -9. Check server logs for errors.\n",
    "another rank takes one more step": steps(0, 30) + FATAL + steps(40, 40),
    "numbers that grow while somebody waits": "".join(f"waiting for peers, {n} s\n" for n in range(10, 70, 10)),
}


def verdict_of(text: str, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "train.log").write_text(text)
    verdict = analyze([str(tmp_path)], Options()).document["verdict"]
    return {"outcome": verdict["outcome"], "headline": verdict["headline"]}


@pytest.mark.parametrize("name", GOOD)
def test_a_run_that_went_well_is_healthy(name: str, tmp_path: Path) -> None:
    said = verdict_of(GOOD[name], tmp_path)
    assert said["outcome"] == "healthy", said


@pytest.mark.parametrize("name", AGAIN)
def test_a_run_that_was_started_again_recovered(name: str, tmp_path: Path) -> None:
    said = verdict_of(AGAIN[name], tmp_path)
    assert said["outcome"] == "recovered", said


@pytest.mark.parametrize("name", BAD)
def test_a_run_that_was_ended_is_not_healthy(name: str, tmp_path: Path) -> None:
    said = verdict_of(BAD[name], tmp_path)
    assert said["outcome"] in ("incident", "undetermined"), said


def test_a_rank_whose_work_simply_stops_is_told(tmp_path: Path) -> None:
    for rank in range(4):
        end = "" if rank == 2 else steps(60, 90) + "Training finished.\n"
        (tmp_path / f"rank{rank}.log").write_text(steps(0, 50) + end)
    verdict = analyze([str(tmp_path)], Options()).document["verdict"]
    assert verdict["outcome"] == "undetermined"
    assert "rank 2 ran and never reported the end" in verdict["headline"]


def test_what_a_log_lacks_is_told(tmp_path: Path) -> None:
    assert verdict_of(PASSWD, tmp_path)["headline"] == "Undetermined: these logs show no job."
    seen = verdict_of(RANKS, tmp_path)["headline"]
    assert seen == "Undetermined: no line shows a rank at work or finished."


def test_who_complains_of_the_first_to_leave_and_finishes_is_well(tmp_path: Path) -> None:
    """Heartbeat threads of ranks 1 and 2 lose the store when rank 0 has finished, as they do later on."""
    for r in range(3):
        done = "".join(f"2026-03-02 10:00:4{n};INFO;step {n}0 of 50\n" for n in range(6))
        bye = f"2026-03-02 10:00:{46 if r == 0 else 52};INFO;exit 0\n"
        (tmp_path / f"hb{r}.log").write_text(done + bye)
        lost = f"[rank{r}]:[W302 10:00:47.9{r}8948217 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=4): Broken pipe\n"
        if r:
            (tmp_path / f"hb{r}.err").write_text(lost)
    assert analyze([str(tmp_path)]).document["verdict"]["outcome"] == "healthy"


@pytest.mark.parametrize("gives_up", [False, True])
def test_all_finish_in_one_file_and_one_dies_in_another(gives_up: bool, tmp_path: Path) -> None:
    """torchrun's restart, with stdout and stderr apart and no times on stdout: an agent that gave up would have said
    so, and then it is the evaluation behind the last step that failed."""
    trace = (
        '[rank{0}]: Traceback (most recent call last):\n[rank{0}]:   File "/work/job.py", line 21, in <module>\n'
        "[rank{0}]:     loss.backward()\n[rank{0}]: {1}\n"
    )
    closed = "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:52368"
    err = trace.format(2, "ConnectionResetError: [Errno 104] Connection reset by peer") + trace.format(0, closed)
    end = "E1122 19:56:51.165000 7785 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 2 (pid: 7821) of binary: /opt/python\n"
    agent = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    given_up = f'Traceback (most recent call last):\n  File "/opt/bin/torchrun", line 8, in <module>\n{agent}'
    (tmp_path / "job.err").write_text(err + end + (given_up if gives_up else ""))
    lines = [f"r{r}: {n}/120" for n in (0, 20, 40, 60, 40, 60, 80, 100) for r in range(3)]
    (tmp_path / "job.out").write_text("\n".join([*lines, *(f"r{r}: 120/120 finished" for r in range(3)), ""]))
    verdict = analyze([str(tmp_path)]).document["verdict"]
    assert verdict["outcome"] == ("incident" if gives_up else "recovered")
    assert verdict["headline"].startswith("Recovered: in an earlier attempt") != gives_up


def test_stacks_alone_tell_of_no_health(tmp_path: Path) -> None:
    (tmp_path / "rank0_gdb.txt").write_text(
        "Thread 2 (Thread 0x7fe9be0b1700 (LWP 442)):\n#0  0x00007fe93edd3dac in opal_progress ()\n"
        "   from /usr/lib/openmpi/libopen-pal.so.40\n#1  0x00007fe93f3e518d in PMPI_Gather ()\n"
        "   from /usr/lib/openmpi/libmpi.so.40\n"
    )
    assert analyze([str(tmp_path)]).document["verdict"]["outcome"] == "undetermined"


def test_a_launchers_table_is_no_work_of_its_ranks() -> None:
    """`rank : 0 (local_rank: 0)`, `rank : 1 (local_rank: 1)`, … grow from row to row."""
    assert signs.series([f"  rank      : {r} (local_rank: {r})" for r in range(4)]) is None
    assert signs.series([f"  seen      : {r}" for r in range(4)]) == 3


def test_a_death_at_exit_is_told_as_such(tmp_path: Path) -> None:
    """Rank 0 holds the store and leaves first; the others' monitors find it gone."""
    said = verdict_of("Training finished.\n" + KEEPALIVE, tmp_path)
    assert said["outcome"] == "healthy"
    assert "the run had finished before" in said["headline"]


def test_a_numbered_part_that_is_done_is_no_goodbye() -> None:
    """A logger's name may be `train`, which would make it one: `train: shard 4 done, loss 0.03`."""
    assert not signs.goodbye("train: shard 4 done, loss 0.0354")
    assert not signs.goodbye("run: video 12 finished")
    assert signs.goodbye("train: rank 4 done, exiting normally")
