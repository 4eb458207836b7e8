"""The last batch of one rank is larger, and so is the tensor it reduces.

Shows: gloo aborts on a message of the wrong size, or waits; DETAIL names both shapes
Expected: pattern gloo-size-mismatch, category collective-mismatch, culprit the rank at fault.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import trainer


def main() -> None:
    job = trainer.begin(extra=4096)
    for step in job.steps():
        width = 64 + (job.args.extra if job.faulty and step == job.args.step else 0)
        scores = torch.rand(width)
        dist.all_reduce(scores)
        job.report(step, float(scores.mean()))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
