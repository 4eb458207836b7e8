"""An odd sample in one rank's shard raises an ordinary exception;
`error` chooses which, each through the code that really raises it.

Shows: a traceback on one rank; the others lose their connection
Expected: pattern python-exception, category python-exception, culprit the rank at fault.
"""

from __future__ import annotations

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
    torch.nn.functional.cross_entropy(
        torch.rand(1, trainer.CLASSES, device="cpu"), torch.tensor([trainer.CLASSES + 81], device="cpu")
    )


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


def too_large_a_list() -> None:
    bytearray(1 << 62)


def uneven_samples() -> None:
    default_collate([torch.rand(3), torch.rand(4)])


def local_function() -> None:
    pickle.dumps(lambda: None)


def cut_off_shard() -> None:
    gzip.decompress(b"version https://git-lfs")


def no_group() -> None:
    dist.destroy_process_group()
    dist.all_reduce(torch.rand(3))


def two_groups() -> None:
    dist.init_process_group("gloo")


def bad_config() -> None:
    compile("learning_rate = = 0.01", "config.py", "exec")


ERRORS: dict[str, Callable[[], None]] = {
    "value": bad_label,
    "index": bad_index,
    "shape": bad_shape,
    "batch-size": bad_batch_size,
    "dtype": bad_dtype,
    "graph-freed": freed_graph,
    "in-place": changed_in_place,
    "recursion": endless_recursion,
    "memory": too_large_a_list,
    "collate": uneven_samples,
    "pickle": local_function,
    "corrupt": cut_off_shard,
    "not-initialized": no_group,
    "initialized-twice": two_groups,
    "syntax": bad_config,
}


def main() -> None:
    job = trainer.begin(error="value")
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        if job.faulty and step == job.args.step:
            ERRORS[job.args.error]()
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
