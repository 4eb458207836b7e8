"""The checkpoint comes from a model with another hidden size.

Shows: `Error(s) in loading state_dict` with `size mismatch` on every rank
Expected: pattern checkpoint-key-mismatch, category checkpoint, culprit any rank: all read the same file.
"""

from __future__ import annotations

import torch
import trainer


def main() -> None:
    job = trainer.begin()
    path = f"checkpoint-{job.rank}.pt"
    torch.save(job.network(hidden=128).state_dict(), path)
    model = job.network(hidden=96)
    job.log.info("resuming from %s", path)
    model.load_state_dict(torch.load(path))
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
