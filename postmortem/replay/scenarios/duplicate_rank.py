"""Two processes were given the same RANK; another rank does not exist.

Shows: a store that never fills; two logs that claim the same rank
Expected: pattern rank-started-twice, category rendezvous, culprit the duplicate and the missing rank.
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
