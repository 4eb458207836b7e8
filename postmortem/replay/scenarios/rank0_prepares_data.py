"""One rank tokenizes the dataset, with a progress bar, while the others wait in a barrier."""

import sys
import time

import torch.distributed as dist
import trainer

EXAMPLES = 24_000


def tokenize(seconds: float) -> None:
    """Redraw a progress bar as tqdm does."""
    began = time.monotonic()
    while (share := (time.monotonic() - began) / seconds) < 1:
        done, bar = int(EXAMPLES * share), "█" * int(10 * share)
        clock = f"00:{int(seconds * share):02d}<00:{int(seconds * (1 - share)):02d}"
        speed = f"{EXAMPLES / seconds:.2f} examples/s"
        sys.stderr.write(f"\rtokenizing: {int(100 * share):3d}%|{bar:10}| {done}/{EXAMPLES} [{clock}, {speed}]")
        sys.stderr.flush()
        time.sleep(0.2)
    sys.stderr.write("\n")


def main(job: trainer.Job) -> None:
    if job.faulty:
        tokenize(job.args.seconds)
    dist.barrier()
    job.train()


if __name__ == "__main__":
    trainer.run(main, seconds=30.0)
