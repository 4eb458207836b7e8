"""Another job truncates a memory-mapped data file while one rank reads it."""

import faulthandler
from pathlib import Path

import torch
import trainer

ROW = trainer.BATCH * trainer.FEATURES


def main(job: trainer.Job) -> None:
    faulthandler.enable()
    path = Path(f"shard_{job.rank:02d}.bin")
    path.write_bytes(bytes(4 * ROW * 400))
    data = torch.from_file(str(path), shared=True, size=ROW * 400).view(-1, trainer.BATCH, trainer.FEATURES)
    batches = (data[step * 8].clone() for step in range(job.args.steps))
    job.train(fault=lambda: path.write_bytes(b""), inputs=batches)


if __name__ == "__main__":
    trainer.run(main)
