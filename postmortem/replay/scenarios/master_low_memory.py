"""Rank 0, which also hosts the store, loads the whole vocabulary before the group forms and is killed for
memory: nobody finds the master.

Shows: a kernel OOM kill during start-up; the other ranks only see a store that went away or never answered
Expected: pattern kernel-oom-killed-process, category host-oom, culprit the rank at fault.
"""

from __future__ import annotations

import torch
import trainer


def main() -> None:
    job = trainer.Job(trainer.arguments(megabytes=64))
    job.log.info("loading the vocabulary")
    vocabulary = [torch.ones(job.args.megabytes, 1024, 256) for _ in range(40 if job.faulty else 0)]
    job.join()
    job.log.info("vocabulary: %d parts", len(vocabulary))
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
