"""The collate function of one rank's DataLoader worker raises on a record without its field.

Shows: `Caught KeyError in DataLoader worker process 0.` with the original traceback
Expected: pattern python-exception, category python-exception, culprit the rank at fault.
"""

from __future__ import annotations

import torch
import torch.utils.data
import trainer


class Records(torch.utils.data.Dataset[torch.Tensor]):
    """One record of one shard was written by an older version of the pipeline."""

    def __init__(self, bad: int) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        record = (
            {"text": torch.randn(trainer.FEATURES)}
            if index == self.bad
            else {"features": torch.randn(trainer.FEATURES)}
        )
        return record["features"]


def main() -> None:
    job = trainer.begin()
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Records(job.args.step * trainer.BATCH + 5 if job.faulty else -1)
    loader = iter(torch.utils.data.DataLoader(data, batch_size=trainer.BATCH, num_workers=1))
    for step in job.steps():
        job.report(step, job.learn(model, optimizer, next(loader), job.batch(step)[1]))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
