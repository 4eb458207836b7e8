"""The last batch of one rank, and the tensor it reduces, is larger than those of the others."""

import torch
import torch.distributed as dist
import trainer


def share(job: trainer.Job, scores: torch.Tensor) -> None:
    parts = [torch.empty_like(scores) for _ in range(job.world)]
    match job.args.collective:
        case "all_reduce":
            dist.all_reduce(scores)
        case "broadcast":
            dist.broadcast(scores, src=0)
        case "all_gather":
            dist.all_gather(parts, scores)
        case "reduce_scatter":
            dist.reduce_scatter(scores, parts)


def main(job: trainer.Job) -> None:
    for step in job.steps():
        scores = torch.rand(64 + (job.args.extra if job.fails_at(step) else 0))
        share(job, scores)
        job.report(step, float(scores.mean()))


if __name__ == "__main__":
    trainer.run(main, extra=4096, collective="all_reduce")
