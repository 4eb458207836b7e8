"""One rank caches every sample it has ever seen; its memory cgroup runs full and the kernel kills it.

Shows: a kernel OOM block for the rank's pid, exit -9, peers that lose their connection
Expected: pattern kernel-oom-killed-process, category host-oom, culprit the rank at fault.
"""

from __future__ import annotations

import torch
import trainer


def main() -> None:
    job = trainer.begin(megabytes=48)
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    cache: list[torch.Tensor] = []
    for step in job.steps():
        if job.faulty and step >= job.args.step:
            cache.append(torch.ones(job.args.megabytes, 1024, 256))  # decoded samples, kept "for the next epoch"
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
