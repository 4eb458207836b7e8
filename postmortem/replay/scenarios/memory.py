"""Jobs that run out of memory: of the host, of a GPU, of /dev/shm."""

import resource
from pathlib import Path

import torch
import trainer
from torch import nn


def limit_address_space(megabytes: int) -> None:
    """Let this process grow by so much; used where no memory cgroup can be made."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (megabytes << 20),) * 2)


def host_oom_rank(job: trainer.Job) -> None:
    job.network()
    cache: list[torch.Tensor] = []
    if job.faulty and job.args.limit_mb:
        limit_address_space(job.args.limit_mb)
    for step in job.trained():
        if job.faulty and step + 1 >= job.args.step:
            cache.append(torch.ones(job.args.megabytes, 1024, 256))


def host_oom_kept_graph(job: trainer.Job) -> None:
    model = job.network()
    history: list[torch.Tensor] = []
    repeat = job.args.width if job.faulty else 1
    for step in job.steps():
        x, y = job.batch(step)
        job.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.repeat(repeat, 1)), y.repeat(repeat))
        loss.backward(retain_graph=job.faulty)
        job.optimizer.step()
        if job.faulty:
            history.append(loss)  # float(loss) would free the graph
        if step % 4 == 0:
            job.log.info("memory: max rss %d MiB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        job.report(step, float(loss.detach()))


SHARDS: list[torch.Tensor] = []


def host_oom_dataloader_worker(job: trainer.Job) -> None:
    def decoded(index: int) -> torch.Tensor:
        if job.faulty and index >= job.args.step * trainer.BATCH:
            SHARDS.append(torch.ones(job.args.megabytes, 1024, 256))
        return torch.randn(trainer.FEATURES)

    job.network()
    job.train(inputs=job.loader(decoded))


def master_low_memory(job: trainer.Job) -> None:
    job.log.info("loading the vocabulary")
    vocabulary = [torch.ones(job.args.megabytes, 1024, 256) for _ in range(40 if job.faulty else 0)]
    job.join()
    job.log.info("vocabulary: %d parts", len(vocabulary))
    job.train()


def gpu_oom_one_rank(job: trainer.Job) -> None:
    activations: list[torch.Tensor] = []
    for step in job.trained():
        if job.faulty and step + 1 >= job.args.step:
            activations += [torch.empty(job.args.megabytes, 1024, 256) for _ in range(8)]  # float32: MiB


def shm_too_small(job: trainer.Job) -> None:
    rows = max(1, int((job.args.megabytes if job.faulty else 0.0) * 1024 * 8))
    loader = job.loader(lambda index: torch.rand(rows, trainer.FEATURES), workers=2)
    job.network()
    job.train(inputs=(batch[:, 0] for batch in loader))
