"""One worker feeds a rank that needs four: every batch takes longer than the others are willing to wait.

Shows: one rank always late, time-outs on the others, `DataLoader` frames in the late rank's stack
Expected: pattern rank-never-arrived, category hang, culprit the rank at fault.
"""

from __future__ import annotations

import time

import torch
import torch.utils.data
import trainer


class Videos(torch.utils.data.Dataset[torch.Tensor]):
    """Slow to decode on one rank, whose single worker falls ever further behind."""

    def __init__(self, slow: bool, after: int) -> None:
        self.slow, self.after = slow, after

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.slow and index > self.after:
            time.sleep(0.05 * (index - self.after))
        return torch.randn(trainer.FEATURES)


def main() -> None:
    job = trainer.begin()
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Videos(job.faulty, job.args.step * trainer.BATCH)
    loader = iter(torch.utils.data.DataLoader(data, batch_size=trainer.BATCH, num_workers=1, prefetch_factor=2))
    for step in job.steps():
        began = time.monotonic()
        x = next(loader)
        job.log.info("step %d: data %.2f s", step, time.monotonic() - began)
        job.report(step, job.learn(model, optimizer, x, job.batch(step)[1]))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
