"""A training run with handled exceptions, retries and many warnings that ends well."""

import warnings

import torch
import trainer


def upload(job: trainer.Job, step: int) -> None:
    """A storage service that answers the third attempt."""
    for attempt in (1, 2):
        try:
            raise ConnectionResetError(104, "Connection reset by peer")
        except ConnectionResetError as error:
            job.log.warning("upload of step-%d.tar failed (attempt %d/5): %s", step, attempt, error)


def label(job: trainer.Job, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        job.log.exception("label %r cannot be read, using 0", text)
        return 0


def main(job: trainer.Job) -> None:
    job.log.info(
        "config: timeout_s=8 oom_retries=0 on_error=raise killed_workers=0 nan_check=False grad_norm_limit=inf"
    )
    model = job.network(find_unused_parameters=True)
    torch.optim.lr_scheduler.StepLR(torch.optim.SGD(model.parameters(), lr=0.01), 10).step()
    scale = 65536.0
    for step in job.trained(model=model):
        if step < 3:
            scale /= 2
            job.log.warning("gradient overflow, skipping step, loss scale reduced to %.1f", scale)
        if step == 6:
            upload(job, step)
            label(job, "n/a")
    deprecated = "this checkpoint format is deprecated and will fail to load in a future release"
    warnings.warn(deprecated, FutureWarning, stacklevel=1)


if __name__ == "__main__":
    trainer.run(main)
