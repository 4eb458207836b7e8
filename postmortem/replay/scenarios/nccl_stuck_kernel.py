"""One rank queues a kernel that does not come to its end (a deadlocked custom operator);
the reduction behind it never starts.

Shows: the NCCL watchdog's time-out on every rank, and a flight-recorder dump of each
Expected: pattern nccl-watchdog-timeout, category hang, culprit any rank: all time out alike.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import trainer


def main() -> None:
    job = trainer.begin(backend="nccl", seconds=40.0)
    for step in job.steps():
        gradient = torch.rand(4096)
        if job.faulty and step == job.args.step:
            torch.cuda._sleep(int(job.args.seconds * 1.5e9))  # cycles of the GPU's clock
        dist.all_reduce(gradient)
        job.report(step, float(gradient.mean()))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
