"""One rank opens a file per sample and never closes one, until its descriptor limit.

Shows: `OSError: [Errno 24] Too many open files`
Expected: pattern too-many-open-files, category resource-limit, culprit the rank at fault.
"""

from __future__ import annotations

import resource
from pathlib import Path

import torch
import trainer


def main() -> None:
    job = trainer.begin(limit=160, per_step=16)
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    resource.setrlimit(resource.RLIMIT_NOFILE, (job.args.limit, job.args.limit))
    handles = []
    for step in job.steps():
        if job.faulty:
            handles += [Path(__file__).open() for _ in range(job.args.per_step)]  # noqa: SIM115
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
