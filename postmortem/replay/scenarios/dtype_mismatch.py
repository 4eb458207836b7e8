"""One rank computes its metrics in double precision (a numpy default), the others in single precision.

Shows: half of the message is missing or too much; DETAIL names both dtypes Expected:
pattern gloo-size-mismatch, category collective-mismatch, culprit not compared: gloo names no sender.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import trainer


def main() -> None:
    job = trainer.begin(width=4096, dtype="float64")
    for step in job.steps():
        kind = getattr(torch, job.args.dtype) if job.faulty and step >= job.args.step else torch.float32
        metrics = torch.rand(job.args.width).to(kind)
        dist.all_reduce(metrics)
        job.report(step, float(metrics.float().mean()))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
