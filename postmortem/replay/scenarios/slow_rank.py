"""One rank's data source stalls (a cold object store); it reads on, far too late for the others.

Shows: all but one rank time out in the gradient reduction; the late one says nothing
Expected: pattern rank-never-arrived, category hang, culprit the rank at fault.
"""

from __future__ import annotations

import time

import torch
import trainer


class RemoteShards:
    """Reads samples from an object store."""

    def __init__(self, stall_at: int, stall_s: float) -> None:
        self.stall_at, self.stall_s = stall_at, stall_s

    def fetch(self, step: int) -> None:
        if step == self.stall_at:
            time.sleep(self.stall_s)


def main() -> None:
    job = trainer.begin(stall=40.0, dump=0)
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    shards = RemoteShards(job.args.step if job.faulty else -1, job.args.stall)
    try:
        for step in job.steps():
            if job.args.dump:
                job.dump_recorder()
            shards.fetch(step)
            job.report(step, job.learn(model, optimizer, *job.batch(step)))
    finally:
        if job.args.dump:
            job.dump_recorder()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
