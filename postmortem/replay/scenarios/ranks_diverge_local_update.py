"""One rank clips its weights after a step, outside of any collective; a later check finds that they differ."""

import torch
import torch.distributed as dist
import trainer


def check(model: torch.nn.Module, step: int) -> None:
    norms = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(norms, sum(p.detach().norm() for p in model.parameters()).reshape(1))
    if max(norms) - min(norms) > 1e-4:
        raise RuntimeError(f"weights differ between ranks at step {step}: norms {[round(float(n), 4) for n in norms]}")


def main(job: trainer.Job) -> None:
    model = job.network()
    for step in job.trained(model=model):
        if job.fails_at(step):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.clamp_(-0.05, 0.05)
        if step % 5 == 4:
            check(model, step)


if __name__ == "__main__":
    trainer.run(main)
