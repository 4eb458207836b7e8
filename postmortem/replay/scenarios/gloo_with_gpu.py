"""The group is formed with the backends `cpu:gloo` only,
and one tensor on its way to a reduction lies on the GPU.

Shows: `No backend type associated with device type cuda` on every rank
Expected: pattern gloo-with-wrong-device, category python-exception, culprit any rank: all run the same line.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import trainer


def main() -> None:
    job = trainer.begin(backend="cpu:gloo", device="cuda")
    loss = torch.rand(1)
    dist.all_reduce(loss)
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
