"""What the jobs of this folder share: arguments, a process group, a tiny model,
and log lines as real trainers write them.

In: the command line of a job and the environment a launcher gives it.
Out: log lines in one of `STYLES`, for example

    2026-11-21 12:40:07,113 INFO [rank1] train: epoch 0 step 5 loss 2.3050
    {'loss': 2.305, 'grad_norm': 0.4182, 'learning_rate': 0.01, 'epoch': 0.25}

The file is copied beside the job, which imports it as `trainer`; it knows nothing of the package around it.
"""

from __future__ import annotations

import argparse
import atexit
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

FEATURES, CLASSES, BATCH = 32, 10, 8

# A thread of gloo's lets go of a finished reduction, with what Python left in it, a moment after the rank
# goes on, and asks for the interpreter lock to do so. If the interpreter is on its way out by then, it ends
# that thread inside a destructor, and C++ aborts the process: `terminate called without an active exception`,
# exit -6. If DDP's model goes first, it waits for that thread, and keeps the lock.
# So a rank that is done ends at once, with the model alive, and one that fails gives up the lock for a while.
QUIET_S = 0.5


# ── log lines ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Style:
    """How a code base logs: `line` wraps any message, `step` words the progress,
    `who` prints the progress."""

    line: str
    step: Callable[[int, int, float, float], str]
    stream: str = "stderr"
    who: str = "all"  # all | first | last


def _seconds(elapsed: float) -> str:
    return f"{int(elapsed) // 60:02d}:{int(elapsed) % 60:02d}"


def _bar(step: int, steps: int, loss: float, elapsed: float) -> str:
    full = 20 * (step + 1) // steps
    return (
        f"{100 * (step + 1) // steps:3d}%|{'█' * full}{' ' * (20 - full)}| {step + 1}/{steps} "
        f"[{_seconds(elapsed)}, loss={loss:.3f}]"
    )


def _hf(step: int, steps: int, loss: float, elapsed: float) -> str:
    return str({"loss": round(loss, 4), "learning_rate": 0.01, "epoch": round(step / steps, 2)})


def _megatron(step: int, steps: int, loss: float, elapsed: float) -> str:
    return (
        f" iteration {step + 1:8d}/{steps:8d} | consumed samples: {BATCH * (step + 1):12d} | elapsed time "
        f"per iteration (ms): "
        f"{1000 * elapsed / (step + 1):.1f} | learning rate: 1.000E-02 | lm loss: {loss:.6E} | number of "
        f"nan iterations: 0 |"
    )


STYLES = {
    "bare": Style("{message}", lambda s, n, x, t: f"step {s} loss {x:.4f}", "stdout"),
    "logging": Style(
        "{asctime} {levelname} [rank{rank}] train: {message}",
        lambda s, n, x, t: f"epoch 0 step {s} loss {x:.4f}",
    ),
    "iso": Style(
        "{iso} | {levelname:<8} | rank={rank} | {message}",
        lambda s, n, x, t: f"step={s} loss={x:.5f} lr=1.0e-02",
    ),
    "imagenet": Style(
        "{message}",
        lambda s, n, x, t: f"Epoch: [0][{s:3d}/{n}]\tTime {t / (s + 1):6.3f}\tLoss {x:.4e}",
        "stdout",
    ),
    "bracket": Style(
        "[{date}] [rank {rank}/{world}] {message}",
        lambda s, n, x, t: f"batch {s}/{n} - loss: {x:.3f}",
        "stdout",
    ),
    "megatron": Style("[{date}] {message}", _megatron, "stdout", "last"),
    "hf": Style("{levelname}:train:{message}", _hf, "stdout", "first"),
    "json": Style(
        "json",
        lambda s, n, x, t: json.dumps({"step": s, "loss": round(x, 4), "elapsed_s": round(t, 2)}),
        "stdout",
    ),
    "bar": Style("{asctime} - {levelname} - train - {message}", _bar, "stderr", "first"),
}


