"""Rank 0 writes a checkpoint to a slow file system while the others wait in the next reduction.

Shows: all ranks but 0 time out; rank 0's last line says it is saving
Expected: pattern rank-never-arrived, category hang, culprit the rank at fault.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
import trainer


def upload(path: str, seconds: float) -> None:
    """A file system that takes one block at a time."""
    with Path(path).open("wb") as file:
        for _ in range(int(10 * seconds)):
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.1)


def main() -> None:
    job = trainer.begin(seconds=40.0)
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
        if job.faulty and step == job.args.step:
            job.log.info("saving checkpoint checkpoint-%d", step)
            upload(f"checkpoint-{step}.pt", job.args.seconds)
            job.log.info("checkpoint saved")
    job.done()


if __name__ == "__main__":
    trainer.call(main)
