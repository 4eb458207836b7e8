"""One rank has fewer batches than the others.
With --at-end exit it leaves, with --at-end barrier it waits for the others at the end.

Shows: exit: a rank that ends well while its peers lose the connection; barrier: the early rank waits in
another collective Expected: pattern rank-left-early, category collective-mismatch, culprit the rank at fault.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import trainer


def main() -> None:
    job = trainer.begin(at_end="exit")
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = job.args.step if job.faulty else job.args.steps
    job.log.info("%d batches in this shard", batches)
    for step in job.steps():
        if step == batches:
            break
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
    job.log.info("epoch 0 finished after %d batches", batches)
    if job.args.at_end == "barrier":
        dist.barrier()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
