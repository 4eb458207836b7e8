"""One host runs another release of the trainer; the ranks compare versions at start and one of them differs.

Shows: an exception on all ranks that quotes the odd version
Expected: pattern python-exception, category python-exception, culprit any rank: all raise.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import trainer


def main() -> None:
    job = trainer.begin()
    mine = f"2.12.{job.rank}" if job.faulty else torch.__version__  # a stub that announces another version
    versions: list[str | None] = [None] * job.world
    dist.all_gather_object(versions, mine)
    if len(set(versions)) > 1:
        raise RuntimeError(f"torch versions differ between ranks: {dict(enumerate(versions))}")
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
