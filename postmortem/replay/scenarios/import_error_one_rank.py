"""A package is missing on the host of one rank."""

import importlib

import trainer


def main(job: trainer.Job) -> None:
    if job.faulty:
        importlib.import_module("fused_norms")  # no package has this name
    job.join()
    job.train()


if __name__ == "__main__":
    trainer.run(main, join=False)
