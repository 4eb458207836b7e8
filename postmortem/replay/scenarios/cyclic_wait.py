"""From one step on, every stage of a pipeline receives from its left neighbor before it sends to its right one."""

import torch
import torch.distributed as dist
import trainer


def main(job: trainer.Job) -> None:
    left, right = (job.rank - 1) % job.world, (job.rank + 1) % job.world
    for step in job.steps():
        activation, message = torch.rand(256), torch.empty(256)
        if step < job.args.step and job.rank == 0:
            dist.send(activation, right)
            dist.recv(message, left)
        else:
            dist.recv(message, left)
            dist.send(activation, right)
        job.report(step, float(message.mean()))


if __name__ == "__main__":
    trainer.run(main)
