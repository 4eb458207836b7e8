"""One rank catches an exception before the process group is created and sleeps before it raises it again."""

import time

import trainer


def load_config(job: trainer.Job) -> dict[str, str]:
    if job.faulty:
        raise KeyError("tokenizer_path")
    return {"tokenizer_path": "tokenizer.json"}


def main(job: trainer.Job) -> None:
    try:
        load_config(job)
    except KeyError as error:
        job.log.error("configuration not ready: %r, retrying in %d s", error, job.args.retry_s)
        time.sleep(job.args.retry_s)
        raise
    job.join()
    job.train()


if __name__ == "__main__":
    trainer.run(main, join=False, retry_s=30.0)
