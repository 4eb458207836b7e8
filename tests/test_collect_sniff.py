"""What a file is, told from its name and its first lines.
The excerpts are lines as their emitters write them."""

from __future__ import annotations

import pickle
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postmortem.input.sniff import kind

OOM = "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"
CPU = "CPU: 0 UID: 0 PID: 32688 Comm: python3 Not tainted 6.18.44 #1 PREEMPT(none) "
LAUNCH = (
    "W1120 21:03:39.289000 23884 torch/distributed/run.py:874] Setting OMP_NUM_THREADS environment variable "
    "for each process to be 1"
)
WATCHDOG = (
    "[rank1]:[E1118 20:32:23.955028747 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective "
    "operation timeout: "
    "WorkNCCL(SeqNum=2635, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600021 "
    "milliseconds before timing out."
)

KERNEL = {
    "dmesg": f"[ 2612.607544] {OOM}\n[ 2612.607558] {CPU}\n[ 2612.607563] Call Trace:\n",
    "dmesg --raw": f"<4>[ 2612.607544] {OOM}\n<4>[ 2612.607558] {CPU}\n",
    "dmesg -T": f"[Fri Nov 20 21:20:00 2026] {OOM}\n[Fri Nov  6 21:20:00 2026] {CPU}\n",
    "dmesg iso": f"2026-11-20T21:20:00,607544+00:00 {OOM}\n2026-11-20T21:20:00,607558+00:00 {CPU}\n",
    "dmesg -x": f"kern  :warn  : [ 2612.607544] {OOM}\nkern  :info  : [ 2612.607558] {CPU}\n",
    "dmesg -x -T": f"kern  :warn  : [Fri Nov 20 21:20:00 2026] {OOM}\n",
    "dmesg -H": f"[Nov20 21:20] {OOM}\n[  +0.000014] {CPU}\n",
    "dmesg -d": f"[ 2612.607544 <    0.000000>] {OOM}\n[ 2612.607558 <    0.000014>] {CPU}\n",
    "journalctl short": f"Nov 20 21:20:01 vm kernel: {OOM}\nNov 20 21:20:01 vm kernel: {CPU}\n",
    "journalctl short-precise": f"Nov 20 21:20:01.228496 vm kernel: {OOM}\n",
    "journalctl short-iso": (
        f"-- Boot bc02b0a7404d4ec2a28e0ab2471d5b03 --\n2026-11-20T21:20:01+0000 vm kernel: {OOM}\n"
    ),
    "journalctl short-full": f"Fri 2026-11-20 21:20:01 UTC vm kernel: {OOM}\n",
    "journalctl short-unix": f"1795209601.228496 vm kernel: {OOM}\n",
    "journalctl short-monotonic": f"[ 2612.607544] vm kernel: {OOM}\n",
    "journalctl cat": (
        "kernel: NVRM: Xid (PCI:0000:48:00): 79, pid=23884, name=python3, GPU has fallen off the bus.\n"
    ),
    "journalctl json": (
        '{"__CURSOR":"s=1436;i=33b","__REALTIME_TIMESTAMP":"1795209601228496","_TRANSPORT":"kernel","MESSAGE":"x"}\n'
    ),
    "journalctl export": "__CURSOR=s=1436;i=33b\n__REALTIME_TIMESTAMP=1795209601228496\n",
    "rsyslog": "May 19 07:08:57 ip-26-0-146-100 kernel: [680111.646286] NVRM: Xid (PCI:0000:db:00): 79\n",
    "rsyslog iso": "2026-05-19T07:08:57.123456+02:00 gpu-12 systemd[1]: Started Session 4 of user root.\n",
    "talosctl dmesg": (
        "10.155.116.19: kern: warning: [2026-04-20T18:06:20.599488292Z]: NVRM: Xid (PCI:0000:48:00): 45, pid=23884\n"
    ),
    "NVRM over several lines": (
        "[ 1902.308145] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n"
    ),
}


