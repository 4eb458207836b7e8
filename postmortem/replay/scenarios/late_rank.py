"""One rank starts long after the others (a slow image pull); they have given up when it comes.

Shows: `Timed out waiting for clients`, then a late rank that finds no store
Expected: pattern rank-joined-late, category rendezvous, culprit the rank at fault.
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
