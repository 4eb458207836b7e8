"""A DataLoader forks its worker while a thread of the rank holds a lock, which is never released in the child."""

import threading
import time

import torch
import trainer

TOKENIZER = threading.Lock()


def tokenized(index: int) -> torch.Tensor:
    with TOKENIZER:
        return torch.randn(trainer.FEATURES)


def prefetch() -> None:
    with TOKENIZER:
        time.sleep(3.0)


def main(job: trainer.Job) -> None:
    loader = job.loader(tokenized)
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        if step == job.args.step:  # the second epoch starts with new workers
            if job.faulty:
                threading.Thread(target=prefetch, daemon=True).start()
                time.sleep(0.5)
            loader = job.loader(tokenized)
        job.report(step, job.learn(model, optimizer, next(loader), job.batch(step)[1]))


if __name__ == "__main__":
    trainer.run(main)
