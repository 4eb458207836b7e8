"""A training run that ends well and warns a lot: handled exceptions, retries, loss-scale skips,
words that sound like trouble.

Shows: scary lines and no failure: no cause may be named
Expected: pattern none, category none, culprit nobody.
"""

from __future__ import annotations

import warnings

import torch
import trainer


def upload(job: trainer.Job, step: int) -> None:
    """A storage service that answers at the third attempt."""
    for attempt in range(1, 4):
        try:
            if attempt < 3:
                raise ConnectionResetError(104, "Connection reset by peer")
        except ConnectionResetError as error:
            job.log.warning("upload of step-%d.tar failed (attempt %d/5): %s", step, attempt, error)


def label(job: trainer.Job, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        job.log.exception("label %r cannot be read, using 0", text)
        return 0


def main() -> None:
    job = trainer.begin()
    job.log.info(
        "config: timeout_s=8 oom_retries=0 on_error=raise killed_workers=0 nan_check=False grad_norm_limit=inf"
    )
    model = job.network(find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    schedule.step()
    scale = 65536.0
    for step in job.steps():
        if step in (1, 2, 3):
            scale /= 2
            job.log.warning("gradient overflow, skipping step, loss scale reduced to %.1f", scale)
        if step == 6:
            upload(job, step)
            label(job, "n/a")
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
    warnings.warn(
        "this checkpoint format is deprecated and will fail to load in a future release",
        FutureWarning,
        stacklevel=1,
    )
    job.done()


if __name__ == "__main__":
    trainer.call(main)
