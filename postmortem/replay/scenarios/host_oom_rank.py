"""One rank caches every sample it has ever seen; its memory cgroup runs full and the kernel kills it.

Shows: a kernel OOM block for the rank's pid, exit -9, peers that lose their connection
Expected: pattern kernel-oom-killed-process, category host-oom, culprit the rank at fault.
"""

from __future__ import annotations

import resource
from pathlib import Path

import torch
import trainer


def limit_address_space(megabytes: int) -> None:
    """Stands in for the memory cgroup where there is none: from here on the process may grow by so much."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (megabytes << 20),) * 2)


def main() -> None:
    job = trainer.begin(megabytes=48, limit_mb=0)
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    cache: list[torch.Tensor] = []
    if job.faulty and job.args.limit_mb:
        limit_address_space(job.args.limit_mb)
    for step in job.steps():
        if job.faulty and step >= job.args.step:
            # decoded samples, kept "for the next epoch"
            cache.append(torch.ones(job.args.megabytes, 1024, 256))
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
