"""One rank fails once; the launcher restarts the job and the second attempt finishes.

Shows: a failed attempt 0 and a healthy attempt 1
Expected: pattern python-exception, category python-exception, culprit the rank at fault.
"""

from __future__ import annotations

import os

import torch
import trainer


def main() -> None:
    job = trainer.begin()
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    job.log.info("attempt %d", attempt)
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        if job.faulty and step == job.args.step and attempt == 0:
            raise RuntimeError(f"shard {job.rank}: checksum mismatch in record {64 * step}")
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
