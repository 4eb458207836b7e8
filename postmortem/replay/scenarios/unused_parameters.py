"""A head of the model takes no part in the loss, and DDP was not told.

Shows: `Expected to have finished reduction in the prior iteration` on every rank
Expected: pattern ddp-unused-parameters, category ddp-usage, culprit any rank: all run the same model.
"""

from __future__ import annotations

import torch
import trainer
from torch import nn


class TwoHeads(nn.Module):
    """The second head is there for a later stage of training."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(trainer.FEATURES, 64)
        self.head = nn.Linear(64, trainer.CLASSES)
        self.aux = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.body(x).relu())
        return out


def main() -> None:
    job = trainer.begin()
    model = job.distribute(TwoHeads())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
