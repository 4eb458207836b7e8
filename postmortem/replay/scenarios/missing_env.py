"""RANK is not set in one process: the start script forgot to export it.

Shows: `environment variable RANK expected, but not set`, the others wait
Expected: pattern env-var-missing, category rendezvous, culprit the rank at fault.
"""

from __future__ import annotations

import trainer


def main() -> None:
    job = trainer.begin()
    # the fault is in how this job is started, not in what it does
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
