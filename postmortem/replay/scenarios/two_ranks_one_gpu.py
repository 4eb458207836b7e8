"""All ranks use the first GPU, because LOCAL_RANK is ignored."""

import os

import trainer


def main(job: trainer.Job) -> None:
    os.environ["LOCAL_RANK"] = "0"
    job.join()
    job.train()


if __name__ == "__main__":
    trainer.run(main, join=False, backend="nccl", share=0)
