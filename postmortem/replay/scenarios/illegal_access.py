"""A custom operator on one rank trusts a length that it was given and reads far beyond its tensor.

Shows: `an illegal memory access was encountered`, often a few calls later; Xid 31 in the kernel log where it
can be read Expected: pattern cuda-illegal-address, category gpu-fault, culprit the rank at fault.
"""

from __future__ import annotations

import torch
import trainer


class Rows:
    """Memory as another library hands it over: an address and a length that nobody checks."""

    def __init__(self, tensor: torch.Tensor, count: int) -> None:
        self.tensor = tensor  # keeps the memory alive
        self.__cuda_array_interface__ = {
            "shape": (count,),
            "typestr": "<f4",
            "data": (tensor.data_ptr(), False),
            "version": 3,
        }


def main() -> None:
    job = trainer.begin(device="cuda")
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    table = torch.rand(4096)
    for step in job.steps():
        broken = job.faulty and step == job.args.step
        rows = torch.as_tensor(Rows(table, 1 << 36 if broken else 4096), device=job.device)
        scale = rows[-4096:].mean()
        x, y = job.batch(step)
        job.report(step, job.learn(model, optimizer, x * (1 + 0 * scale), y))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
