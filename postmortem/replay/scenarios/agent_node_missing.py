"""The launcher waits for two hosts and only one was started.

Shows: `RendezvousTimeoutError` and no worker output at all
Expected: pattern rendezvous-timeout, category rendezvous, culprit nobody that has a rank yet.
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
