"""A seed -> a folder of logs as torchrun leaves it on several hosts, whose clocks are known.

    truth = write(tmp_path / "logs", seed=11, hosts=4, scenario="oom")

Formats, zones, skews and drifts differ from host to host. One rank dies at a known true moment: by the kernel's OOM
killer, by an exception, or ("hang") it waits in silence and the others' NCCL watchdogs expire. The same seed gives the
same bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

FORMATS = ("logging", "glog", "loguru", "zoned", "seconds")
START = 1_795_200_000.0


@dataclass(frozen=True)
class Host:
    name: str
    zone: float
    skew: float
    drift: float
    form: str
    boot: float  # true time of its boot
    step: tuple[float, float] | None = None  # true time, jump
    start: float = START
    words: str = "epoch 0 step"  # before the number of a step; empty: prints none
    late: float = 0.0  # a collector stamps its ranks' lines up to this late

    def shown(self, true: float) -> float:
        jump = self.step[1] if self.step and true >= self.step[0] else 0.0
        return true + self.skew + self.drift * (true - self.start) + jump

    def local(self, true: float) -> datetime:
        return datetime.fromtimestamp(round(self.shown(true) + self.zone, 6), UTC)

    def stamp(self, true: float, form: str = "") -> str:
        true += self.late * (true * 7.919 % 1)
        t = self.local(true)
        match form or self.form:
            case "logging":
                return f"{t:%Y-%m-%d %H:%M:%S},{t.microsecond // 1000:03d} INFO train:"
            case "glog":
                return f"I{t:%m%d %H:%M:%S}.{t.microsecond:06d} 4242 train.py:31]"
            case "loguru":
                return f"{t:%Y-%m-%d %H:%M:%S}.{t.microsecond // 1000:03d} | INFO     | trainer:fit:88 -"
            case "zoned":
                at = datetime.fromtimestamp(round(self.shown(true), 6), UTC)
                return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z INFO train:"
            case "epoch":  # what `ts %.s` writes
                return f"{self.shown(true):.6f}"
            case "nanos":
                return f"[{int(self.shown(true) * 1e9)}]"
            case _:
                return f"[{t:%Y-%m-%d %H:%M:%S}] INFO -"


@dataclass(frozen=True)
class Truth:
    hosts: tuple[Host, ...]
    rank: int  # that died
    death: float  # its true time
    end: float

    @property
    def victim(self) -> Host:
        return self.hosts[self.rank // 2]


def write(
    folder: Path,
    seed: int,
    hosts: int = 3,
    steps: int = 40,
    period: float = 60.0,
    scenario: str = "oom",
    stepping: bool = False,
    start: float = START,
    change: Callable[[int, Host], Host] = lambda _, host: host,
    patience: float = 600.0,
) -> Truth:
    """Two ranks per host print every step; one dies behind the last; the others complain a moment later, or in a
    hang after `patience` seconds. `change` makes a host odd."""
    rng = random.Random(seed)
    made = tuple(change(i, _host(rng, i, steps * period, stepping, start)) for i in range(hosts))
    rank = rng.randrange(2 * hosts)
    death = start + (steps - 0.5) * period
    for i, host in enumerate(made):
        for r in (2 * i, 2 * i + 1):
            path = folder / host.name / f"rank{r}.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(
                "\n".join(_rank(rng, host, r, 2 * hosts, steps, period, rank, death, scenario, patience)) + "\n"
            )
        own = {r: death + 0.4 + (0.0 if r == rank else rng.uniform(0.5, 1.5)) for r in (2 * i, 2 * i + 1)}
        (folder / host.name / "agent.err").write_text("\n".join(_agent(host, own, rank, scenario)) + "\n")
        (folder / host.name / "dmesg.txt").write_text(
            "\n".join(_dmesg(rng, host, rank if host is made[rank // 2] else None, death, scenario)) + "\n"
        )
    return Truth(made, rank, death, death + 3)


def _host(rng: random.Random, i: int, span: float, stepping: bool, start: float) -> Host:
    zone = 0.0 if i == 0 else rng.choice([-8, -5, 0, 1, 5.5, 8, 9]) * 3600
    skew = rng.choice([0.0, rng.uniform(-100, 100)]) + rng.gauss(0, 0.02)
    step = (
        (start + rng.uniform(0.3, 0.7) * span, rng.choice([-1, 1]) * rng.uniform(2, 20))
        if stepping and i == 1
        else None
    )
    return Host(
        f"node-{i}",
        zone,
        skew,
        rng.uniform(-40e-6, 40e-6),
        "zoned" if i == 0 else rng.choice(FORMATS[:3]),
        start - rng.uniform(1e5, 1e6),
        step,
        start,
    )


def _rank(
    rng: random.Random,
    host: Host,
    rank: int,
    world: int,
    steps: int,
    period: float,
    dead: int,
    death: float,
    scenario: str,
    patience: float,
) -> list[str]:
    pid = 5000 + rank
    lines = [f"{host.stamp(host.start - 9 + rng.uniform(0, 3))} initializing process group backend=nccl"]
    lines.append(
        f"{host.stamp(host.start - 5 + rng.expovariate(200))} process group ready: rank {rank} of {world}, "
        f"pid {pid}, torch 2.13.0+cu130"
    )
    for n in range(steps if host.words else 0):
        at = host.stamp(host.start + n * period + rng.expovariate(200))
        lines.append(f"{at} {host.words} {n} loss {2.3 - n / 100 + rank / 1000:.4f}")
    lines.append(f"{host.stamp(death - 1 - rng.random())} loading shard {rank}")
    if rank == dead and scenario == "exception":
        return [
            *lines,
            *_traceback(f"[rank{rank}]: ", "fit.py", 71, "ValueError: record 77: expected 64 features, got 63"),
        ]
    if scenario == "hang":
        return [*lines, *([_watchdog(rng, host, rank, steps, death, patience)] if rank != dead else [])]
    if rank != dead:
        place = "[../third_party/gloo/gloo/transport/tcp/pair.cc:553]"
        peer = f"Connection closed by peer [10.0.0.{dead // 2}]:{20000 + dead}"
        lines += _traceback(f"[rank{rank}]: ", "train.py", 26, f"RuntimeError: {place} {peer}")
    return lines


def _watchdog(rng: random.Random, host: Host, rank: int, steps: int, death: float, patience: float) -> str:
    """A watchdog looks once a minute, so ranks give up at different times."""
    waited = int(patience * 1000) + rng.randrange(60_000)
    t = host.local(death + rng.expovariate(20) + waited / 1000)
    work = (
        f"WorkNCCL(SeqNum={steps}, OpType=ALLREDUCE, NumelIn=26214400, NumelOut=26214400, "
        f"Timeout(ms)={int(patience * 1000)})"
    )
    text = (
        f"[Rank {rank}] Watchdog caught collective operation timeout: {work} ran for {waited} milliseconds "
        f"before timing out."
    )
    return f"[rank{rank}]:[E{t:%m%d %H:%M:%S}.{t.microsecond:06d}551 ProcessGroupNCCL.cpp:629] {text}"


def _traceback(prefix: str, file: str, line: int, last: str) -> list[str]:
    head = "Traceback (most recent call last):"
    return [
        prefix + text
        for text in (head, f'  File "/opt/train/{file}", line {line}, in main', "    loss.backward()", last)
    ]


def _agent(host: Host, ends: dict[int, float], dead: int, scenario: str) -> list[str]:
    """torchrun notices each process within a second, and writes the block in whole seconds of local time."""
    code = {r: (-9 if scenario == "oom" else 1) if r == dead else 1 for r in ends}
    first = min(ends, key=lambda r: ends[r])
    t = host.local(ends[first])
    noticed = (
        f"failed (exitcode: {code[first]}) local_rank: {first % 2} (pid: {5000 + first}) of binary: /usr/bin/python3"
    )
    lines = [
        (
            f"E{t:%m%d %H:%M:%S}.{t.microsecond:06d} 4000 "
            f"torch/distributed/elastic/multiprocessing/api.py:1037] {noticed}"
        ),
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=" * 60,
        "train.py FAILED",
        "-" * 60,
        "Failures:",
    ]
    for n, r in enumerate(sorted(ends, key=lambda r: -ends[r])):
        t = host.local(ends[r])
        sign = "  (SIGKILL)" if code[r] == -9 else ""
        lines += [
            f"[{n}]:",
            f"  time      : {t:%Y-%m-%d_%H:%M:%S}",
            f"  host      : {host.name}",
            f"  rank      : {r} (local_rank: {r % 2})",
            f"  exitcode  : {code[r]} (pid: {5000 + r}){sign}",
            "  error_file: <N/A>",
            "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
        ]
    return [*lines, "=" * 60]


def _dmesg(rng: random.Random, host: Host, dead: int | None, death: float, scenario: str) -> list[str]:
    """Seconds since boot, by a clock that is never set."""

    def at(true: float) -> str:
        return f"[{true - host.boot:12.6f}]"

    lines = [
        f"{at(host.boot + 1.2)} Linux version 6.8.0-45-generic (buildd@lcy02) #45-Ubuntu SMP",
        f"{at(host.start - 50)} eth0: link becomes ready",
    ]
    if dead is not None and scenario == "oom":
        task = f"mems_allowed=0,global_oom,task_memcg=/,task=python3,pid={5000 + dead},uid=0"
        sizes = (
            f"total-vm:{rng.randrange(10**7, 10**8)}kB, anon-rss:61000000kB, file-rss:0kB, shmem-rss:0kB, "
            f"UID:0 pgtables:123kB"
        )
        lines += [
            f"{at(death)} python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
            f"{at(death + 0.0002)} oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,{task}",
            (f"{at(death + 0.0003)} Out of memory: Killed process {5000 + dead} (python3) {sizes} oom_score_adj:0"),
        ]
    return lines
