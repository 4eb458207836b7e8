"""The rank at fault selects a GPU that does not exist."""

import torch
import trainer


def main(job: trainer.Job) -> None:
    gpu = torch.cuda.device_count() if job.faulty else 0
    job.log.info("taking GPU %d", gpu)
    torch.cuda.set_device(gpu)
    job.join()
    job.train()


if __name__ == "__main__":
    trainer.run(main, join=False, device="cuda")
