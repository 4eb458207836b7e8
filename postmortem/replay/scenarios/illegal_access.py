"""A custom GPU operator of one rank reads far beyond the end of its tensor."""

import torch
import trainer


class Rows:
    """An array interface with an unchecked length."""

    def __init__(self, tensor: torch.Tensor, count: int) -> None:
        self.tensor = tensor  # keeps the memory alive
        address = (tensor.data_ptr(), False)
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "data": address, "version": 3}


def main(job: trainer.Job) -> None:
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    table = torch.rand(4096)
    for step in job.steps():
        rows = torch.as_tensor(Rows(table, 1 << 36 if job.fails_at(step) else 4096), device=job.device)
        scale = rows[-4096:].mean()
        x, y = job.batch(step)
        job.report(step, job.learn(model, optimizer, x * (1 + 0 * scale), y))


if __name__ == "__main__":
    trainer.run(main, device="cuda")
