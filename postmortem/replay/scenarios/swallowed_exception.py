"""One rank handles an exception, skips the batch and misses a reduction."""

import time

import torch
import torch.distributed as dist
import trainer


def forward(job: trainer.Job, step: int) -> torch.Tensor:
    x, _ = job.batch(step)
    if job.fails_at(step):
        x = x[:, : trainer.FEATURES // 2]
    return x @ torch.ones(trainer.FEATURES, 1)


def main(job: trainer.Job) -> None:
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
        time.sleep(3 * job.args.timeout)


if __name__ == "__main__":
    trainer.run(main, loud=1)
