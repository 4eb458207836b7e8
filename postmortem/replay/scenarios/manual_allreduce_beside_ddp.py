"""One rank reduces its gradients by hand after DDP has reduced them."""

import torch.distributed as dist
import trainer


def main(job: trainer.Job) -> None:
    model = job.network()
    for step in job.trained(model=model):
        if job.fails_at(step):
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)


if __name__ == "__main__":
    trainer.run(main)
