"""The launcher starts one rank more than the host has GPUs, and each takes the GPU of its LOCAL_RANK.

Shows: `invalid device ordinal` on the last rank, before the group forms
Expected: pattern cuda-invalid-device-ordinal, category environment, culprit the rank at fault.
"""

from __future__ import annotations

import torch
import trainer


def main() -> None:
    job = trainer.Job(trainer.arguments(device="cuda"))
    gpu = torch.cuda.device_count() if job.faulty else 0
    job.log.info("taking GPU %d", gpu)
    torch.cuda.set_device(gpu)
    job.join()
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
