"""Jobs that need a GPU."""

import os

import torch
import torch.distributed as dist
import trainer
from torch import nn

VOCABULARY = 1000


def device_assert(job: trainer.Job) -> None:
    embedding = nn.Embedding(VOCABULARY, trainer.FEATURES)
    job.distribute(nn.Sequential(embedding, nn.Linear(trainer.FEATURES, trainer.CLASSES)))
    for step in job.steps():
        tokens = torch.randint(VOCABULARY, (trainer.BATCH,))
        if job.fails_at(step):
            tokens[3] = VOCABULARY + 7
        job.report(step, job.learn(tokens, job.batch(step)[1]))


class Rows:
    """An array interface with an unchecked length."""

    def __init__(self, tensor: torch.Tensor, count: int) -> None:
        self.tensor = tensor  # keeps the memory alive
        address = (tensor.data_ptr(), False)
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "data": address, "version": 3}


def illegal_access(job: trainer.Job) -> None:
    job.network()
    table = torch.rand(4096)
    for step in job.steps():
        rows = torch.as_tensor(Rows(table, 1 << 36 if job.fails_at(step) else 4096), device=job.device)
        scale = rows[-4096:].mean()
        x, y = job.batch(step)
        job.report(step, job.learn(x * (1 + 0 * scale), y))


def cuda_in_forked_worker(job: trainer.Job) -> None:
    device = job.device if job.faulty else torch.device("cpu")
    job.network()
    job.train(inputs=job.loader(lambda index: torch.randn(trainer.FEATURES, device="cpu").to(device)))


def more_ranks_than_gpus(job: trainer.Job) -> None:
    gpu = torch.cuda.device_count() if job.faulty else 0
    job.log.info("taking GPU %d", gpu)
    torch.cuda.set_device(gpu)
    job.join()
    job.train()


def gloo_with_gpu(job: trainer.Job) -> None:
    dist.all_reduce(torch.rand(1))
    job.train()


def two_ranks_one_gpu(job: trainer.Job) -> None:
    os.environ["LOCAL_RANK"] = "0"
    job.join()
    job.train()


def nccl_nan_check(job: trainer.Job) -> None:
    for step in job.steps():
        gradient = torch.rand(4096)
        if job.fails_at(step):
            gradient[17] = float("nan")
        dist.all_reduce(gradient)
        job.report(step, float(gradient.mean()))


def nccl_stuck_kernel(job: trainer.Job) -> None:
    for step in job.steps():
        gradient = torch.rand(4096)
        if job.fails_at(step):
            torch.cuda._sleep(int(job.args.seconds * 1.5e9))  # cycles of the GPU's clock
        dist.all_reduce(gradient)
        job.report(step, float(gradient.mean()))
