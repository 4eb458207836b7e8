"""The master port is already taken by another process on the host.

Shows: `EADDRINUSE` at once, before any step
Expected: pattern address-in-use, category rendezvous, culprit nobody: the port was taken.
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
