"""A training run with DataLoader workers, checkpoints and a barrier at each epoch that ends well."""

import torch
import torch.distributed as dist
import trainer


def main(job: trainer.Job) -> None:
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        loader = job.loader(lambda index: torch.randn(trainer.FEATURES), workers=2)
        for step in range(8):
            job.report(step, job.learn(model, optimizer, next(loader), job.batch(step)[1]))
        if job.rank == 0:
            torch.save(model.state_dict(), f"epoch-{epoch}.pt")
            job.log.info("saved epoch-%d.pt", epoch)
        dist.barrier()


if __name__ == "__main__":
    trainer.run(main)
