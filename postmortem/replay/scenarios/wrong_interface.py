"""GLOO_SOCKET_IFNAME names an interface that one host does not have.

Shows: `Unable to find address for: ib7`, the others wait
Expected: pattern interface-not-found, category rendezvous, culprit the rank at fault.
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