@pytest.mark.parametrize("form", KERNEL)
def test_every_form_of_a_kernel_log(form: str) -> None:
    assert kind("x.txt", KERNEL[form].encode())[0] == "kernel"


CASES: list[tuple[str, str, str]] = [
    ("agent", "train.log", LAUNCH + "\n[default0]:step 1\n"),
    (
        "agent",
        "x.txt",
        ("WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 25911 closing signal SIGTERM\n"),
    ),
    (
        "agent",
        "x.txt",
        (
            "[2024-03-26 16:50:50,221] torch.distributed.elastic.multiprocessing.api: [ERROR] failed "
            "(exitcode: -9) local_rank: 4\n"
        ),
    ),
    ("agent", "node-a/agent-a.err", ""),
    ("console", "slurm-42221.out", LAUNCH + "\n"),
    ("console", "none_zwxwqhe4/attempt_0/2/stderr.log", LAUNCH + "\n"),
    (
        "console",
        "x.log",
        (
            "Traceback (most recent call last):\n"
            '  File "torch/distributed/elastic/multiprocessing/errors/__init__.py", line 367, in wrapper\n'
        ),
    ),
    ("console", "run.log", WATCHDOG + "\n"),
    (
        "console",
        "train.log",
        "2026-11-20 21:14:56,279 INFO [rank0] train: initializing process group backend=gloo\n",
    ),
    ("console", "job.log", "2026-11-20 22:36:50.846 engine INFO: job 8 task 1/3 on vm\n"),
    ("console", "pod.log", "2026-11-20T22:36:50.846Z worker INFO: step 1 loss 0.5\n"),
    ("console", "rank0.log", "2026-11-20T22:36:50.846Z INFO train: epoch 0 step 1 loss 0.5\n"),
    (
        "console",
        "pod.log",
        (
            "2026-11-20T22:36:50.846123Z Traceback (most recent call last):\n"
            "2026-11-20T22:36:50.846124Z RuntimeError: x\n"
        ),
    ),
    (
        "console",
        "slurm.err",
        (
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=38205392.0.\n"
            "srun: error: node117: task 0: Out Of Memory\n"
        ),
    ),
    (
        "console",
        "x.log",
        "[3] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device\n",
    ),
    (
        "console",
        "rank2.err",
        (
            "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n"
            '  File "t.py", line 3 in f\n'
        ),
    ),
    (
        "console",
        "x",
        "[2022-07-26 19:14:55,449] [WARNING] [runner.py:159:fetch_hostfile] Unable to find hostfile\n",
    ),
    (
        "error-file",
        "none_zwxwqhe4/attempt_0/1/error.json",
        '{"message": {"message": "AssertionError: x", "extraInfo": {}}}',
    ),
    (
        "error-file",
        "saved.json",
        '{"message": {"message": "E", "extraInfo": {"py_callstack": "Traceback", "timestamp": "1795"}}}',
    ),
    (
        "flight-recorder",
        "fr_rank0.json",
        '{"comm_lib_version":"","entries":[{"collective_seq_id":1}],"pg_config":{}}',
    ),
    (
        "stack",
        "rank0_pid23887.txt",
        ('Process 23887: python3 -u train.py\nPython v3.11.7 (/opt/python3.11)\n\nThread 23887 (idle): "MainThread"\n'),
    ),
    ("stack", "x.txt", "\nCore file information:\nstate: R zombie: True niceness: 0\n"),
    (
        "stack",
        "x.txt",
        (
            "Traceback for thread 24102 (python3) [] (most recent call last):\n"
            '    (Python) File "train.py", line 10, in f\n'
        ),
    ),
    (
        "stack",
        "x.txt",
        ("[New LWP 20075]\n[New LWP 20124]\n[Thread debugging using libthread_db enabled]\n#0  0x00007f in raise ()\n"),
    ),
    (
        "stack",
        "hang_dump.txt",
        (
            'Timeout (0:05:00)!\nThread 0x00007f12 (most recent call first):\n  File "t.py", line 3 in f\n'
            '  File "t.py", line 9 in <module>\n'
        ),
    ),
    (
        "process-table",
        "ps.txt",
        ("  PID  PPID STAT WCHAN                        ELAPSED     TIME   RSS CMD\n24102 24099 Ssl  futex_do_wait\n"),
    ),
    (
        "process-table",
        "ps.txt",
        "USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\nroot           1  0.0\n",
    ),
    ("process-table", "x", "top - 12:28:34 up 14 min,  0 user,  load average: 0.13, 0.07, 0.06\n"),
    (
        "cgroup",
        "x.txt",
        (
            "/sys/fs/cgroup/memory/job_1/memory.limit_in_bytes:\n734003200\n\n"
            "/sys/fs/cgroup/memory/job_1/memory.failcnt:\n881\n"
        ),
    ),
    ("cgroup", "x.txt", "low 0\nhigh 0\nmax 1124\noom 3\noom_kill 1\noom_group_kill 0\n"),
    ("cgroup", "memory.current", "734003200\n"),
    (
        "scheduler",
        "x.txt",
        ("JobId=8 JobName=train\n   UserId=root(0) GroupId=root(0)\n   JobState=FAILED Reason=NonZeroExitCode\n"),
    ),
    (
        "scheduler",
        "x.txt",
        (
            "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n"
            "------------ ---------- ----------\n8 train\n"
        ),
    ),
    ("scheduler", "x.txt", "JobID|JobName|State|ExitCode\n8|train|OUT_OF_MEMORY|0:125\n"),
    (
        "scheduler",
        "node-a/slurmd.log",
        "[2026-03-25T10:34:07.530] error: *** STEP 8.0 ON node-a CANCELLED AT 2026-03-25T10:34:07 ***\n",
    ),
    (
        "scheduler",
        "x.log",
        (
            "[2026-03-25T10:34:07.530] [8.batch] task 0 (17) exited. Killed by signal 9.\n"
            "[2026-03-25T10:34:07.600] debug:  x\n"
        ),
    ),
    (
        "kubernetes",
        "x.txt",
        "Name:             bert-worker-3\nNamespace:        ml\nStatus:           Failed\n",
    ),
    (
        "kubernetes",
        "x.txt",
        (
            "  Warning  Evicted              2m11s  kubelet    Pod ephemeral local storage usage exceeds "
            "the total limit of containers 5Gi.\n"
        ),
    ),
    (
        "kubernetes",
        "x.txt",
        "LAST SEEN   TYPE      REASON      OBJECT     MESSAGE\n2m   Warning   OOMKilling  pod/x\n",
    ),
    (
        "kubernetes",
        "x.txt",
        "NAME        READY   STATUS      RESTARTS   AGE\nbert-0      0/1     OOMKilled   0          3m\n",
    ),
    ("kubernetes", "pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bert-worker-3\n"),
    ("kubernetes", "pod.json", '{\n    "apiVersion": "v1",\n    "kind": "Pod"\n}\n'),
    (
        "gpu-report",
        "x.txt",
        "\n==============NVSMI LOG==============\n\nTimestamp   : Fri Nov 20 21:20:00 2026\n",
    ),
    (
        "gpu-report",
        "node-a/nvidia-smi.txt",
        "| NVIDIA-SMI 570.158.01   Driver Version: 570.158.01   CUDA Version: 12.8 |\n",
    ),
    (
        "ray",
        "x.log",
        "[2026-11-20 22:33:11,441 I 23493 23493] (raylet) main.cc:283: Setting cluster ID to: ce77a288\n",
    ),
    (
        "ray",
        "session_2026-11-20_22-33-10_581234_23426/logs/dashboard.log",
        "2026-11-20 22:33:11,099\tINFO utils.py:319 -- Get all modules\n",
    ),
    (
        "console",
        "session_latest/logs/worker-0a1b2c3d4e5f-01000000-23762.out",
        ":job_id:01000000\n:actor_name:TrainController\n",
    ),
    ("json-lines", "train.jsonl", '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.4}\n'),
    (
        "json-lines",
        "attempt_0/0/stdout.log",
        '{"asctime": "2026-11-20 22:33:15,660", "levelname": "INFO", "message": "x"}\n',
    ),
    (
        "environment",
        "env.txt",
        "NCCL_DEBUG=INFO\nRANK=0\nWORLD_SIZE=4\nHOSTNAME=node-z\nPATH=/usr/bin:/bin\n",
    ),
    ("console", "x.txt", "EPOCH=1 LOSS=2.1\nEPOCH=2 LOSS=1.9\nEPOCH=3 LOSS=1.8\n"),
    (
        "core-note",
        "x.txt",
        "core: ELF 64-bit LSB core file, x86-64, version 1 (SYSV), SVR4-style, from 'python3 -u train.py'\n",
    ),
    (
        "core-note",
        "x.txt",
        "           PID: 20075 (python3)\n           UID: 0 (root)\n        Signal: 11 (SEGV)\n",
    ),
    ("console", "x.txt", "anything that nobody knows\n"),
    ("console", "x.txt", ""),
    ("kernel", "node-a/dmesg.txt", "dmesg: read kernel buffer failed: Operation not permitted\n"),
    ("kernel", "kern.log.1", ""),
]


