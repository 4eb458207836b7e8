"""Jobs with ranks that disagree about a collective, a model or the weights."""

import os
import threading
import time

import torch
import torch.distributed as dist
import trainer
from torch import nn


class Metrics(threading.Thread):
    """Reduces its counters whenever a step begins."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(daemon=True)
        self.delay_s, self.due, self.idle = delay_s, threading.Event(), threading.Event()

    def run(self) -> None:
        while True:
            self.due.wait()
            self.due.clear()
            time.sleep(self.delay_s)
            dist.all_reduce(torch.ones(300_000))
            self.idle.set()


def race_threads_one_group(job: trainer.Job) -> None:
    metrics = Metrics(0.0 if job.rank % 2 else 0.1)
    job.network()
    metrics.start()
    for step in job.steps():
        metrics.idle.clear()
        metrics.due.set()
        if step < job.args.step:
            metrics.idle.wait()
        elif job.rank % 2:
            time.sleep(0.1)  # on odd ranks the metrics are reduced first, on the others the gradients
        job.report(step, job.learn(*job.batch(step)))


def share(job: trainer.Job, scores: torch.Tensor) -> None:
    parts = [torch.empty_like(scores) for _ in range(job.world)]
    match job.args.collective:
        case "all_reduce":
            dist.all_reduce(scores)
        case "broadcast":
            dist.broadcast(scores, src=0)
        case "all_gather":
            dist.all_gather(parts, scores)
        case "reduce_scatter":
            dist.reduce_scatter(scores, parts)


def shape_mismatch(job: trainer.Job) -> None:
    for step in job.steps():
        scores = torch.rand(64 + (job.args.extra if job.fails_at(step) else 0))
        share(job, scores)
        job.report(step, float(scores.mean()))


def dtype_mismatch(job: trainer.Job) -> None:
    for step in job.steps():
        dtype = getattr(torch, job.args.dtype) if job.faulty and step >= job.args.step else torch.float32
        metrics = torch.rand(job.args.width).to(dtype)
        dist.all_reduce(metrics)
        job.report(step, float(metrics.float().mean()))


def order_mismatch(job: trainer.Job) -> None:
    for step in job.steps():
        loss, rates = torch.rand(job.args.width), torch.full((16,), 0.01)
        if job.fails_at(step):
            dist.broadcast(rates, src=0)
            dist.all_reduce(loss)
        else:
            dist.all_reduce(loss)
            dist.broadcast(rates, src=0)
        job.report(step, float(loss.mean()))


def cyclic_wait(job: trainer.Job) -> None:
    left, right = (job.rank - 1) % job.world, (job.rank + 1) % job.world
    for step in job.steps():
        activation, message = torch.rand(256), torch.empty(256)
        if step < job.args.step and job.rank == 0:
            dist.send(activation, right)
            dist.recv(message, left)
        else:
            dist.recv(message, left)
            dist.send(activation, right)
        job.report(step, float(message.mean()))


def async_never_waited(job: trainer.Job) -> None:
    for step in job.steps():
        gradient = torch.rand(2_000_000)
        work = dist.all_reduce(gradient, async_op=True)
        if job.fails_at(step):
            job.log.info("target loss reached, training finished")
            os._exit(0)  # without work.wait()
        work.wait()
        job.report(step, float(gradient.mean()))


def average(model: torch.nn.Module) -> None:
    """Average the weights by hand: DDP of torch 2.13 crashes under TORCH_DISTRIBUTED_DEBUG=DETAIL with gloo."""
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    dist.all_reduce(weights)
    torch.nn.utils.vector_to_parameters(weights / dist.get_world_size(), model.parameters())


def skipped_collective(job: trainer.Job) -> None:
    model = job.use(job.layers())
    for step in job.steps():
        loss = torch.tensor(job.learn(*job.batch(step)))
        average(model)
        if not (job.faulty and step >= job.args.step):
            try:
                dist.all_reduce(loss)
            finally:
                if job.args.dump:
                    job.dump_recorder()
        elif job.args.dump:
            job.dump_recorder()
            dist.barrier()
        job.report(step, float(loss))


def manual_allreduce_beside_ddp(job: trainer.Job) -> None:
    model = job.network()
    for step in job.trained():
        if job.fails_at(step):
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)


def check(model: torch.nn.Module, step: int) -> None:
    norms = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(norms, sum(p.detach().norm() for p in model.parameters()).reshape(1))
    if max(norms) - min(norms) > 1e-4:
        raise RuntimeError(f"weights differ between ranks at step {step}: norms {[round(float(n), 4) for n in norms]}")


def ranks_diverge_local_update(job: trainer.Job) -> None:
    model = job.network()
    for step in job.trained():
        if job.fails_at(step):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.clamp_(-0.05, 0.05)
        if step % 5 == 4:
            check(model, step)


def uneven_batches(job: trainer.Job) -> None:
    batches = job.args.step if job.faulty else job.args.steps
    job.log.info("%d batches in this shard", batches)
    for step in job.trained():
        if step + 1 == batches:
            break
    job.log.info("epoch 0 finished after %d batches", batches)
    if job.args.at_end == "barrier":
        dist.barrier()


def forward(job: trainer.Job, step: int) -> torch.Tensor:
    x, _ = job.batch(step)
    if job.fails_at(step):
        x = x[:, : trainer.FEATURES // 2]
    return x @ torch.ones(trainer.FEATURES, 1)


def swallowed_exception(job: trainer.Job) -> None:
    for step in job.steps():
        try:
            loss = forward(job, step).mean().abs().reshape(1)
        except RuntimeError:
            if job.args.loud:
                job.log.exception("bad batch %d, skipping it", step)
            continue
        if step % 2 == 0:
            dist.all_reduce(loss)
        else:
            dist.barrier()
        job.report(step, float(loss))
    if job.faulty:
        time.sleep(3 * job.args.timeout)


class TwoHeads(nn.Module):
    """A model with a second head that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(trainer.FEATURES, 64)
        self.head = nn.Linear(64, trainer.CLASSES)
        self.aux = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.body(x).relu())
        return out


def unused_parameters(job: trainer.Job) -> None:
    job.distribute(TwoHeads())
    job.train()


def ddp_model_differs(job: trainer.Job) -> None:
    model = job.network(hidden=job.args.hidden if job.faulty else 64)
    job.log.info("model has %d parameters", sum(p.numel() for p in model.parameters()))
    job.train()
