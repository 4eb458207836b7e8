"""The only DataLoader worker of one rank is slower than the rank."""

import time
from collections.abc import Iterator

import torch
import trainer


def timed(job: trainer.Job, loader: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
    for step in range(job.args.steps):
        began = time.monotonic()
        batch = next(loader)
        job.log.info("step %d: data %.2f s", step, time.monotonic() - began)
        yield batch


def main(job: trainer.Job) -> None:
    fast = job.args.step * trainer.BATCH

    def decoded(index: int) -> torch.Tensor:
        if job.faulty and index > fast:
            time.sleep(0.05 * (index - fast))
        return torch.randn(trainer.FEATURES)

    model = job.network()
    job.train(model=model, inputs=timed(job, job.loader(decoded)))


if __name__ == "__main__":
    trainer.run(main)
