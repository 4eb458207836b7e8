"""The loss is appended to a list for a plot at the end, with its autograd graph: every step's activations
stay alive. One rank logs every step, the others only now and then, so that one grows and is killed by the
kernel.

Shows: memory that grows by the same amount each step, then a kernel OOM block
Expected: pattern kernel-oom-killed-process, category host-oom, culprit the rank at fault.
"""

from __future__ import annotations

import resource

import torch
import trainer
from torch import nn


def main() -> None:
    job = trainer.begin(width=2048)
    model = job.distribute(nn.Sequential(nn.Linear(trainer.FEATURES, 64), nn.ReLU(), nn.Linear(64, trainer.CLASSES)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    history: list[torch.Tensor] = []
    for step in job.steps():
        x, y = job.batch(step)
        wide = x.repeat(job.args.width, 1) if job.faulty else x
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(wide), y.repeat(job.args.width) if job.faulty else y)
        loss.backward(retain_graph=job.faulty)
        optimizer.step()
        if job.faulty:
            history.append(loss)  # should be float(loss)
        if step % 4 == 0:
            job.log.info("memory: max rss %d MiB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        job.report(step, float(loss.detach()))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
