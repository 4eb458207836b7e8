"""One rank caches every sample until its memory is exhausted."""

import resource
from pathlib import Path

import torch
import trainer


def limit_address_space(megabytes: int) -> None:
    """Let this process grow by so much; used where no memory cgroup can be made."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (megabytes << 20),) * 2)


def main(job: trainer.Job) -> None:
    model = job.network()
    cache: list[torch.Tensor] = []
    if job.faulty and job.args.limit_mb:
        limit_address_space(job.args.limit_mb)
    for step in job.trained(model=model):
        if job.faulty and step + 1 >= job.args.step:
            cache.append(torch.ones(job.args.megabytes, 1024, 256))


if __name__ == "__main__":
    trainer.run(main, megabytes=48, limit_mb=0)
