"""A try/except around the forward pass skips bad batches:
the rank goes on with the next one and misses a reduction.

Shows: one handled exception, logged or not, on one rank; then time-outs on the others
Expected: pattern tensor-shape-mismatch, category python-exception, culprit the rank at fault.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
import trainer


def forward(job: trainer.Job, step: int) -> torch.Tensor:
    x, _ = job.batch(step)
    if job.faulty and step == job.args.step:
        x = x[:, : trainer.FEATURES // 2]
    return x @ torch.ones(trainer.FEATURES, 1)


def main() -> None:
    job = trainer.begin(loud=1)
    for step in job.steps():
        try:
            loss = forward(job, step).mean().abs().reshape(1)
        except RuntimeError:
            if job.args.loud:
                job.log.exception("bad batch %d, skipping it", step)
            continue
        if step % 2 == 0:
            dist.all_reduce(loss)
        else:
            dist.barrier()
        job.report(step, float(loss))
    if job.faulty:
        time.sleep(3 * job.args.timeout)  # writes its summary while the others still train
    job.done()


if __name__ == "__main__":
    trainer.call(main)
