"""TORCH_NCCL_NAN_CHECK is on, and one rank brings a NaN to a reduction.

Shows: an assertion of `checkForNaN` on one rank, then `device-side assert triggered`
Expected: pattern nccl-nan-check, category numerics, culprit the rank at fault.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import trainer


def main() -> None:
    job = trainer.begin(backend="nccl")
    for step in job.steps():
        gradient = torch.rand(4096)
        if job.faulty and step == job.args.step:
            gradient[17] = float("nan")
        dist.all_reduce(gradient)
        job.report(step, float(gradient.mean()))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
