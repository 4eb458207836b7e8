"""A package is installed on all hosts but one:
that rank fails at its imports, the others wait for it in init_process_group.

Shows: ModuleNotFoundError on one rank, store time-outs on the others
Expected: pattern module-not-found, category python-exception, culprit the rank at fault.
"""

from __future__ import annotations

import importlib

import trainer


def main() -> None:
    job = trainer.Job(trainer.arguments())
    if job.faulty:
        importlib.import_module("fused_norms")  # there is no such package here
    job.join()
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
