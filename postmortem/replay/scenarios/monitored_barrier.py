"""One rank builds its vocabulary cache while the others wait in a monitored barrier."""

import time
from datetime import timedelta

import torch.distributed as dist
import trainer


def main(job: trainer.Job) -> None:
    if job.faulty:
        job.log.info("building vocabulary cache (1 of 1)")
        time.sleep(job.args.build)
    dist.monitored_barrier(timeout=timedelta(seconds=job.args.timeout), wait_all_ranks=True)
    job.train()


if __name__ == "__main__":
    trainer.run(main, build=30.0)
