"""A sample of one rank has an infinite value; one step later the loss of every rank is NaN."""

import torch
import trainer


def main(job: trainer.Job) -> None:
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        x, y = job.batch(step)
        if job.fails_at(step):
            x[2, 5] = float("inf")
        job.report(step, job.learn(model, optimizer, x, y), every=1)


if __name__ == "__main__":
    trainer.run(main)
