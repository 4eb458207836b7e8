"""One rank queues a GPU kernel that does not end before a reduction."""

import torch
import torch.distributed as dist
import trainer


def main(job: trainer.Job) -> None:
    for step in job.steps():
        gradient = torch.rand(4096)
        if job.fails_at(step):
            torch.cuda._sleep(int(job.args.seconds * 1.5e9))  # cycles of the GPU's clock
        dist.all_reduce(gradient)
        job.report(step, float(gradient.mean()))


if __name__ == "__main__":
    trainer.run(main, backend="nccl", seconds=40.0)
