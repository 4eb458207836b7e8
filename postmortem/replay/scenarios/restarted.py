"""One rank fails in the first attempts of a job that the launcher restarts."""

import os

import trainer


def main(job: trainer.Job) -> None:
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    job.log.info("attempt %d", attempt)

    def read_shard() -> None:
        if attempt < job.args.bad_attempts:
            raise RuntimeError(f"shard {job.rank}: checksum mismatch in record {64 * job.args.step}")

    job.train(fault=read_shard)


if __name__ == "__main__":
    trainer.run(main, bad_attempts=1)
