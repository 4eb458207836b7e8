"""One rank was given another MASTER_PORT than the rest: nobody listens there.

Shows: that rank's client times out; rank 0 counts one client too few
Expected: pattern rank-found-no-store, category rendezvous, culprit the rank at fault.
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
