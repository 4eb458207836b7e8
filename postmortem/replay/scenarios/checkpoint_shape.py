"""The checkpoint is from a model with another hidden size."""

import torch
import trainer


def main(job: trainer.Job) -> None:
    path = f"checkpoint-{job.rank}.pt"
    torch.save(job.network(hidden=128).state_dict(), path)
    model = job.network(hidden=96)
    job.log.info("resuming from %s", path)
    model.load_state_dict(torch.load(path))
    job.train()


if __name__ == "__main__":
    trainer.run(main)
