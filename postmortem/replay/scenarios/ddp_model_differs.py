"""One rank builds its model with another hidden size."""

import trainer


def main(job: trainer.Job) -> None:
    model = job.network(hidden=job.args.hidden if job.faulty else 64)
    job.log.info("model has %d parameters", sum(p.numel() for p in model.parameters()))
    job.train()


if __name__ == "__main__":
    trainer.run(main, hidden=96)
