"""One rank writes a checkpoint to a slow file system while the others wait in the next reduction."""

import os
import time
from pathlib import Path

import trainer


def upload(path: str, seconds: float) -> None:
    """Write ten blocks a second."""
    with Path(path).open("wb") as file:
        for _ in range(int(10 * seconds)):
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.1)


def main(job: trainer.Job) -> None:
    for step in job.trained():
        if job.fails_at(step):
            job.log.info("saving checkpoint checkpoint-%d", step)
            upload(f"checkpoint-{step}.pt", job.args.seconds)
            job.log.info("checkpoint saved")


if __name__ == "__main__":
    trainer.run(main, seconds=40.0)
