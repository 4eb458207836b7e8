"""One rank has fewer batches; `at_end` selects whether it leaves or waits in a barrier."""

import torch.distributed as dist
import trainer


def main(job: trainer.Job) -> None:
    batches = job.args.step if job.faulty else job.args.steps
    job.log.info("%d batches in this shard", batches)
    for step in job.trained():
        if step + 1 == batches:
            break
    job.log.info("epoch 0 finished after %d batches", batches)
    if job.args.at_end == "barrier":
        dist.barrier()


if __name__ == "__main__":
    trainer.run(main, at_end="exit")
