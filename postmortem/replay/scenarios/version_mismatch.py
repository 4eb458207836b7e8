"""The ranks compare their torch versions at start, and one differs."""

import torch
import torch.distributed as dist
import trainer


def main(job: trainer.Job) -> None:
    versions: list[str | None] = [None] * job.world
    dist.all_gather_object(versions, f"2.12.{job.rank}" if job.faulty else torch.__version__)
    if len(set(versions)) > 1:
        raise RuntimeError(f"torch versions differ between ranks: {dict(enumerate(versions))}")
    job.train()


if __name__ == "__main__":
    trainer.run(main)
