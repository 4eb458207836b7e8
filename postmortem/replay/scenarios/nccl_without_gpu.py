"""Backend nccl on a machine (or with a build) that has no GPU.

Shows: `Distributed package doesn't have NCCL built in` on every rank
Expected: pattern backend-not-built, category environment, culprit nobody: all ranks alike.
"""

from __future__ import annotations

import trainer


def main() -> None:
    job = trainer.Job(trainer.arguments(backend="nccl"))
    job.join()
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
