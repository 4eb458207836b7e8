"""One rank meets a sample with an infinite value;
a step later every rank's loss is NaN, and nothing complains.

Shows: `nan` in the progress lines, first on one rank; exit 0
Expected: pattern loss-is-nan, category numerics, culprit the rank at fault.
"""

from __future__ import annotations

import torch
import trainer


def main() -> None:
    job = trainer.begin()
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        x, y = job.batch(step)
        if job.faulty and step == job.args.step:
            x[2, 5] = float("inf")
        job.report(step, job.learn(model, optimizer, x, y), every=1)
    job.done()


if __name__ == "__main__":
    trainer.call(main)
