"""A DataLoader worker keeps every shard that it decodes."""

import torch
import trainer

SHARDS: list[torch.Tensor] = []


def main(job: trainer.Job) -> None:
    def decoded(index: int) -> torch.Tensor:
        if job.faulty and index >= job.args.step * trainer.BATCH:
            SHARDS.append(torch.ones(job.args.megabytes, 1024, 256))
        return torch.randn(trainer.FEATURES)

    model = job.network()
    job.train(model=model, inputs=job.loader(decoded))


if __name__ == "__main__":
    trainer.run(main, megabytes=12)
