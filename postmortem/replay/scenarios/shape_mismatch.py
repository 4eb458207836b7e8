"""The last batch of one rank is larger, and so is the tensor it reduces.

Shows: gloo aborts on a message of the wrong size, or waits; DETAIL names both shapes Expected:
pattern gloo-size-mismatch, category collective-mismatch, culprit not compared: gloo names no sender.
"""

from __future__ import annotations

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


def main() -> None:
    job = trainer.begin(extra=4096, collective="all_reduce")
    for step in job.steps():
        width = 64 + (job.args.extra if job.faulty and step == job.args.step else 0)
        scores = torch.rand(width)
        share(job, scores)
        job.report(step, float(scores.mean()))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
