"""One shard of the dataset is missing on the host of one rank."""

from pathlib import Path

import trainer


def shard(rank: int, step: int) -> Path:
    return Path(f"data/part-{rank:05d}-{step // 8:02d}.bin")


def main(job: trainer.Job) -> None:
    Path("data").mkdir(exist_ok=True)
    for step in range(0, job.args.steps + 8, 8):
        if not (job.faulty and step // 8 == job.args.step // 8):
            shard(job.rank, step).write_bytes(b"x")
    for step in job.trained():
        shard(job.rank, step + 1).read_bytes()


if __name__ == "__main__":
    trainer.run(main)
