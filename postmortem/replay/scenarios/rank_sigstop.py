"""One rank is frozen (SIGSTOP: a debugger, a cgroup freezer, a sick hypervisor);
it neither works nor complains.

Shows: all others time out in a collective; the agent needs SIGKILL to get rid of the frozen rank
Expected: pattern rank-never-arrived, category hang, culprit the rank at fault.
"""

from __future__ import annotations

import trainer


def main() -> None:
    job = trainer.begin()
    # the runner stops the rank at fault from outside once it has reached --step
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
