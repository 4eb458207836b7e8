"""A logging thread reduces metrics on the same process group as the training thread: the order of collectives differs from rank to rank.

Shows: messages of the wrong size (an abort) or a time-out on all ranks, at a random step
Expected: pattern gloo-size-mismatch, category collective-mismatch, culprit any rank: all run the same race.
"""

from __future__ import annotations

import threading
import time

import torch
import torch.distributed as dist
import trainer


def metrics(job: trainer.Job, stop: threading.Event) -> None:
    while not stop.is_set():
        dist.all_reduce(torch.ones(300_000))  # same default group as the gradients: no order between the two threads
        time.sleep(0.002 * (1 + job.rank))


def main() -> None:
    job = trainer.begin()
    stop = threading.Event()
    thread = threading.Thread(target=metrics, args=(job, stop), daemon=True)
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    thread.start()
    for step in job.steps():
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
    stop.set()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
