"""DataLoader workers hand their batches over through /dev/shm, and the container gave it 8 MB.

Shows: `unable to allocate shared memory(shm)` in a worker, `DataLoader worker` errors
Expected: pattern shm-allocation-failed, category shared-memory, culprit the rank at fault.
"""

from __future__ import annotations

import torch
import torch.utils.data
import trainer


class Volumes(torch.utils.data.Dataset[torch.Tensor]):
    """Samples of a few megabytes each."""

    def __init__(self, megabytes: float) -> None:
        self.rows = int(megabytes * 1024 * 8)

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(max(1, self.rows), trainer.FEATURES)


def main() -> None:
    job = trainer.begin(megabytes=4.0)
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = iter(
        torch.utils.data.DataLoader(
            Volumes(job.args.megabytes if job.faulty else 0.0), batch_size=trainer.BATCH, num_workers=2
        )
    )
    for step in job.steps():
        x = next(loader)[:, 0]
        job.report(step, job.learn(model, optimizer, x, job.batch(step)[1]))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
