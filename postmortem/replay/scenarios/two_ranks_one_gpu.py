"""All ranks take the first GPU, because nobody called torch.cuda.set_device(LOCAL_RANK).

Shows: NCCL's `Duplicate GPU detected` on the first collective
Expected: pattern nccl-duplicate-gpu, category environment, culprit any of the ranks on that GPU.
"""

from __future__ import annotations

import os

import trainer


def main() -> None:
    os.environ["LOCAL_RANK"] = "0"  # stands for the missing set_device
    job = trainer.begin(backend="nccl", share=0)
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
