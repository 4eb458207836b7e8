"""An excerpt of a console, as people paste it, is no healthy run where it shows a failure,
and never tells more than it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from postmortem.analyze import Options, analyze


def told(tmp_path: Path, text: str, name: str = "out.log") -> tuple[str, str | None, list[int]]:
    (tmp_path / name).write_text(text)
    verdict = analyze([str(tmp_path)], Options()).document["verdict"]
    return verdict["outcome"], verdict["category"], verdict["culprit"]["ranks"]


NO_STORE = "RuntimeError: The client socket has failed to connect to any network address of (node-0, 29500)."
ATTEMPT = "[W socket.cpp:663] [c10d] The client socket has failed to connect to [node-0]:29500 (errno: 110 - Connection timed out).\n"
STALL = "W stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks\n"
NAMED = "Stalled ranks:\n6: [allreduce.conv1.weight, allreduce.bn1.bias ...]\n"
STEP = "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.212200\n"
BARRIER = "RuntimeError: Timed out initializing process group in store based barrier on rank: {}, for key: store_based_barrier_key:1 (world_size={}, worker_count={}, timeout=0:10:00)\n"
HUNG = "[7612.1] INFO: task python:19772 blocked for more than 120 seconds.\n"
RECORD = (
    "ERROR:torch.distributed.elastic.multiprocessing.errors.error_handler:{\n"
    '  "message": {\n    "message": "RuntimeError: Permission denied",\n    "extraInfo": {\n'
    '      "py_callstack": [\n'
)
EVENTS = "Events:\n  Type  Reason  Age  From  Message\n"
UNMOUNTED = "  Warning  FailedMount  7m  kubelet  Unable to mount volumes: unmounted volumes=[a]: timed out waiting for the condition\n"
MOUNTED = "  Normal   Started  5m  kubelet  Started container trainer\n"
BACK_OFF = "  Warning  BackOff  2m  kubelet  Back-off restarting failed container trainer\n"
NO_NODE = "(autoscaler +32s) Error: No available node types can fulfill resource request {'GPU': 8.0}.\n"
TAKEN = (
    "[W socket.cpp:426] [c10d] The server socket has failed to bind to 0.0.0.0:25641 (errno: 98 - Address already in use).\n"
    "[E socket.cpp:462] [c10d] The server socket has failed to listen on any local network address.\n"
)
ABORTED = " 0: application called MPI_Abort(MPI_COMM_WORLD, 1) - process 0\n"
CANCELLED = (
    " 0: slurmstepd: error: *** STEP 2943.2 ON n609 CANCELLED AT 2019-10-29T12:50:09 ***\n"
    "srun: error: n609: tasks 0-15: Killed\n"
)
WORK_3 = "".join(
    f"{rank}: 2026-11-20 22:36:{step:02d} iteration {step} loss 2.3\n" for step in range(20) for rank in range(3)
)
EVENT = "0: slurmstepd-vm: error: Detected 1 oom-kill event(s) in StepId=8.0. Some of your processes may have been killed by the cgroup out-of-memory handler.\n"
TASK_2 = "srun: error: vm: task 2: Out Of Memory\n"
CRAY = "x4006c0s6b0n0.hsn.cm.site: rank {} died from signal {}\n"
SPARK = "org.apache.spark.SparkException: Job aborted due to stage failure: Could not recover from a failed barrier ResultStage.\n"
NO_ROOM = "OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB. GPU 2 has a\n"
LOADING = "Loading modules: 100%|####| 4/4 [00:15<00:00,  3.85s/it]\n"
EXCERPTS = {
    "every address is in use, and then the excerpt ends": (TAKEN, ("incident", "rendezvous", [])),
    "an abort comes before the cancellation": (ABORTED + CANCELLED, ("incident", "python-exception", [0])),
    "the step's daemon speaks through some task's pipe": (WORK_3 + EVENT, ("incident", "host-oom", [])),
    "and srun names the task": (WORK_3 + EVENT + TASK_2, ("incident", "host-oom", [2])),
    "the rank that died first, of a Cray": (
        CRAY.format(256, 11) + CRAY.format(0, 15),
        ("incident", "native-crash", [256]),
    ),
    "a rank that the launcher stopped": (CRAY.format(0, 15), ("undetermined", None, [])),
    "Spark's own words are no Python exception": (SPARK, ("incident", "python-exception", [])),
    "a bar of what is loaded is no step that came later": (NO_ROOM + LOADING, ("incident", "gpu-oom", [])),
    "a line of the kernel that somebody chose": (HUNG, ("incident", "hang", [])),
    "torchelastic's record of an exception, cut off": (RECORD, ("incident", "python-exception", [])),
    "a volume that does not come": (EVENTS + UNMOUNTED, ("incident", "storage", [])),
    "a volume that came late": (EVENTS + UNMOUNTED + MOUNTED, ("healthy", None, [])),
    "a volume that came late, and then another failure": (
        EVENTS + UNMOUNTED + MOUNTED + BACK_OFF,
        ("undetermined", None, []),
    ),
    "a plan is no step": ("Total training steps: 5640\n" + NO_NODE, ("incident", "scheduler", [])),
    "the nodes came": (NO_NODE + STEP, ("healthy", None, [])),
    "a kill of which only slurmctld tells": (
        "[2026-05-27T11:37:57.377] _job_complete: JobId=127441 WTERMSIG 9\n",
        ("incident", "external-signal", []),
    ),
    "LSF's 139": ("Exited with exit code 139.\n", ("incident", "native-crash", [])),
    "an exception behind a logger's letter": (
        "1795377452.072116 E RuntimeError: The size of tensor a (2) must match the size of tensor b (3)\n",
        ("incident", "python-exception", []),
    ),
    "spawn tells of the first that ended": (
        (
            "W1122 19:46:56.312000 3455 torch/multiprocessing/spawn.py:165] Terminating process 3473 via signal SIGTERM\n"
            'Traceback (most recent call last):\n  File "/work/spawn.py", line 18, in <module>\n    mp.spawn(work, nprocs=2)\n'
            "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGTERM\n"
        ),
        ("incident", "external-signal", [1]),
    ),
    "SkyPilot kills the others with 137": (
        "ERROR: Job 1 failed with return code list: [137, 1]\n",
        ("incident", "python-exception", []),
    ),
    "a summary of a platform": (
        "2026-02-25 14:11:16 Failed - Training job failed\n",
        ("incident", "python-exception", []),
    ),
    "hydra's wait status": (
        "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   EXIT CODE: 9\n",
        ("incident", "external-signal", []),
    ),
    "an exception line without its traceback opens the file": (
        NO_STORE + "\n",
        ("incident", "rendezvous", []),
    ),
    "a code line and the exception are left of the traceback": (
        '    x = f"{n}"\nRuntimeError: 8 > 4 devices\n',
        ("incident", "python-exception", []),
    ),
    "the same words behind other lines are prose": (
        "model ready\nRuntimeError: was retried\n" + STEP,
        ("healthy", None, []),
    ),
    "the last attempt to find the store": (ATTEMPT, ("undetermined", None, [])),
    "an attempt before the job ran": (ATTEMPT + STEP, ("healthy", None, [])),
    "Horovod names who did not come": (STEP + STALL + NAMED, ("incident", "hang", [6])),
    "and then it came": (STEP + STALL + NAMED + STEP.replace("640", "1280"), ("healthy", None, [])),
    "the same step once more is a bar that is drawn again": (
        STEP + STALL + NAMED + STEP,
        ("incident", "hang", [6]),
    ),
    "all who came say that one is missing": (BARRIER.format(0, 2, 1), ("incident", "rendezvous", [1])),
    "not all who came complain": (BARRIER.format(0, 4, 3), ("incident", "rendezvous", [])),
    "more came than there are": (BARRIER.format(0, 4, 16), ("incident", "rendezvous", [])),
    "the end of an epoch is no goodbye": (
        (
            "Finished epoch 1 path 1 pass 1\n"
            "RuntimeError: [/x/gloo/transport/tcp/pair.cc:575] Connection closed by peer [192.0.2.9]:16062\n"
        ),
        ("incident", "peer-lost", []),
    ),
}


@pytest.mark.parametrize("name", EXCERPTS)
def test_an_excerpt_says_no_more_than_it_shows(name: str, tmp_path: Path) -> None:
    text, expected = EXCERPTS[name]
    assert told(tmp_path, text) == expected


def test_a_pod_that_waits_for_a_node_and_one_that_found_it(tmp_path: Path) -> None:
    head = "Events:\n  Type     Reason            Age   From     Message\n"
    waits = "  Warning  FailedScheduling  97s   volcano  10/16 tasks in gang unschedulable: 16 Pending.\n"
    found = "  Normal   Scheduled         90s   volcano  Successfully assigned train/worker-0 to gpu-07\n"
    assert told(tmp_path, head + waits, "events.txt")[:2] == ("incident", "scheduler")
    assert told(tmp_path, head + waits + found, "events.txt")[0] == "healthy"


def test_a_file_server_that_was_only_slow(tmp_path: Path) -> None:
    gone = "[Wed Apr 10 17:58:24 2024] nfs: server 192.0.2.1 not responding, still trying\n"
    back = "[Wed Apr 10 17:58:39 2024] nfs: server 192.0.2.1 OK\n"
    assert told(tmp_path, gone, "dmesg.txt")[:2] == ("incident", "storage")
    assert told(tmp_path, gone + back, "dmesg.txt")[0] == "healthy"


def test_a_traceback_that_is_cut_off_is_no_healthy_run(tmp_path: Path) -> None:
    log = 'Traceback (most recent call last):\n  File "/opt/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
    assert told(tmp_path, log)[:2] == ("incident", "python-exception")


@pytest.mark.parametrize(("comm", "outcome"), [("python3", "incident"), ("gnome-shell", "undetermined")])
def test_a_segfault_line_of_the_kernel_alone(comm: str, outcome: str, tmp_path: Path) -> None:
    line = f"[11.5] {comm}[40]: segfault at 10 ip 00007fabdd6c37d8 sp 00007ffddcd64fd0 error 4 in libx.so[7fabdd699000+77000]\n"
    assert told(tmp_path, line, "dmesg.txt")[0] == outcome


def test_container_states_cut_from_describe(tmp_path: Path) -> None:
    log = (
        "trainer\n  State: Running\n    Started: Mon, 13 Nov 2023\n  Last State: Terminated\n"
        "    Reason: Error\n    Exit Code: 137\n"
    )
    assert told(tmp_path, log, "pod.txt")[0] != "healthy"


def test_the_host_of_a_task_that_srun_names(tmp_path: Path) -> None:
    """Slurm's daemon says that memory ran out, srun whose task it was and where."""
    killed = (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.\n"
    )
    (tmp_path / "job.err").write_text(killed + "srun: error: gpu17: task 3: Out Of Memory\n")
    culprit = analyze([str(tmp_path)], Options(redact=False)).document["verdict"]["culprit"]
    assert (culprit["ranks"], culprit["hosts"]) == ([3], ["gpu17"])
