"""Before training, all ranks meet in a monitored barrier; one still builds its vocabulary cache.

Shows: rank 0 names the rank that did not come
Expected: pattern monitored-barrier-missing-rank, category hang, culprit the rank at fault.
"""

from __future__ import annotations

import time
from datetime import timedelta

import torch.distributed as dist
import trainer


def main() -> None:
    job = trainer.begin(build=30.0)
    if job.faulty:
        job.log.info("building vocabulary cache (1 of 1)")
        time.sleep(job.args.build)
    dist.monitored_barrier(timeout=timedelta(seconds=job.args.timeout), wait_all_ranks=True)
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
