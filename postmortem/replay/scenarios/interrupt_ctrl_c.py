"""Somebody presses Ctrl-C in the terminal of the launcher.

Shows: `Received 2 death signal`, KeyboardInterrupt tracebacks
Expected: pattern launcher-sigint, category external-signal, culprit nobody.
"""

from __future__ import annotations

import trainer


def main() -> None:
    job = trainer.begin()
    # the runner sends SIGINT to the launcher once --step is reached
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
