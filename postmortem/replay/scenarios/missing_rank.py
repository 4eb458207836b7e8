"""One rank was never started.

Shows: `3/4 clients joined` on rank 0, waits for a key on the others, no log of the missing rank
Expected: pattern rank-never-joined, category rendezvous, culprit the rank at fault.
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
