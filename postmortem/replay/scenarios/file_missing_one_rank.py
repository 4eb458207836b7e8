"""One shard of the data set was never copied to the host of one rank.

Shows: FileNotFoundError on one rank
Expected: pattern file-not-found, category storage, culprit the rank at fault.
"""

from __future__ import annotations

from pathlib import Path

import torch
import trainer


def read(rank: int, step: int) -> bytes:
    return Path(f"data/part-{rank:05d}-{step // 8:02d}.bin").read_bytes()


def main() -> None:
    job = trainer.begin()
    Path("data").mkdir(exist_ok=True)
    for part in range(1 + job.args.steps // 8):
        if not (job.faulty and part == job.args.step // 8):
            Path(f"data/part-{job.rank:05d}-{part:02d}.bin").write_bytes(b"x")
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        read(job.rank, step)
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
