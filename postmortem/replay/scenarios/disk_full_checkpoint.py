"""The file system for checkpoints is full when rank 0 saves.

Shows: torch.save's `unexpected pos` or `No space left on device` on one rank
Expected: pattern torch-save-failed, category storage, culprit the rank at fault.
"""

from __future__ import annotations

import torch
import trainer


def main() -> None:
    job = trainer.begin(folder="checkpoints")
    model = job.network(hidden=2048)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
        if job.faulty and step and step % 4 == 0:
            job.log.info("saving checkpoint-%d", step)
            torch.save({"model": model.state_dict(), "step": step}, f"{job.args.folder}/checkpoint-{step}.pt")
    job.done()


if __name__ == "__main__":
    trainer.call(main)
