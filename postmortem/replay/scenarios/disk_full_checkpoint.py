"""One rank saves checkpoints to a file system that is full."""

import torch
import trainer


def main(job: trainer.Job) -> None:
    model = job.network(hidden=2048)
    for step in job.trained(model=model):
        if job.faulty and step and step % 4 == 0:
            job.log.info("saving checkpoint-%d", step)
            torch.save({"model": model.state_dict(), "step": step}, f"{job.args.folder}/checkpoint-{step}.pt")


if __name__ == "__main__":
    trainer.run(main, folder="checkpoints")
