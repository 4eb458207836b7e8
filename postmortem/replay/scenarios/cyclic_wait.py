"""A pipeline in which every stage receives from its left neighbour before it sends to its right one:
all wait for each other.

Shows: every rank times out in recv in the same second; no rank is late
Expected: pattern ranks-all-receive, category hang, culprit nobody: all wait alike.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import trainer


def main() -> None:
    job = trainer.begin()
    left, right = (job.rank - 1) % job.world, (job.rank + 1) % job.world
    for step in job.steps():
        activation, message = torch.rand(256), torch.empty(256)
        if step < job.args.step and job.rank == 0:
            dist.send(activation, right)
            dist.recv(message, left)
        else:  # the "optimised" schedule forgets that somebody has to start
            dist.recv(message, left)
            dist.send(activation, right)
        job.report(step, float(message.mean()))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
