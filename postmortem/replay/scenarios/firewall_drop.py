"""A packet filter on the master's host drops everything that comes from the other host.

Shows: connection attempts that time out, nothing is refused; rank 0 counts too few clients
Expected: pattern store-clients-joined, category rendezvous, culprit nobody: the network is filtered.
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
