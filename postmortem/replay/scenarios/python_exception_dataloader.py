"""A record of one rank lacks a field; the DataLoader worker raises KeyError."""

import torch
import trainer


def main(job: trainer.Job) -> None:
    def features(index: int) -> torch.Tensor:
        damaged = job.faulty and index == job.args.step * trainer.BATCH + 5
        record = {"text" if damaged else "features": torch.randn(trainer.FEATURES)}
        return record["features"]

    model = job.network()
    job.train(model=model, inputs=job.loader(features))


if __name__ == "__main__":
    trainer.run(main)
