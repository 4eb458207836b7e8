"""One rank skips a reduction, so its next collective meets the skipped one of the others."""

import torch
import torch.distributed as dist
import trainer


def average(model: torch.nn.Module) -> None:
    """Average the weights by hand: DDP of torch 2.13 crashes under TORCH_DISTRIBUTED_DEBUG=DETAIL with gloo."""
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    dist.all_reduce(weights)
    torch.nn.utils.vector_to_parameters(weights / dist.get_world_size(), model.parameters())


def main(job: trainer.Job) -> None:
    model = job.layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        loss = torch.tensor(job.learn(model, optimizer, *job.batch(step)))
        average(model)
        if not (job.faulty and step >= job.args.step):
            try:
                dist.all_reduce(loss)
            finally:
                if job.args.dump:
                    job.dump_recorder()
        elif job.args.dump:
            job.dump_recorder()
            dist.barrier()
        job.report(step, float(loss))


if __name__ == "__main__":
    trainer.run(main, dump=0)
