"""A checkpoint was cut short by an interrupted copy; the run that resumes from it fails to load it.

Shows: torch.load fails on every rank that reads it, before the first step
Expected: pattern checkpoint-truncated-zip, category checkpoint, culprit any rank: all read the same file.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
import trainer


def interrupted_copy(path: Path, keep: int) -> None:
    torch.save({"weights": torch.rand(64, 1024), "step": 4000}, path)
    path.write_bytes(path.read_bytes()[:keep])


def main() -> None:
    job = trainer.begin(keep=20_000)
    path = Path("checkpoint-4000.pt")
    if job.rank == 0:
        interrupted_copy(path, job.args.keep)
    dist.barrier()
    job.log.info("resuming from %s", path)
    state = torch.load(path)
    job.log.info("resumed at step %d", state["step"])
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
