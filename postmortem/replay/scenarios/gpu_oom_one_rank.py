"""One rank keeps the activations of every step and fills its GPU; the others use as little as before.

Shows: `CUDA out of memory` on one rank; its peers lose their connection
Expected: pattern cuda-out-of-memory, category gpu-oom, culprit the rank at fault.
"""

from __future__ import annotations

import torch
import trainer


def main() -> None:
    job = trainer.begin(device="cuda", megabytes=4096)
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept: list[torch.Tensor] = []
    for step in job.steps():
        if job.faulty and step >= job.args.step:
            kept += [torch.empty(job.args.megabytes, 1024, 256) for _ in range(8)]  # float32: MiB
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
