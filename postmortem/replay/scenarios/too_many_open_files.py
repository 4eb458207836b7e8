"""One rank opens files and never closes them."""

import resource
from pathlib import Path

import trainer


def main(job: trainer.Job) -> None:
    model = job.network()
    resource.setrlimit(resource.RLIMIT_NOFILE, (job.args.limit, job.args.limit))
    handles = []
    for _ in job.trained(model=model):
        if job.faulty:
            handles += [Path(__file__).open() for _ in range(job.args.per_step)]  # noqa: SIM115


if __name__ == "__main__":
    trainer.run(main, limit=160, per_step=16)
