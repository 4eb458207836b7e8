"""A data set moves its samples to the GPU inside a forked DataLoader worker, after the parent has used CUDA.

Shows: `Cannot re-initialize CUDA in forked subprocess`, raised in the worker and again in the rank
Expected: pattern cuda-in-forked-subprocess, category python-exception, culprit the rank at fault.
"""

from __future__ import annotations

import torch
import torch.utils.data
import trainer


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    """Random rows; on one rank somebody moved `.to(device)` into the data set."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(trainer.FEATURES, device="cpu").to(self.device)


def main() -> None:
    job = trainer.begin(device="cuda")
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Samples(job.device if job.faulty else torch.device("cpu"))
    loader = torch.utils.data.DataLoader(data, batch_size=trainer.BATCH, num_workers=1, multiprocessing_context="fork")
    batches = iter(loader)
    for step in job.steps():
        x = next(batches).to(job.device)
        job.report(step, job.learn(model, optimizer, x, job.batch(step)[1]))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
