"""One rank reduces a NaN while NCCL checks for NaNs."""

import torch
import torch.distributed as dist
import trainer


def main(job: trainer.Job) -> None:
    for step in job.steps():
        gradient = torch.rand(4096)
        if job.fails_at(step):
            gradient[17] = float("nan")
        dist.all_reduce(gradient)
        job.report(step, float(gradient.mean()))


if __name__ == "__main__":
    trainer.run(main, backend="nccl")
