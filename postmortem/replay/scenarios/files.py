"""Jobs that fail at a file: a full disk, a damaged or missing file, too many descriptors."""

import resource
from pathlib import Path

import torch
import torch.distributed as dist
import trainer


def disk_full_checkpoint(job: trainer.Job) -> None:
    model = job.network(hidden=2048)
    for step in job.trained():
        if job.faulty and step and step % 4 == 0:
            job.log.info("saving checkpoint-%d", step)
            torch.save({"model": model.state_dict(), "step": step}, f"{job.args.folder}/checkpoint-{step}.pt")


def disk_full_log_write(job: trainer.Job) -> None:
    with Path(job.args.folder, f"predictions-{job.rank}.jsonl").open("w") as predictions:
        for _ in job.trained():
            if job.faulty:
                predictions.write("0" * 60_000)
                predictions.flush()


def truncated_checkpoint(job: trainer.Job) -> None:
    path = Path("checkpoint-4000.pt")
    if job.rank == 0:
        torch.save({"weights": torch.rand(64, 1024), "step": 4000}, path)
        path.write_bytes(path.read_bytes()[: job.args.keep])
    dist.barrier()
    job.log.info("resuming from %s", path)
    state = torch.load(path)
    job.log.info("resumed at step %d", state["step"])
    job.train()


def checkpoint_shape(job: trainer.Job) -> None:
    path = f"checkpoint-{job.rank}.pt"
    torch.save(job.network(hidden=128).state_dict(), path)
    model = job.network(hidden=96)
    job.log.info("resuming from %s", path)
    model.load_state_dict(torch.load(path))
    job.train()


def shard(rank: int, step: int) -> Path:
    return Path(f"data/part-{rank:05d}-{step // 8:02d}.bin")


def file_missing_one_rank(job: trainer.Job) -> None:
    Path("data").mkdir(exist_ok=True)
    for step in range(0, job.args.steps + 8, 8):
        if not (job.faulty and step // 8 == job.args.step // 8):
            shard(job.rank, step).write_bytes(b"x")
    for step in job.trained():
        shard(job.rank, step + 1).read_bytes()


def too_many_open_files(job: trainer.Job) -> None:
    job.network()
    resource.setrlimit(resource.RLIMIT_NOFILE, (job.args.limit, job.args.limit))
    handles = []
    for _ in job.trained():
        if job.faulty:
            handles += [Path(__file__).open() for _ in range(job.args.per_step)]  # noqa: SIM115
