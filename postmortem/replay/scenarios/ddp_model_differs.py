"""One rank builds its model from another configuration: DDP's check of the parameter shapes fails.

Shows: `appears not to match sizes of the same param in process 0`
Expected: pattern ddp-shape-mismatch, category ddp-usage, culprit the rank at fault.
"""

from __future__ import annotations

import trainer


def main() -> None:
    job = trainer.begin(hidden=96)
    model = job.network(hidden=job.args.hidden if job.faulty else 64)
    job.log.info("model has %d parameters", sum(p.numel() for p in model.parameters()))
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
