"""A DataLoader worker keeps what it decodes;
its memory cgroup runs full and the kernel kills the worker, not the rank.

Shows: `Killed process N (pt_data_worker)` and `DataLoader worker (pid N) is killed by signal: Killed.` on one
rank Expected: pattern kernel-oom-killed-process, category host-oom, culprit the rank at fault.
"""

from __future__ import annotations

import torch
import torch.utils.data
import trainer


class Shards(torch.utils.data.Dataset[torch.Tensor]):
    """Decodes shards and forgets to forget them."""

    def __init__(self, leak_mb: int, after: int) -> None:
        self.leak_mb, self.after = leak_mb, after
        self.kept: list[torch.Tensor] = []

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.leak_mb and index >= self.after:
            self.kept.append(torch.ones(self.leak_mb, 1024, 256))
        return torch.randn(trainer.FEATURES)


def main() -> None:
    job = trainer.begin(megabytes=12)
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Shards(job.args.megabytes if job.faulty else 0, job.args.step * trainer.BATCH)
    loader = iter(torch.utils.data.DataLoader(data, batch_size=trainer.BATCH, num_workers=1))
    for step in job.steps():
        x = next(loader)
        job.report(step, job.learn(model, optimizer, x, job.batch(step)[1]))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
