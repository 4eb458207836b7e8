"""Shared by the jobs of this folder: options, log formats, process group, model, data and training loop.

A job and this file are written into one script, which imports nothing of this package.
"""

from __future__ import annotations

import argparse
import atexit
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.utils.data
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

FEATURES, CLASSES, BATCH = 32, 10, 8

# A gloo thread takes the interpreter lock to release a finished reduction. If the interpreter is shutting down at
# that moment, the process aborts: `terminate called without an active exception`, exit code -6. So a failed rank
# sleeps before it exits, and a finished rank calls os._exit() while the model is still alive.
EXIT_DELAY_S = 0.5


@dataclass(frozen=True)
class Style:
    """The log format of a code base: of each line, and of the progress (see `Job.report`)."""

    line: str
    progress: str
    stream: str = "stderr"
    ranks: str = "all"  # all, first or last: the ranks that log progress


STYLES = {
    "bare": Style("{message}", "step {step} loss {loss:.4f}", "stdout"),
    "logging": Style("{asctime} {levelname} [rank{rank}] train: {message}", "epoch 0 step {step} loss {loss:.4f}"),
    "iso": Style("{iso} | {levelname:<8} | rank={rank} | {message}", "step={step} loss={loss:.5f} lr=1.0e-02"),
    "imagenet": Style("{message}", "Epoch: [0][{step:3d}/{steps}]\tTime {step_s:6.3f}\tLoss {loss:.4e}", "stdout"),
    "bracket": Style("[{date}] [rank {rank}/{world}] {message}", "batch {step}/{steps} - loss: {loss:.3f}", "stdout"),
    "megatron": Style(
        "[{date}] {message}",
        " iteration {done:8d}/{steps:8d} | consumed samples: {samples:12d} | elapsed time per iteration (ms): {ms:.1f}"
        " | learning rate: 1.000E-02 | lm loss: {loss:.6E} | number of nan iterations: 0 |",
        "stdout",
        "last",
    ),
    "hf": Style(
        "{levelname}:train:{message}", "{{'loss': {short}, 'learning_rate': 0.01, 'epoch': {epoch}}}", "stdout", "first"
    ),
    "json": Style("json", '{{"step": {step}, "loss": {json}, "elapsed_s": {elapsed:.2f}}}', "stdout"),
    "bar": Style(
        "{asctime} - {levelname} - train - {message}",
        "{percent:3d}%|{bar:20}| {done}/{steps} [{clock}, loss={loss:.3f}]",
        "stderr",
        "first",
    ),
}


class StyleFormatter(logging.Formatter):
    """Formats a record in a style. RANK is read for each record: a spawned process sets it after its start."""

    def __init__(self, style: Style) -> None:
        super().__init__()
        self.style = style

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).astimezone()
        date, rank, message = f"{at:%Y-%m-%d %H:%M:%S}", os.environ.get("RANK", "?"), record.getMessage()
        iso = at.isoformat(timespec="milliseconds")
        if self.style.line == "json":
            body = json.loads(message) if message.startswith("{") else {"msg": message}
            text = json.dumps({"ts": iso, "level": record.levelname.lower(), "rank": rank} | body)
        else:
            asctime, world = f"{date},{int(record.msecs):03d}", os.environ.get("WORLD_SIZE", "?")
            text = self.style.line.format(
                message=message, asctime=asctime, iso=iso, date=date, levelname=record.levelname, rank=rank, world=world
            )
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def options(**own: float | str) -> argparse.Namespace:
    """The options of every job and the job's own. Their defaults also give their types.

    They are read from the command line, or from the JSON file of --config, which keeps them out of `ps`.
    """
    defaults: dict[str, float | str] = {
        "backend": "gloo",
        "device": "",  # cpu or cuda; empty: cuda with nccl, else cpu
        "share": 1,  # with nccl: ranks may share a GPU
        "steps": 24,
        "rank": 1,
        "step": 8,
        "timeout": 8.0,
        "pause": 0.05,
        "style": "logging",
        **own,
    }
    parser = argparse.ArgumentParser()
    for name, value in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--record", action="store_true", help="wrap main() in torch.distributed.elastic's @record")
    parser.add_argument("--spawn", type=int, default=0, help="start this many ranks with torch.multiprocessing.spawn")
    parser.add_argument("--config", default="")
    if path := parser.parse_args().config:
        parser.set_defaults(**json.loads(Path(path).read_text()))
    return parser.parse_args()


