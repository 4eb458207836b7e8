"""Somebody (an operator, a node-cleaning script) sends SIGKILL to one rank in the middle of training.

Shows: exit -9 without any kernel record; peers lose their connection
Expected: pattern rank-exit-sigkill, category external-signal, culprit the rank at fault.
"""

from __future__ import annotations

import trainer


def main() -> None:
    job = trainer.begin()
    # the runner kills the rank at fault from outside once it has reached --step
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
