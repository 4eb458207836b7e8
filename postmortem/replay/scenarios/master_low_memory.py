"""The rank at fault loads a large vocabulary before the process group is created."""

import torch
import trainer


def main(job: trainer.Job) -> None:
    job.log.info("loading the vocabulary")
    vocabulary = [torch.ones(job.args.megabytes, 1024, 256) for _ in range(40 if job.faulty else 0)]
    job.join()
    job.log.info("vocabulary: %d parts", len(vocabulary))
    job.train()


if __name__ == "__main__":
    trainer.run(main, join=False, megabytes=64)