class Samples(torch.utils.data.Dataset[Tensor]):
    def __init__(self, read: Callable[[int], Tensor]) -> None:
        self.read = read

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> Tensor:
        return self.read(index)


class Job:
    """One rank of a job."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.rank = int(os.environ.get("RANK", "-1"))
        self.world = int(os.environ.get("WORLD_SIZE", "-1"))
        self.faulty = bool(self.rank == args.rank)  # the rank at fault
        self.style = STYLES[args.style]
        self.began = time.monotonic()
        handler = logging.StreamHandler(sys.stdout if self.style.stream == "stdout" else sys.stderr)
        handler.setFormatter(StyleFormatter(self.style))
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        self.log = logging.getLogger("train")
        atexit.register(time.sleep, EXIT_DELAY_S)
        self.note(-1)

    def fails_at(self, step: int) -> bool:
        """Whether this is the rank at fault at the step at which it fails."""
        return self.faulty and bool(step == self.args.step)

    @property
    def device(self) -> torch.device:
        """The CPU, or the GPU of this local rank (modulo the number of GPUs)."""
        kind = self.args.device or ("cuda" if self.args.backend == "nccl" else "cpu")
        if kind == "cpu":
            return torch.device("cpu")
        local = int(os.environ.get("LOCAL_RANK", "0"))
        return torch.device("cuda", local % max(1, torch.cuda.device_count()))

    def use_device(self) -> None:
        """Make this rank's device the default.

        NCCL refuses two ranks of one host on one GPU. If the job has fewer GPUs than ranks, each rank gets another
        NCCL_HOSTID, and NCCL uses loopback sockets.
        """
        # without a GPU the process group itself raises the error
        if self.device.type != "cuda" or not torch.cuda.device_count():
            return
        if self.args.backend == "nccl" and self.world > torch.cuda.device_count() and self.args.share:
            os.environ |= {"NCCL_HOSTID": f"replay-host-{self.rank}", "NCCL_SOCKET_IFNAME": "lo"}
        torch.cuda.set_device(self.device)
        torch.set_default_device(self.device)

    def join(self) -> None:
        """Create the process group."""
        # DDP would import it later, for up to ten seconds while the timeout runs
        import torch._dynamo

        self.log.info("initializing process group backend=%s", self.args.backend)
        self.use_device()
        dist.init_process_group(self.args.backend, timeout=timedelta(seconds=self.args.timeout))
        ready = "process group ready: rank %d of %d, pid %d, torch %s"
        self.log.info(ready, self.rank, self.world, os.getpid(), torch.__version__)

    def network(self, hidden: int = 64, **ddp: bool) -> nn.Module:
        return self.distribute(self.layers(hidden), **ddp)

    def layers(self, hidden: int = 64) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))

    def distribute(self, model: nn.Module, **ddp: bool) -> nn.Module:
        return self.use(DistributedDataParallel(model, **ddp))

    def use(self, model: nn.Module) -> nn.Module:
        """Train this model, which may be bare, from now on."""
        self.model, self.optimizer = model, torch.optim.SGD(model.parameters(), lr=0.01)
        return model

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator("cpu").manual_seed(1000 * step + self.rank)
        x = torch.randn(BATCH, FEATURES, generator=generator, device="cpu")
        return x.to(self.device), torch.randint(CLASSES, (BATCH,), generator=generator, device="cpu").to(self.device)

    def loader(self, read: Callable[[int], Tensor], workers: int = 1) -> Iterator[Tensor]:
        """Batches of a DataLoader with forked workers, which call `read` with the index of each sample."""
        data, fork = Samples(read), "fork"
        return iter(torch.utils.data.DataLoader(data, BATCH, num_workers=workers, multiprocessing_context=fork))

    def steps(self) -> Iterator[int]:
        for step in range(self.args.steps):
            self.note(step)
            time.sleep(self.args.pause)
            yield step

    def learn(self, x: Tensor, y: Tensor) -> float:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def report(self, step: int, loss: float, every: int = 2) -> None:
        shown = {"all": True, "first": self.rank == 0, "last": self.rank == self.world - 1}[self.style.ranks]
        if not shown or step % every:
            return
        steps, done, elapsed, short = self.args.steps, step + 1, time.monotonic() - self.began, round(loss, 4)
        text = self.style.progress.format(
            step=step, steps=steps, done=done, loss=loss, short=short, json=json.dumps(short), elapsed=elapsed,
            step_s=elapsed / done, ms=1000 * elapsed / done, samples=BATCH * done, epoch=round(step / steps, 2),
            percent=100 * done // steps, bar="█" * (20 * done // steps),
            clock=f"{int(elapsed) // 60:02d}:{int(elapsed) % 60:02d}",
        )  # fmt: skip
        if self.args.style == "bar":  # a progress bar ends its line with "\r"
            sys.stderr.write(f"\r{text}")
            sys.stderr.flush()
        elif self.args.style == "hf":
            print(text, flush=True)
        else:
            self.log.info("%s", text)

    def train(self, fault: Callable[[], object] | None = None, inputs: Iterable[Tensor] | None = None) -> None:
        """Train to the last step. `fault` is called on the rank at fault before the step at which it fails;
        `inputs` are batches in place of random ones."""
        for _ in self.trained(fault, inputs):
            pass

    def trained(
        self, fault: Callable[[], object] | None = None, inputs: Iterable[Tensor] | None = None
    ) -> Iterator[int]:
        """The same, and yield each step when it is done."""
        if not hasattr(self, "model"):
            self.network()
        batches = iter(inputs) if inputs is not None else None
        for step in self.steps():
            if fault and self.fails_at(step):
                fault()
            x, y = self.batch(step)
            if batches is not None:
                x = next(batches).to(self.device)
            self.report(step, self.learn(x, y))
            yield step

    def done(self) -> None:
        self.log.info("training finished")
        dist.destroy_process_group()
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)

    def dump_recorder(self) -> None:
        """Write the flight recorder's buffer: gloo does not write it by itself."""
        folder = Path("flight_recorder")
        folder.mkdir(exist_ok=True)
        (folder / f"fr_rank{self.rank}.json").write_bytes(torch._C._distributed_c10d._dump_fr_trace_json())
        (folder / f"fr_rank{self.rank}.pkl").write_bytes(torch._C._distributed_c10d._dump_fr_trace())

    def note(self, step: int) -> None:
        """Write rank and step for the runner, which kills a rank at a step."""
        if folder := os.environ.get("REPLAY_CONTROL"):
            Path(folder, str(os.getpid())).write_text(f"{self.rank} {step}")


def run(main: Callable[[Job], None], join: bool = True, **own: float | str) -> None:
    """Run `main` as one rank: under @record (which writes error.json and enables faulthandler), spawned, or plain.

    `join`: create the process group before; `own`: the job's own options and their defaults.
    """
    args = options(**own)
    if args.record:
        from torch.distributed.elastic.multiprocessing.errors import record

        record(_rank)(main, args, join)
    elif args.spawn:
        torch.multiprocessing.spawn(_spawned, args=(main, args, join), nprocs=args.spawn)
    else:
        _rank(main, args, join)


def _rank(main: Callable[[Job], None], args: argparse.Namespace, join: bool) -> None:
    job = Job(args)
    if join:
        job.join()
    main(job)
    job.done()


def _spawned(index: int, main: Callable[[Job], None], args: argparse.Namespace, join: bool) -> None:
    """A process of torch.multiprocessing.spawn: its rank is an argument, the rest is in the environment."""
    os.environ |= {"RANK": str(index), "LOCAL_RANK": str(index), "WORLD_SIZE": str(args.spawn)}
    _rank(main, args, join)
