"""Jobs in which one rank lets the others wait."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import trainer


def slow_rank(job: trainer.Job) -> None:
    try:
        for _ in job.trained(fault=lambda: time.sleep(job.args.stall)):
            if job.args.dump:
                job.dump_recorder()
    finally:
        if job.args.dump:
            job.dump_recorder()


TOKENIZER = threading.Lock()


def tokenized(index: int) -> torch.Tensor:
    with TOKENIZER:
        return torch.randn(trainer.FEATURES)


def prefetch() -> None:
    with TOKENIZER:
        time.sleep(3.0)


def dataloader_fork_deadlock(job: trainer.Job) -> None:
    loader = job.loader(tokenized)
    job.network()
    for step in job.steps():
        if step == job.args.step:  # the second epoch starts with new workers
            if job.faulty:
                threading.Thread(target=prefetch, daemon=True).start()
                time.sleep(0.5)
            loader = job.loader(tokenized)
        job.report(step, job.learn(next(loader), job.batch(step)[1]))


def timed(job: trainer.Job, loader: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
    for step in range(job.args.steps):
        began = time.monotonic()
        batch = next(loader)
        job.log.info("step %d: data %.2f s", step, time.monotonic() - began)
        yield batch


def dataloader_starvation(job: trainer.Job) -> None:
    fast = job.args.step * trainer.BATCH

    def decoded(index: int) -> torch.Tensor:
        if job.faulty and index > fast:
            time.sleep(0.05 * (index - fast))
        return torch.randn(trainer.FEATURES)

    job.network()
    job.train(inputs=timed(job, job.loader(decoded)))


def upload(path: str, seconds: float) -> None:
    """Write ten blocks a second."""
    with Path(path).open("wb") as file:
        for _ in range(int(10 * seconds)):
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.1)


def rank0_in_io(job: trainer.Job) -> None:
    for step in job.trained():
        if job.fails_at(step):
            job.log.info("saving checkpoint checkpoint-%d", step)
            upload(f"checkpoint-{step}.pt", job.args.seconds)
            job.log.info("checkpoint saved")


EXAMPLES = 24_000


def tokenize(seconds: float) -> None:
    """Redraw a progress bar as tqdm does."""
    began = time.monotonic()
    while (share := (time.monotonic() - began) / seconds) < 1:
        done, bar = int(EXAMPLES * share), "█" * int(10 * share)
        clock = f"00:{int(seconds * share):02d}<00:{int(seconds * (1 - share)):02d}"
        speed = f"{EXAMPLES / seconds:.2f} examples/s"
        sys.stderr.write(f"\rtokenizing: {int(100 * share):3d}%|{bar:10}| {done}/{EXAMPLES} [{clock}, {speed}]")
        sys.stderr.flush()
        time.sleep(0.2)
    sys.stderr.write("\n")


def rank0_prepares_data(job: trainer.Job) -> None:
    if job.faulty:
        tokenize(job.args.seconds)
    dist.barrier()
    job.train()


def monitored_barrier(job: trainer.Job) -> None:
    if job.faulty:
        job.log.info("building vocabulary cache (1 of 1)")
        time.sleep(job.args.build)
    dist.monitored_barrier(timeout=timedelta(seconds=job.args.timeout), wait_all_ranks=True)
    job.train()
