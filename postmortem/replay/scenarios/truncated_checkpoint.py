"""All ranks load a checkpoint that was cut short."""

from pathlib import Path

import torch
import torch.distributed as dist
import trainer


def main(job: trainer.Job) -> None:
    path = Path("checkpoint-4000.pt")
    if job.rank == 0:
        torch.save({"weights": torch.rand(64, 1024), "step": 4000}, path)
        path.write_bytes(path.read_bytes()[: job.args.keep])
    dist.barrier()
    job.log.info("resuming from %s", path)
    state = torch.load(path)
    job.log.info("resumed at step %d", state["step"])
    job.train()


if __name__ == "__main__":
    trainer.run(main, keep=20_000)
