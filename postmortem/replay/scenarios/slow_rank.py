"""The data source of one rank stalls."""

import time

import trainer


def main(job: trainer.Job) -> None:
    def fetch() -> None:
        time.sleep(job.args.stall)

    try:
        for _ in job.trained(fault=fetch):
            if job.args.dump:
                job.dump_recorder()
    finally:
        if job.args.dump:
            job.dump_recorder()


if __name__ == "__main__":
    trainer.run(main, stall=40.0, dump=0)
