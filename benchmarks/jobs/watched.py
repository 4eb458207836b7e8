"""The job of `benchmarks/watch.py`: some ranks that train, and hang or pause in the way that is asked for.

    torchrun --nproc-per-node 2 watched.py "slow loader" 20

The number is the watch's patience in seconds: pauses are multiples of it.
"""

from __future__ import annotations

import ctypes
import datetime
import fcntl
import hashlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

HERE = Path(__file__).resolve().parent
case, P = sys.argv[1], float(sys.argv[2])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
odd, AT = rank == 1, 30


def log(text):
    if case != "one rank prints" or rank == 0:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S") + ",000 INFO "
        print(stamp + f"[rank{rank}] {text}", flush=case != "buffered output")


def idle(s):
    time.sleep(s)


def busy(s):
    end = time.monotonic() + s
    while time.monotonic() < end:
        compute()


def compute():
    x = torch.randn(120, 120)
    for _ in range(20):
        x = torch.tanh(x @ x.T / 120)


def fifo(name):
    path = HERE / name
    try:
        os.mkfifo(path)
    except FileExistsError:
        pass
    return path


# ── hangs ──


def load_batch(step):
    if case == "slow loader" and odd and step == AT:
        idle(900)
    if case == "blocked read" and odd and step == AT:
        r, w = os.pipe()
        os.read(r, 1)
    if case == "data server silent" and odd and step == AT:
        a, b = socket.socketpair()
        a.recv(10)
    if case == "loader reports that it waits" and odd and step == AT:
        while True:
            log(f"still waiting for shard 17 ({int(time.time())})")
            time.sleep(4)
    if case == "file lock" and odd and step == AT:
        path = HERE / "lock"
        held = open(path, "w")
        fcntl.flock(held, fcntl.LOCK_EX)
        mine = open(path, "w")
        fcntl.flock(mine, fcntl.LOCK_EX)
    return torch.ones(64)


LOCK = threading.Lock()


def tokenize_with_lock(step):
    with LOCK:
        return step


def save_checkpoint(step):
    if case == "checkpoint into a full pipe" and rank == 0:
        log(f"saving checkpoint at step {step}")
        with open(fifo("ckpt"), "wb") as file:
            file.write(b"x")
    dist.barrier()


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 100000

    def __getitem__(self, n):
        if case == "loader worker stuck" and odd and n > 8 * AT:
            time.sleep(900)
        return torch.ones(64)


def hang(step):
    if step != AT:
        return
    if case == "other collective" and odd:
        dist.barrier()
    if case == "one collective more" and rank == 0:
        dist.broadcast(torch.ones(64), 1)
    if case == "no rank sends":
        dist.recv(torch.ones(1), src=(rank + 1) % world)
    if case == "lock" and odd:

        def holder():
            with LOCK:
                time.sleep(900)

        threading.Thread(target=holder, daemon=True).start()
        time.sleep(0.2)
        tokenize_with_lock(step)
    if case == "empty queue" and odd:
        queue.Queue().get()
    if case == "child never ends" and odd:
        subprocess.run(["sleep", "900"])
    if case == "busy for ever" and odd:
        while True:
            compute()
    if case == "GIL held" and odd:
        ctypes.PyDLL(None).sleep(900)
    if case == "full pipe" and odd:
        r, w = os.pipe()
        os.write(w, b"x" * (1 << 20))
    if case == "checkpoint into a full pipe":
        save_checkpoint(step)
    if case == "evaluation on one rank" and rank == 0:
        log("evaluating")
        dist.barrier()
        log("evaluated")
    if case == "event never set" and odd:
        threading.Event().wait()
    if case == "stops itself" and odd:
        os.kill(os.getpid(), signal.SIGSTOP)
    if case == "all stop":
        dist.barrier()
        os.kill(os.getpid(), signal.SIGSTOP)
    if case == "finished early" and odd:
        log("uploading results")
        idle(900)


# ── healthy ──


def evaluate(s):
    busy(s)


def healthy(step):
    if case == "evaluation computes" and step in (20, 60):
        log("evaluating")
        evaluate(2.2 * P)
        log("accuracy 0.81")
    if case == "evaluation unannounced" and step == 30:
        evaluate(2 * P)
    if case == "checkpoint grows" and step == 30:
        if rank == 0:
            with open("checkpoint.bin", "wb") as file:
                end = time.monotonic() + 2.5 * P
                while time.monotonic() < end:
                    file.write(b"0" * (1 << 20))
                    file.flush()
                    time.sleep(0.5)
        dist.barrier()
    if case == "checkpoint to a slow disk" and step == 30:
        log("saving checkpoint to /ckpt/step_30")
        idle(3 * P)
        log("saved")
    if case == "compile in children" and step == 0:
        child = f"import time\nend=time.time()+{3 * P}\nwhile time.time()<end: pass"
        subprocess.run([sys.executable, "-c", child])
    if case == "slow first step" and step == 0:
        idle(3 * P)
    if case == "data pause" and step in (25, 50, 75):
        idle(0.7 * P)
    if case == "announced download" and step == 30:
        log("downloading shards 17 to 32")
        idle(3 * P)
        log("shards there")
    if case == "longer and longer":
        idle({20: 0.6, 40: 0.85, 60: 1.15}.get(step, 0) * P)
    if case == "slow steps":
        idle(1.2 * P)
    if case == "restart" and step == 30 and attempt == 0 and rank == 0:
        os._exit(3)
    if case == "one rank computes" and step == 30:
        if rank == 0:
            busy(2.5 * P)
        dist.barrier()
    if case == "one long call" and step == 30:
        if rank == 0:
            hashlib.pbkdf2_hmac("sha256", b"x", b"y", int(2e6 * 1.6 * P / 1.0))
        dist.barrier()
    if case == "evaluation waits for a server" and step == 30:
        log("validation starts")
        idle(3 * P)
        log("validated")
    if case == "trickle" and step == 30:
        a, b = socket.socketpair()

        def give():
            for _ in range(int(2.4 * P * 40)):
                b.send(b"x" * 100)
                time.sleep(0.025)
            b.close()

        threading.Thread(target=give, daemon=True).start()
        while a.recv(100):
            pass


if case == "slow start":
    idle(3 * P)
if case == "never joins" and odd:
    idle(900)
log("starting")
dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=30))
log(f"process group ready: rank {rank} of {world}, pid {os.getpid()}")
if case == "preprocessing on rank 0":
    if rank == 0:
        log("tokenizing the corpus")
        busy(3 * P)
    dist.barrier()
STEPS = {"slow steps": 5}.get(case, 110)
loader = None
if case == "loader worker stuck":
    loader = iter(torch.utils.data.DataLoader(Samples(), batch_size=8, num_workers=1))
lines = []
for step in range(STEPS):
    batch = next(loader)[0] if loader else load_batch(step)
    hang(step)
    healthy(step)
    compute()
    time.sleep(0.15)
    dist.all_reduce(batch)
    text = f"epoch 0 step {step} loss {2.3 / (step + 1):.4f}"
    if case == "bursty":
        lines.append(text)
        if len(lines) == 40:
            for one in lines:
                log(one)
            lines = []
        time.sleep(0.9 * P / 40)
    elif case == "progress bar":
        if rank == 0:
            sys.stderr.write(f"\r{step + 1:3d}%|{'#' * (step // 10)}| {step + 1}/110 [00:01, loss=0.1]")
            sys.stderr.flush()
    else:
        log(text)
    if case == "heartbeat":
        log("heartbeat: alive")
log("training finished")
time.sleep(1)
os._exit(0)
