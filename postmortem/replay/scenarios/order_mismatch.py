"""One rank broadcasts the learning rates before it reduces the loss; the others do it in the other order."""

import torch
import torch.distributed as dist
import trainer


def main(job: trainer.Job) -> None:
    for step in job.steps():
        loss, rates = torch.rand(job.args.width), torch.full((16,), 0.01)
        if job.fails_at(step):
            dist.broadcast(rates, src=0)
            dist.all_reduce(loss)
        else:
            dist.all_reduce(loss)
            dist.broadcast(rates, src=0)
        job.report(step, float(loss.mean()))


if __name__ == "__main__":
    trainer.run(main, width=2048)
