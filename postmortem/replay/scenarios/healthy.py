"""A training run that ends well.

Shows: nothing at all: no cause may be named
Expected: pattern none, category none, culprit nobody.
"""

from __future__ import annotations

import trainer


def main() -> None:
    job = trainer.begin()
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
