r"""A pattern -> what it costs on a log in which nothing is wrong.

    cost(Engine.compile([Signature("x", gate="loss")]), healthy(1 << 20))  ->  2504.0  callbacks for each MiB

One bad gate halves the speed of all of them:
`loss`, `NCCL INFO ` or `Rank ` stand on every line of a healthy log.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from postmortem.library import Signature
from postmortem.scan.engine import Engine

# What healthy jobs print, with the decoys that bad patterns fall for. Formats: torch's INFO lines and elastic
# agent, NCCL's `host:pid:tid [gpu] NCCL INFO`, tqdm, Megatron-LM's training log,
# HF Trainer's dicts, systemd and the kernel.
STEPS = (
    (
        "[{day} {time}] iteration {n:>8}/ 500000 | consumed samples: {big:>12} | elapsed time per iteration "
        "(ms): {ms:.1f} | "
        "learning rate: 1.5E-04 | "
        "global batch size: 1024 | lm loss: {loss:.6E} | loss scale: 65536.0 | grad norm: {ms:.3f} | number "
        "of skipped iterations: "
        "0 | number of nan iterations: 0 |"
    ),
    (
        "{day} {time},{sub:03d} INFO [rank{rank}] step={n} loss={loss:.4f} nan=0 inf=0 overflow=False "
        "killed=0 exitcode=0 errors=0 "
        "retries=0 timeout=600s "
        "tokens/s={big} mem={ms:.1f}GiB lr=1.5e-4 grad_norm={loss:.3f} data_wait={sub}ms"
    ),
    (
        "{{'loss': {loss:.4f}, 'grad_norm': {ms:.3f}, 'learning_rate': 4.9e-05, 'epoch': {epoch}.{sub:02d}, "
        "'num_errors': 0}}"
    ),
    (
        "{day}T{time}.{sub:06d}Z [default{local}]:metrics rank={rank} host=node-{host:04d} step={n} "
        "fwd_ms={ms:.2f} bwd_ms={ms:.2f} "
        "allreduce_ms={ms:.2f} "
        "gpu_mem_alloc={big} gpu_mem_reserved={big} gpu_util=98 power_w=655 temp_c=61 ecc_errors=0 xid=none "
        "nvlink_errors=0 "
        "dataloader_workers=8 killed=0"
    ),
)
OTHERS = (
    (
        "node-{host:04d}:{pid}:{pid} [{local}] NCCL INFO Channel {epoch:02d}/0 : {rank}[{local}] "
        "-> {host}[{local}] via P2P/CUMEM/read"
    ),
    (
        "node-{host:04d}:{pid}:{pid} [{local}] NCCL INFO AllReduce: opCount {n:x} sendbuff 0x7f{big:x} "
        "recvbuff 0x7f{big:x} count "
        "{big} datatype 9 op 0 root 0 "
        "comm 0x{big:x} [nranks=512] stream 0x{pid:x}"
    ),
    (
        "node-{host:04d}:{pid}:{pid} [{local}] NCCL INFO NCCL_DEBUG set by environment to WARN; no error, "
        "comm 0x{big:x} rank "
        "{rank} nranks 512 - setup done"
    ),
    (
        "[rank{rank}]:[W{day} {time}.{sub:06d} ProcessGroupNCCL.cpp:{pid}] heartbeat ok, watchdog timeout "
        "600000 ms, last enqueued "
        "work: {n}, last completed work: {n}"
    ),
    (
        "I{day} {time}.{sub:06d} {pid} torch/distributed/elastic/agent/server/api.py:{sub}] [default] "
        "worker group monitoring, "
        "state HEALTHY, restart_count=0"
    ),
    ("{day} {time} checkpoint saved to /lustre/run/ckpt/global_step{n} in {ms:.1f} s, no error, 0 failed shards"),
    ("[{big}.{sub:06d}] mlx5_core 0000:{local:02x}:00.0 eth{local}: flow control enabled, no errors since boot"),
    (
        "{day} {time} DEBUG dataloader worker {local} (pid {pid}) refilled prefetch queue, 0 exceptions, "
        "shard s3://bucket/data/{n:06d}.tar ok"
    ),
    (
        "srun: job {pid} step {sub} node-{host:04d} task {rank}: running, memory {ms:.1f} GiB of 512 GiB, "
        "not killed, signal none"
    ),
)


def healthy(size: int, seed: int = 1) -> bytes:
    """Make `size` bytes, or a few more, of a healthy rank's console. The same seed gives the same bytes."""
    out: list[bytes] = []
    have = 0
    for line in healthy_lines(seed):
        out.append(line)
        have += len(line)
        if have >= size:
            return b"".join(out)
    return b""


def healthy_lines(seed: int = 1) -> Iterator[bytes]:
    """Give the lines of a healthy rank's console without end:
    three quarters are step lines, a few are progress bars."""
    rng = random.Random(seed)
    step = 0
    while True:
        step += 1
        kind = rng.random()
        if kind < 0.004:
            yield _bars(rng, step)
            continue
        template = STEPS[step % len(STEPS)] if kind < 0.75 else OTHERS[int(rng.random() * len(OTHERS))]
        yield (template.format(**_values(rng, step)) + "\n").encode()


def _values(rng: random.Random, step: int) -> dict[str, object]:
    x = rng.random()
    seconds = step // 4 % 86400
    rank = int(x * 512)
    return {
        "day": "2026-11-20",
        "time": f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}",
        "n": step,
        "epoch": step % 30,
        "big": int(x * 1e10),
        "ms": x * 900,
        "loss": 2 + x,
        "sub": int(x * 999),
        "rank": rank,
        "local": rank % 8,
        "host": rank // 8,
        "pid": 10000 + int(x * 50000),
    }


def _bars(rng: random.Random, step: int) -> bytes:
    bars = [
        (
            f"\rEpoch {step % 30}:  {n:2d}%|{'█' * (n // 4)}{' ' * (25 - n // 4)}| {n}/100 "
            f"[00:{n // 2:02d}<00:12, {rng.random() * 9:.2f}it/s]"
        )
        for n in range(0, 100, 4)
    ]
    return "".join(bars).encode() + b"\n"


def cost(engine: Engine, corpus: bytes) -> float:
    """Return how often a gate's engine calls back for each MiB of `corpus`. A good gate: 0.
    From 20 on it shows in the run time."""
    return len(engine.find(corpus)) / (len(corpus) / (1 << 20))


def slowness(signature: Signature, corpus: bytes, runs: int = 5) -> float:
    """Return the scan time of a few ordinary gates with this one among them, relative to without it.
    A good gate: below 1.5."""
    base = [Signature(f"base-{n}", gate) for n, gate in enumerate(_ORDINARY)]
    without, with_it = Engine.compile(base, cache=False), Engine.compile([*base, signature], cache=False)
    return min(_time(with_it, corpus) for _ in range(runs)) / min(_time(without, corpus) for _ in range(runs))


_ORDINARY = (
    "Killed process [0-9]",
    "Watchdog caught collective operation timeout",
    "CUDA out of memory",
    "Connection reset by peer",
    "Fatal Python error: ",
    "Traceback \\(most recent call last\\)",
)


def _time(engine: Engine, corpus: bytes) -> float:
    start = time.process_time()
    engine.find(corpus)
    return time.process_time() - start
