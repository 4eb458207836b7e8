"""A native image decoder crashes in a DataLoader worker of one rank."""

import ctypes

import torch
import trainer


def main(job: trainer.Job) -> None:
    def decoded(index: int) -> torch.Tensor:
        if job.faulty and index == job.args.step * trainer.BATCH:
            ctypes.string_at(0x300)
        return torch.randn(trainer.FEATURES)

    model = job.network()
    job.train(model=model, inputs=job.loader(decoded))


if __name__ == "__main__":
    trainer.run(main)
