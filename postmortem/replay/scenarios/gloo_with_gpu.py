"""A tensor on the GPU is reduced in a process group with the backend `cpu:gloo` only."""

import torch
import torch.distributed as dist
import trainer


def main(job: trainer.Job) -> None:
    dist.all_reduce(torch.rand(1))
    job.train()


if __name__ == "__main__":
    trainer.run(main, backend="cpu:gloo", device="cuda")