@pytest.mark.parametrize(("want", "name", "head"), CASES, ids=[f"{want}-{at}" for at, (want, _, _) in enumerate(CASES)])
def test_kinds(want: str, name: str, head: str) -> None:
    got, why = kind(name, head.encode())
    assert got == want, why
    assert why


def test_a_compression_suffix_does_not_hide_the_name() -> None:
    assert kind("dmesg.txt.gz", b"")[0] == "kernel"


def test_a_byte_order_mark_and_nuls_in_front_do_not_hide_the_lines() -> None:
    assert kind("x", b"\xef\xbb\xbf" + KERNEL["dmesg"].encode())[0] == "kernel"
    assert kind("x", bytes(4096) + KERNEL["dmesg"].encode())[0] == "kernel"


def test_pickles_are_flight_recorders_by_their_keys_and_never_loaded() -> None:
    dump = pickle.dumps({"version": "2.10", "pg_config": {}, "entries": []}, protocol=2)
    assert kind("fr_rank0.pkl", dump)[0] == "flight-recorder"
    assert kind("nccl_trace_rank_0", dump)[0] == "flight-recorder"
    hostile = b"\x80\x04cposix\nsystem\n(X\x02\x00\x00\x00idtR."
    assert kind("fr_rank0.pkl", hostile) == ("binary", "binary (pickle)")


