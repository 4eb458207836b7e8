"""DataLoader workers of one rank return batches that are larger than /dev/shm."""

import torch
import trainer


def main(job: trainer.Job) -> None:
    rows = max(1, int((job.args.megabytes if job.faulty else 0.0) * 1024 * 8))
    loader = job.loader(lambda index: torch.rand(rows, trainer.FEATURES), workers=2)
    model = job.network()
    job.train(model=model, inputs=(batch[:, 0] for batch in loader))


if __name__ == "__main__":
    trainer.run(main, megabytes=4.0)
