"""A training run that ends well, with DataLoader workers, checkpoints and a barrier at each epoch.

Shows: nothing at all: no cause may be named
Expected: pattern none, category none, culprit nobody.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.utils.data
import trainer


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    """Random samples."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(trainer.FEATURES)


def main() -> None:
    job = trainer.begin()
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        for step, x in enumerate(torch.utils.data.DataLoader(Samples(), batch_size=trainer.BATCH, num_workers=2)):
            job.report(step, job.learn(model, optimizer, x, job.batch(step)[1]))
        if job.rank == 0:
            torch.save(model.state_dict(), f"epoch-{epoch}.pt")
            job.log.info("saved epoch-%d.pt", epoch)
        dist.barrier()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
