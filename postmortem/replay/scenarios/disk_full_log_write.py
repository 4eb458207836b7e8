"""A rank appends its samples to a dump file on a file system that is full.

Shows: `OSError: [Errno 28] No space left on device`
Expected: pattern no-space-left, category storage, culprit the rank at fault.
"""

from __future__ import annotations

from pathlib import Path

import torch
import trainer


def main() -> None:
    job = trainer.begin(folder="checkpoints")
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Path(job.args.folder, f"predictions-{job.rank}.jsonl").open("w") as dump:
        for step in job.steps():
            job.report(step, job.learn(model, optimizer, *job.batch(step)))
            if job.faulty:
                dump.write("0" * 60_000)
                dump.flush()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
