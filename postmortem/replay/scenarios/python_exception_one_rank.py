"""A label outside of the classes in one rank's shard raises an ordinary exception.

Shows: a traceback on one rank; the others lose their connection
Expected: pattern python-exception, category python-exception, culprit the rank at fault.
"""

from __future__ import annotations

import torch
import trainer


def checked(labels: torch.Tensor, step: int) -> torch.Tensor:
    worst = int(labels.max())
    if worst >= trainer.CLASSES:
        raise ValueError(f"sample {8 * step + 3}: label {worst} outside of [0, {trainer.CLASSES})")
    return labels


def main() -> None:
    job = trainer.begin()
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        x, y = job.batch(step)
        if job.faulty and step == job.args.step:
            y[3] = 4711
        job.report(step, job.learn(model, optimizer, x, checked(y, step)))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
