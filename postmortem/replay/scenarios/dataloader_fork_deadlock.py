"""A DataLoader forks its worker while another thread of the rank holds a lock;
in the child nobody will ever release it.

Shows: one rank waits for its DataLoader for ever, the others time out
Expected: pattern rank-never-arrived, category hang, culprit the rank at fault.
"""

from __future__ import annotations

import threading
import time

import torch
import torch.utils.data
import trainer

GUARD = threading.Lock()


class Tokenized(torch.utils.data.Dataset[torch.Tensor]):
    """Takes the tokenizer's lock for each sample."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        with GUARD:
            return torch.randn(trainer.FEATURES)


def prefetch() -> None:
    with GUARD:  # holds the lock at the moment of the fork
        time.sleep(3.0)


def main() -> None:
    job = trainer.begin()
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = iter(
        torch.utils.data.DataLoader(
            Tokenized(), batch_size=trainer.BATCH, num_workers=1, multiprocessing_context="fork"
        )
    )
    for step in job.steps():
        if step == job.args.step:  # the second epoch starts: new workers
            if job.faulty:
                threading.Thread(target=prefetch, daemon=True).start()
                time.sleep(0.5)
            loader = iter(
                torch.utils.data.DataLoader(
                    Tokenized(), batch_size=trainer.BATCH, num_workers=1, multiprocessing_context="fork"
                )
            )
        job.report(step, job.learn(model, optimizer, next(loader), job.batch(step)[1]))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
