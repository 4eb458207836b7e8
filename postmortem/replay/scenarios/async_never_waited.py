"""One rank starts its last reduction asynchronously, never waits for the handle and leaves;
the others still need its data.

Shows: the leaving rank ends well, its peers lose the connection
Expected: pattern rank-left-early, category collective-mismatch, culprit the rank at fault.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import trainer


def main() -> None:
    job = trainer.begin()
    for step in job.steps():
        gradient = torch.rand(2_000_000)
        work = dist.all_reduce(gradient, async_op=True)
        if job.faulty and step == job.args.step:
            job.log.info("target loss reached, training finished")
            os._exit(0)  # the handle is still open
        work.wait()
        job.report(step, float(gradient.mean()))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