class Lines(logging.Formatter):
    """Words a record in a style; the rank is read late, because a job may learn it late."""

    def __init__(self, style: Style) -> None:
        super().__init__()
        self.style = style

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).astimezone()
        fields = {
            "asctime": f"{at:%Y-%m-%d %H:%M:%S},{int(record.msecs):03d}",
            "iso": at.isoformat(timespec="milliseconds"),
            "date": f"{at:%Y-%m-%d %H:%M:%S}",
            "levelname": record.levelname,
            "rank": os.environ.get("RANK", "?"),
            "world": os.environ.get("WORLD_SIZE", "?"),
        }
        message = record.getMessage()
        if self.style.line == "json":
            body = message if message.startswith("{") else json.dumps({"msg": message})
            head = {
                "ts": at.isoformat(timespec="milliseconds"),
                "level": record.levelname.lower(),
                "rank": fields["rank"],
            }
            text = json.dumps(head | json.loads(body))
        else:
            text = self.style.line.format(message=message, **fields)
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


# ── a job ───────────────────────────────────────────────────────────────────────────────────────────────────


def arguments(**extra: float | str) -> argparse.Namespace:
    """Every job takes these; `extra` are the job's own, with their defaults, which also give their types.

    They come from the command line or, so that a process table does not tell the plot,
    from a JSON file named by --config.
    """
    common: dict[str, float | str] = {
        "backend": "gloo",
        "device": "",  # cpu or cuda; empty: what the backend asks for
        "share": 1,  # with nccl: ranks may share a GPU
        "steps": 24,
        "rank": 1,
        "step": 8,
        "timeout": 8.0,
        "pause": 0.05,
        "style": "logging",
    }
    defaults: dict[str, float | str] = {**common, **extra}
    parser = argparse.ArgumentParser()
    for name, value in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    _launch_options(parser)
    parser.add_argument("--config", default="")
    if path := parser.parse_args().config:
        parser.set_defaults(**json.loads(Path(path).read_text()))
    return parser.parse_args()


