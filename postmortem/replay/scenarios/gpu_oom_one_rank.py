"""One rank keeps the activations of every step until its GPU is full."""

import torch
import trainer


def main(job: trainer.Job) -> None:
    activations: list[torch.Tensor] = []
    for step in job.trained():
        if job.faulty and step + 1 >= job.args.step:
            activations += [torch.empty(job.args.megabytes, 1024, 256) for _ in range(8)]  # float32: MiB


if __name__ == "__main__":
    trainer.run(main, device="cuda", megabytes=4096)
