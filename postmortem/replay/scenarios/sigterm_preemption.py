"""The machine is wanted back: the launcher gets SIGTERM and takes its workers down.

Shows: `Received 15 death signal`, workers closed by SIGTERM, SignalException in the agent
Expected: pattern launcher-received-signal, category external-signal, culprit nobody.
"""

from __future__ import annotations

import trainer


def main() -> None:
    job = trainer.begin()
    # the runner sends SIGTERM to the launcher once --step is reached
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
