"""A library of one rank calls sys.exit without a message."""

import sys

import trainer


def main(job: trainer.Job) -> None:
    job.train(fault=lambda: sys.exit(job.args.code))


if __name__ == "__main__":
    trainer.run(main, code=3)
