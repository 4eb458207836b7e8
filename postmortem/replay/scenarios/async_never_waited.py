"""One rank exits while its last asynchronous reduction is still running."""

import os

import torch
import torch.distributed as dist
import trainer


def main(job: trainer.Job) -> None:
    for step in job.steps():
        gradient = torch.rand(2_000_000)
        work = dist.all_reduce(gradient, async_op=True)
        if job.fails_at(step):
            job.log.info("target loss reached, training finished")
            os._exit(0)  # without work.wait()
        work.wait()
        job.report(step, float(gradient.mean()))


if __name__ == "__main__":
    trainer.run(main)
