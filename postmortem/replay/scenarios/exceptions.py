"""Jobs that fail with a Python exception, and a loss that becomes NaN."""

import gzip
import importlib
import os
import pickle
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import trainer
from torch.utils.data import default_collate


def bad_label() -> None:
    label = 4711
    if label >= trainer.CLASSES:
        raise ValueError(f"sample 67: label {label} outside of [0, {trainer.CLASSES})")


def bad_index() -> None:
    scores, label = torch.rand(1, trainer.CLASSES, device="cpu"), torch.tensor([trainer.CLASSES + 81], device="cpu")
    torch.nn.functional.cross_entropy(scores, label)


def bad_shape() -> None:
    torch.nn.Linear(trainer.FEATURES, 8)(torch.rand(trainer.BATCH, trainer.FEATURES // 2))


def bad_batch_size() -> None:
    torch.nn.functional.cross_entropy(torch.rand(trainer.BATCH, 10), torch.zeros(3, dtype=torch.long))


def bad_dtype() -> None:
    torch.nn.Linear(trainer.FEATURES, 8)(torch.rand(trainer.BATCH, trainer.FEATURES, dtype=torch.float64))


def freed_graph() -> None:
    loss = (torch.rand(3, requires_grad=True) ** 2).sum()
    loss.backward()
    loss.backward()


def changed_in_place() -> None:
    x = torch.rand(3, requires_grad=True)
    y = x.exp()
    y.mul_(2)
    y.sum().backward()


def endless_recursion() -> None:
    endless_recursion()


def no_group() -> None:
    dist.destroy_process_group()
    dist.all_reduce(torch.rand(3))


ERRORS: dict[str, Callable[[], object]] = {
    "value": bad_label,
    "index": bad_index,
    "shape": bad_shape,
    "batch-size": bad_batch_size,
    "dtype": bad_dtype,
    "graph-freed": freed_graph,
    "in-place": changed_in_place,
    "recursion": endless_recursion,
    "memory": lambda: bytearray(1 << 62),
    "collate": lambda: default_collate([torch.rand(3), torch.rand(4)]),
    "pickle": lambda: pickle.dumps(lambda: None),
    "corrupt": lambda: gzip.decompress(b"version https://git-lfs"),
    "not-initialized": no_group,
    "initialized-twice": lambda: dist.init_process_group("gloo"),
    "syntax": lambda: compile("learning_rate = = 0.01", "config.py", "exec"),
}


def python_exception_one_rank(job: trainer.Job) -> None:
    job.train(fault=ERRORS[job.args.error])


def python_exception_dataloader(job: trainer.Job) -> None:
    def features(index: int) -> torch.Tensor:
        damaged = job.faulty and index == job.args.step * trainer.BATCH + 5
        record = {"text" if damaged else "features": torch.randn(trainer.FEATURES)}
        return record["features"]

    job.network()
    job.train(inputs=job.loader(features))


def import_error_one_rank(job: trainer.Job) -> None:
    if job.faulty:
        importlib.import_module("fused_norms")  # no package has this name
    job.join()
    job.train()


def load_config(incomplete: bool) -> dict[str, str]:
    if incomplete:
        raise KeyError("tokenizer_path")
    return {"tokenizer_path": "tokenizer.json"}


def init_error_hidden_by_sleep(job: trainer.Job) -> None:
    try:
        load_config(job.faulty)
    except KeyError as error:
        job.log.error("configuration not ready: %r, retrying in %d s", error, job.args.retry_s)
        time.sleep(job.args.retry_s)
        raise
    job.join()
    job.train()


def version_mismatch(job: trainer.Job) -> None:
    versions: list[str | None] = [None] * job.world
    dist.all_gather_object(versions, f"2.12.{job.rank}" if job.faulty else torch.__version__)
    if len(set(versions)) > 1:
        raise RuntimeError(f"torch versions differ between ranks: {dict(enumerate(versions))}")
    job.train()


def restarted(job: trainer.Job) -> None:
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    job.log.info("attempt %d", attempt)

    def read_shard() -> None:
        if attempt < job.args.bad_attempts:
            raise RuntimeError(f"shard {job.rank}: checksum mismatch in record {64 * job.args.step}")

    job.train(fault=read_shard)


def nan_one_rank(job: trainer.Job) -> None:
    job.network()
    for step in job.steps():
        x, y = job.batch(step)
        if job.fails_at(step):
            x[2, 5] = float("inf")
        job.report(step, job.learn(x, y), every=1)
