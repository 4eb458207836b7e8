"""A logging thread reduces metrics on the same process group as the training thread:
the order of collectives differs from rank to rank.

Shows: messages of the wrong size (an abort) or a time-out on all ranks
Expected: pattern gloo-size-mismatch, category collective-mismatch, culprit any rank: all run the same race.
"""

from __future__ import annotations

import threading
import time

import torch
import torch.distributed as dist
import trainer


class Metrics(threading.Thread):
    """Reduces its counters whenever a step begins; same default group as the gradients:
    no order between the two threads."""

    def __init__(self, slow_s: float) -> None:
        super().__init__(daemon=True)
        self.slow_s, self.due, self.idle = slow_s, threading.Event(), threading.Event()

    def run(self) -> None:
        while True:
            self.due.wait()
            self.due.clear()
            time.sleep(self.slow_s)
            dist.all_reduce(torch.ones(300_000))
            self.idle.set()


def main() -> None:
    job = trainer.begin()
    metrics = Metrics(0.0 if job.rank % 2 else 0.1)
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    metrics.start()
    for step in job.steps():
        metrics.idle.clear()
        metrics.due.set()
        if step < job.args.step:
            metrics.idle.wait()
        elif job.rank % 2:
            # a longer forward pass: here the metrics go first, on the other ranks the gradients do
            time.sleep(0.1)
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
