"""A dataset moves its samples to the GPU in a forked DataLoader worker."""

import torch
import trainer


def main(job: trainer.Job) -> None:
    device = job.device if job.faulty else torch.device("cpu")
    model = job.network()
    inputs = job.loader(lambda index: torch.randn(trainer.FEATURES, device="cpu").to(device))
    job.train(model=model, inputs=inputs)


if __name__ == "__main__":
    trainer.run(main, device="cuda")
