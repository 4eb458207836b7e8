"""A native image decoder crashes inside a DataLoader worker of one rank.

Shows: `ERROR: Unexpected segmentation fault encountered in worker.` and
`DataLoader worker (pid N) is killed by signal: Segmentation fault`
Expected: pattern dataloader-worker-segfault, category native-crash, culprit the rank at fault.
"""

from __future__ import annotations

import ctypes

import torch
import torch.utils.data
import trainer


class Images(torch.utils.data.Dataset[torch.Tensor]):
    """Decodes with a native library that dies on one file."""

    def __init__(self, bad: int) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.bad:
            ctypes.string_at(0x300)
        return torch.randn(trainer.FEATURES)


def main() -> None:
    job = trainer.begin()
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Images(job.args.step * trainer.BATCH if job.faulty else -1)
    loader = iter(torch.utils.data.DataLoader(data, batch_size=trainer.BATCH, num_workers=1))
    for step in job.steps():
        x = next(loader)
        job.report(step, job.learn(model, optimizer, x, job.batch(step)[1]))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
