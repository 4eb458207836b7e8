"""A hand-written reduction of the gradients after the backward pass, on one rank only, beside those of DDP.

Shows: DDP's own bucket meets the foreign reduction: wrong size or time-out Expected:
pattern gloo-size-mismatch, category collective-mismatch, culprit not compared: gloo names no sender.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import trainer


def main() -> None:
    job = trainer.begin()
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        loss = job.learn(model, optimizer, *job.batch(step))
        if job.faulty and step == job.args.step:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)  # left over from the days before DDP
        job.report(step, loss)
    job.done()


if __name__ == "__main__":
    trainer.call(main)
