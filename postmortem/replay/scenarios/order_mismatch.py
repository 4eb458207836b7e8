"""One rank broadcasts the learning rate before it reduces the loss, the others do it the other way round.

Shows: a time-out, an abort on a message size, or with DETAIL a named mismatch of op types
Expected: pattern ranks-in-different-collectives, category collective-mismatch, culprit the rank at fault.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import trainer


def share(job: trainer.Job, step: int, loss: torch.Tensor, rates: torch.Tensor) -> None:
    if job.faulty and step == job.args.step:
        dist.broadcast(rates, src=0)
        dist.all_reduce(loss)
    else:
        dist.all_reduce(loss)
        dist.broadcast(rates, src=0)


def main() -> None:
    job = trainer.begin(width=2048)
    for step in job.steps():
        loss, rates = torch.rand(job.args.width), torch.full((16,), 0.01)
        share(job, step, loss, rates)
        job.report(step, float(loss.mean()))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
