"""Somebody closes the terminal, or loses the connection, in which the launcher runs without nohup.

Shows: `Received 1 death signal`, and workers that the launcher stops
Expected: pattern launcher-sighup, category external-signal, culprit nobody.
"""

from __future__ import annotations

import trainer


def main() -> None:
    job = trainer.begin()
    # the runner sends SIGHUP to the launcher once --step is reached
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
