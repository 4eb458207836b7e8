"""A memory-mapped data file is rewritten by another job while this one reads it:
the page behind the pointer is gone.

Shows: `Fatal Python error: Bus error` or exit -7 on one rank
Expected: pattern faulthandler-fatal-error, category native-crash, culprit the rank at fault.
"""

from __future__ import annotations

import faulthandler
from pathlib import Path

import torch
import trainer


def shard(rank: int) -> torch.Tensor:
    path = Path(f"shard_{rank:02d}.bin")
    path.write_bytes(bytes(4 * trainer.FEATURES * trainer.BATCH * 400))
    return torch.from_file(str(path), shared=True, size=trainer.FEATURES * trainer.BATCH * 400).view(
        -1, trainer.BATCH, trainer.FEATURES
    )


def main() -> None:
    faulthandler.enable()
    job = trainer.begin()
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = shard(job.rank)
    for step in job.steps():
        if job.faulty and step == job.args.step:
            Path(f"shard_{job.rank:02d}.bin").write_bytes(b"")  # the other job, rewriting the shard
        x = data[step * 8].clone()
        job.report(step, job.learn(model, optimizer, x, job.batch(step)[1]))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