class Job:
    """One rank of a job: who it is, how it logs, what it trains."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.style = STYLES[args.style]
        self.began = time.monotonic()
        handler = logging.StreamHandler(sys.stdout if self.style.stream == "stdout" else sys.stderr)
        handler.setFormatter(Lines(self.style))
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        self.log = logging.getLogger("train")
        atexit.register(time.sleep, QUIET_S)
        self.note(-1)

    @property
    def rank(self) -> int:
        return int(os.environ["RANK"])

    @property
    def world(self) -> int:
        return int(os.environ["WORLD_SIZE"])

    @property
    def faulty(self) -> bool:
        """Is this the rank at fault?"""
        return bool(self.rank == self.args.rank)

    @property
    def device(self) -> torch.device:
        """Where this rank computes: its own GPU where there is one for each rank, else the first."""
        kind = self.args.device or ("cuda" if self.args.backend == "nccl" else "cpu")
        if kind == "cpu":
            return torch.device("cpu")
        local = int(os.environ.get("LOCAL_RANK", "0"))
        return torch.device("cuda", local % max(1, torch.cuda.device_count()))

    def place(self) -> None:
        """Put what is made from here on where this rank computes.

        NCCL refuses two ranks of one host on one GPU. Where the job has fewer GPUs than ranks, each rank says
        that it is a host of its own; NCCL then talks over loopback sockets, and all else is as it is on as
        many hosts.
        """
        # without a GPU the process group itself says so
        if self.device.type != "cuda" or not torch.cuda.device_count():
            return
        if self.args.backend == "nccl" and self.world > torch.cuda.device_count() and self.args.share:
            os.environ |= {"NCCL_HOSTID": f"replay-host-{self.rank}", "NCCL_SOCKET_IFNAME": "lo"}
        torch.cuda.set_device(self.device)
        torch.set_default_device(self.device)

    def join(self) -> None:
        """Form the process group, as every trainer does, with a time-out a test can wait for."""
        # DDP would import it in a formed group:
        # a second of work, or ten on a busy machine, while the time-out runs
        import torch._dynamo

        self.log.info("initializing process group backend=%s", self.args.backend)
        self.place()
        dist.init_process_group(self.args.backend, timeout=timedelta(seconds=self.args.timeout))
        self.log.info(
            "process group ready: rank %d of %d, pid %d, torch %s",
            self.rank,
            self.world,
            os.getpid(),
            torch.__version__,
        )

    def network(self, hidden: int = 64, **ddp: bool) -> nn.Module:
        return self.distribute(self.layers(hidden), **ddp)

    def layers(self, hidden: int = 64) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))

    def distribute(self, model: nn.Module, **ddp: bool) -> nn.Module:
        self.model = DistributedDataParallel(model, **ddp)
        return self.model

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator("cpu").manual_seed(1000 * step + self.rank)
        x = torch.randn(BATCH, FEATURES, generator=generator, device="cpu")
        return x.to(self.device), torch.randint(CLASSES, (BATCH,), generator=generator, device="cpu").to(self.device)

    def steps(self) -> Iterator[int]:
        for step in range(self.args.steps):
            self.note(step)
            time.sleep(self.args.pause)
            yield step

    def learn(self, model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    def report(self, step: int, loss: float, every: int = 2) -> None:
        speaks = {"all": True, "first": self.rank == 0, "last": self.rank == self.world - 1}[self.style.who]
        if not speaks or step % every:
            return
        text = self.style.step(step, self.args.steps, loss, time.monotonic() - self.began)
        if self.args.style == "bar":  # a progress bar redraws its line: "\r", no newline until the end
            sys.stderr.write(f"\r{text}")
            sys.stderr.flush()
        elif self.args.style == "hf":
            print(text, flush=True)
        else:
            self.log.info("%s", text)

    def train(self) -> None:
        """A healthy training run from here to its end."""
        model = self.network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in self.steps():
            self.report(step, self.learn(model, optimizer, *self.batch(step)))

    def done(self) -> None:
        self.log.info("training finished")
        dist.destroy_process_group()
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)

    def dump_recorder(self) -> None:
        """gloo does not dump its flight recorder by itself; a job that wants the file writes it."""
        folder = Path("flight_recorder")
        folder.mkdir(exist_ok=True)
        (folder / f"fr_rank{self.rank}.json").write_bytes(torch._C._distributed_c10d._dump_fr_trace_json())
        (folder / f"fr_rank{self.rank}.pkl").write_bytes(torch._C._distributed_c10d._dump_fr_trace())

    def note(self, step: int) -> None:
        """Tell the runner outside, which may be asked to kill this rank at a step, who and where we are."""
        if folder := os.environ.get("REPLAY_CONTROL"):
            Path(folder, str(os.getpid())).write_text(f"{os.environ.get('RANK', '-1')} {step}")


def begin(**extra: float | str) -> Job:
    """Arguments, logging and process group in one: how most jobs start."""
    job = Job(arguments(**extra))
    job.join()
    return job


def child(index: int, main: Callable[[], None], world: int) -> None:
    """One process of torch.multiprocessing.spawn:
    it gets its rank as an argument, the rest from the environment."""
    os.environ |= {"RANK": str(index), "LOCAL_RANK": str(index), "WORLD_SIZE": str(world)}
    main()


def _launch_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--record", action="store_true", help="wrap main() in torch.distributed.elastic's @record")
    parser.add_argument("--spawn", type=int, default=0, help="start so many ranks with torch.multiprocessing.spawn")


def arguments_of_launch() -> argparse.Namespace:
    """The two options that count before a job has read its own."""
    parser = argparse.ArgumentParser(add_help=False)
    _launch_options(parser)
    return parser.parse_known_args()[0]


def call(main: Callable[[], None]) -> None:
    """Run `main` as the job asks for: under @record (which writes error.json and turns faulthandler on),
    spawned, or bare."""
    args = arguments_of_launch()
    if args.record:
        from torch.distributed.elastic.multiprocessing.errors import record

        record(main)()
    elif args.spawn:
        torch.multiprocessing.spawn(child, args=(main, args.spawn), nprocs=args.spawn)
    else:
        main()
