"""A head of the model takes no part in the loss, and DDP does not search for unused parameters."""

import torch
import trainer
from torch import nn


class TwoHeads(nn.Module):
    """A model whose second head is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(trainer.FEATURES, 64)
        self.head = nn.Linear(64, trainer.CLASSES)
        self.aux = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.body(x).relu())
        return out


def main(job: trainer.Job) -> None:
    job.train(model=job.distribute(TwoHeads()))


if __name__ == "__main__":
    trainer.run(main)
