"""The store's port is open between the hosts, all other ports are filtered:
the ranks meet and then cannot reach each other.

Shows: `Gloo connectFullMesh failed` on all ranks after the store had worked
Expected: pattern gloo-connect-full-mesh-failed, category rendezvous, culprit nobody: the network is filtered.
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
