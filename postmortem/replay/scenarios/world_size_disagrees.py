"""One process believes in another WORLD_SIZE than the rest.

Shows: one side waits for a rank that will never come
Expected: pattern world-sizes-differ, category rendezvous, culprit the rank at fault.
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
