"""A training run that ends well; also the job of the scenarios that only start or stop it differently."""

import trainer


def main(job: trainer.Job) -> None:
    job.train()


if __name__ == "__main__":
    trainer.run(main)
