"""One rank fails before the group forms, catches its own exception and sleeps before it would retry:
the others only see a time-out.

Shows: a logged exception long before the time-out of the others
Expected: pattern rank-stuck-before-init, category rendezvous, culprit the rank at fault.
"""

from __future__ import annotations

import time

import trainer


def load_config(job: trainer.Job) -> dict[str, str]:
    if job.faulty:
        raise KeyError("tokenizer_path")
    return {"tokenizer_path": "tokenizer.json"}


def main() -> None:
    job = trainer.Job(trainer.arguments(retry_s=30.0))
    try:
        load_config(job)
    except KeyError as error:
        job.log.error("configuration not ready: %r, retrying in %d s", error, job.args.retry_s)
        time.sleep(job.args.retry_s)
        raise
    job.join()
    job.train()
    job.done()


if __name__ == "__main__":
    trainer.call(main)
