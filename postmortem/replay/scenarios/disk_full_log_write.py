"""One rank appends its predictions to a file on a full file system."""

from pathlib import Path

import trainer


def main(job: trainer.Job) -> None:
    with Path(job.args.folder, f"predictions-{job.rank}.jsonl").open("w") as predictions:
        for _ in job.trained():
            if job.faulty:
                predictions.write("0" * 60_000)
                predictions.flush()


if __name__ == "__main__":
    trainer.run(main, folder="checkpoints")
