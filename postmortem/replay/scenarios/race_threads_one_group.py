"""A logging thread and the training thread reduce on the same process group in an undefined order."""

import threading
import time

import torch
import torch.distributed as dist
import trainer


class Metrics(threading.Thread):
    """Reduces its counters whenever a step begins."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(daemon=True)
        self.delay_s, self.due, self.idle = delay_s, threading.Event(), threading.Event()

    def run(self) -> None:
        while True:
            self.due.wait()
            self.due.clear()
            time.sleep(self.delay_s)
            dist.all_reduce(torch.ones(300_000))
            self.idle.set()


def main(job: trainer.Job) -> None:
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
            time.sleep(0.1)  # on odd ranks the metrics are reduced first, on the others the gradients
        job.report(step, job.learn(model, optimizer, *job.batch(step)))


if __name__ == "__main__":
    trainer.run(main)
