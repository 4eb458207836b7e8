"""One rank skips a reduction (`if loss is fine: log it`),
and is one collective ahead of the others from there on.

Shows: time-outs on the waiting ranks; the rank at fault waits in a different collective, or was terminated
silently Expected: pattern ranks-in-different-collectives, category collective-mismatch, culprit the rank at
fault.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import trainer


def average(model: torch.nn.Module) -> None:
    """By hand: DDP of torch 2.13 crashes on its own under TORCH_DISTRIBUTED_DEBUG=DETAIL with gloo."""
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    dist.all_reduce(weights)
    torch.nn.utils.vector_to_parameters(weights / dist.get_world_size(), model.parameters())


def main() -> None:
    job = trainer.begin(dump=0)
    model = job.layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        loss = torch.tensor(job.learn(model, optimizer, *job.batch(step)))
        average(model)
        if not (job.faulty and step >= job.args.step):  # "nothing new to log on this rank"
            try:
                dist.all_reduce(loss)
            finally:
                if job.args.dump:
                    job.dump_recorder()
        elif job.args.dump:
            job.dump_recorder()
            dist.barrier()
        job.report(step, float(loss))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