def test_text_with_nuls_is_text_and_data_is_not() -> None:
    text = b"step 12 loss 0.25 of rank 3\n" * 200
    assert kind("a.log", text + bytes(8000) + text)[0] == "console", "a page that the disk lost"
    assert kind("a.log", text.replace(b"loss", b"los\0"))[0] == "console", "a NUL in each line"
    assert kind("a.log", bytes(65536))[0] == "console", "logrotate truncated it, the writer went on where it was"
    assert kind("a.log", "损失 0.25 训练\n".encode("gbk") * 300)[0] == "console", "an encoding of before UTF-8"
    assert kind("a.log", "\x1b[36m(TrainController pid=23641)\x1b[0m é\n".encode() * 100)[0] == "console"
    noise = random.Random(0).randbytes(20_000)
    assert kind("a.log", noise) == ("binary", "binary (no text)")
    assert kind("a.log", b"".join(n.to_bytes(8, "little") for n in range(8000))) == (
        "binary",
        "binary (no text)",
    )


@given(
    st.binary(max_size=300),
    st.sampled_from(["x", "dmesg.txt", "error.json", "fr_rank0.json", "rank0.log", "a.jsonl"]),
)
def test_any_bytes_have_a_kind(head: bytes, name: str) -> None:
    assert kind(name, head)[0]


def test_deep_json_does_not_exhaust_the_stack() -> None:
    assert kind("x.jsonl", b'{"a":' * 30_000)[0] in ("console", "json-lines")
