"""Rank 0 tokenises the data set before training, with a progress bar;
the others wait for it in the first barrier, and not long enough.

Shows: a bar that still moves in the shared console, and the time-out of all other ranks
Expected: pattern rank-never-arrived, category hang, culprit the rank at fault.
"""

from __future__ import annotations

import sys
import time

import torch.distributed as dist
import trainer

EXAMPLES = 24_000


def tokenize(seconds: float) -> None:
    """As tqdm shows it: the line is drawn again and again."""
    began = time.monotonic()
    while (share := (time.monotonic() - began) / seconds) < 1:
        done, bar = int(EXAMPLES * share), "█" * int(10 * share)
        clock = (
            f"00:{int(seconds * share):02d}<00:{int(seconds * (1 - share)):02d}, {EXAMPLES / seconds:.2f} examples/s"
        )
        sys.stderr.write(f"\rtokenizing: {int(100 * share):3d}%|{bar:10}| {done}/{EXAMPLES} [{clock}]")
        sys.stderr.flush()
        time.sleep(0.2)
    sys.stderr.write("\n")


def main() -> None:
    job = trainer.begin(seconds=30.0)
    if job.faulty:
        tokenize(job.args.seconds)
    dist.barrier()
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
