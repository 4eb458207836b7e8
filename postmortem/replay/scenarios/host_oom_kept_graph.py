"""One rank appends the loss of each step with its autograd graph to a list."""

import resource

import torch
import trainer
from torch import nn


def main(job: trainer.Job) -> None:
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    history: list[torch.Tensor] = []
    repeat = job.args.width if job.faulty else 1
    for step in job.steps():
        x, y = job.batch(step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.repeat(repeat, 1)), y.repeat(repeat))
        loss.backward(retain_graph=job.faulty)
        optimizer.step()
        if job.faulty:
            history.append(loss)  # float(loss) would free the graph
        if step % 4 == 0:
            job.log.info("memory: max rss %d MiB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        job.report(step, float(loss.detach()))


if __name__ == "__main__":
    trainer.run(main, width=2048)
