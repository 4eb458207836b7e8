"""One rank reduces its metrics in another dtype."""

import torch
import torch.distributed as dist
import trainer


def main(job: trainer.Job) -> None:
    for step in job.steps():
        dtype = getattr(torch, job.args.dtype) if job.faulty and step >= job.args.step else torch.float32
        metrics = torch.rand(job.args.width).to(dtype)
        dist.all_reduce(metrics)
        job.report(step, float(metrics.float().mean()))


if __name__ == "__main__":
    trainer.run(main, width=4096, dtype="float64")
