"""One rank changes its weights outside the collectives (a local clip after the step);
nobody notices until a consistency check.

Shows: an assertion that names the rank whose weights differ
Expected: pattern python-exception, category python-exception, culprit any rank: all raise.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import trainer


def check(model: torch.nn.Module, step: int) -> None:
    norms = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(norms, sum(p.detach().norm() for p in model.parameters()).reshape(1))
    if max(norms) - min(norms) > 1e-4:
        raise RuntimeError(f"weights differ between ranks at step {step}: norms {[round(float(n), 4) for n in norms]}")


def main() -> None:
    job = trainer.begin()
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
        if job.faulty and step == job.args.step:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.clamp_(-0.05, 0.05)
        if step % 5 == 4:
            check(model, step)
    job.done()


if __name__ == "__main__":
    trainer.call(main)
