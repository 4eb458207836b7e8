"""MASTER_ADDR is a host name that no name server knows (a headless service that is not there yet).

Shows: `gai error: -3` or -2 warnings, then a client time-out on every rank that has to connect
Expected: pattern dns-unresolvable, category rendezvous, culprit nobody: the address is wrong.
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
