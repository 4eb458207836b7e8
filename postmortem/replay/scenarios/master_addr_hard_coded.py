"""MASTER_ADDR=127.0.0.1 is written into the script:
fine on one host, but the second host looks for the store on itself.

Shows: ranks of the second host cannot connect; rank 0 counts too few clients
Expected: pattern store-clients-joined, category rendezvous, culprit the ranks of the second host.
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
