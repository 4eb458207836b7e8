"""One rank raises an exception; `error` selects which."""

import gzip
import pickle
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


def main(job: trainer.Job) -> None:
    job.train(fault=ERRORS[job.args.error])


if __name__ == "__main__":
    trainer.run(main, error="value")
