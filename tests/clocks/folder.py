"""A seed -> a folder of logs as torchrun leaves it on several hosts with known clocks.

    truth = write(tmp_path / "logs", seed=11, hosts=4, scenario="oom")

Formats, zones, skews and drifts differ from host to host. One rank dies at a known true moment: of the kernel's OOM
killer, in seconds since boot, of an exception, or ("hang") it waits in silence and the others' NCCL
watchdogs time out. The truth is returned, never written into the folder; the same seed gives the same bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FORMATS = ("logging", "glog", "loguru", "zoned", "seconds")
START = 1_795_200_000.0
TRACEBACK = "Traceback (most recent call last):"


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


@dataclass
class Job:
    """The scenario, its seed of chance, and the rank that dies."""

    rng: random.Random
    hosts: int = 3
    steps: int = 40
    period: float = 60.0
    scenario: str = "oom"
    stepping: bool = False
    start: float = START
    patience: float = 600.0
    dead: int = 0

    @property
    def death(self) -> float:
        return self.start + (self.steps - 0.5) * self.period


def write(folder: Path, seed: int, change: Callable[[int, Host], Host] = lambda _, host: host, **chosen: Any) -> Truth:
    """Two ranks per host print every step; one dies behind the last; the others complain a moment later, or in a
    hang after `patience` seconds. `change` makes a host odd."""
    job = Job(random.Random(seed), **chosen)
    made = tuple(change(i, _host(job, i)) for i in range(job.hosts))
    job.dead = job.rng.randrange(2 * job.hosts)
    for i, host in enumerate(made):
        place, own = folder / host.name, (2 * i, 2 * i + 1)
        place.mkdir(parents=True, exist_ok=True)
        for rank in own:
            _write(place / f"rank{rank}.log", _rank(job, host, rank))
        ends = {r: job.death + 0.4 + (0.0 if r == job.dead else job.rng.uniform(0.5, 1.5)) for r in own}
        _write(place / "agent.err", _agent(job, host, ends))
        _write(place / "dmesg.txt", _dmesg(job, host, job.dead in own))
    return Truth(made, job.dead, job.death, job.death + 3)


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n")


def _host(job: Job, i: int) -> Host:
    rng, start = job.rng, job.start
    zone = 0.0 if i == 0 else rng.choice([-8, -5, 0, 1, 5.5, 8, 9]) * 3600
    skew = rng.choice([0.0, rng.uniform(-100, 100)]) + rng.gauss(0, 0.02)
    step = None
    if job.stepping and i == 1:
        at = start + rng.uniform(0.3, 0.7) * job.steps * job.period
        step = (at, rng.choice([-1, 1]) * rng.uniform(2, 20))
    drift, form = rng.uniform(-40e-6, 40e-6), "zoned" if i == 0 else rng.choice(FORMATS[:3])
    return Host(f"node-{i}", zone, skew, drift, form, start - rng.uniform(1e5, 1e6), step, start)


def _rank(job: Job, host: Host, rank: int) -> list[str]:
    rng, dead = job.rng, rank == job.dead
    lines = [f"{host.stamp(host.start - 9 + rng.uniform(0, 3))} initializing process group backend=nccl"]
    ready = f"process group ready: rank {rank} of {2 * job.hosts}, pid {5000 + rank}, torch 2.13.0+cu130"
    lines.append(f"{host.stamp(host.start - 5 + rng.expovariate(200))} {ready}")
    for n in range(job.steps if host.words else 0):
        at = host.stamp(host.start + n * job.period + rng.expovariate(200))
        lines.append(f"{at} {host.words} {n} loss {2.3 - n / 100 + rank / 1000:.4f}")
    lines.append(f"{host.stamp(job.death - 1 - rng.random())} loading shard {rank}")
    if job.scenario == "hang":
        return lines if dead else [*lines, _watchdog(job, host, rank)]
    if dead:
        failure = ("fit.py", 71, "ValueError: record 77: expected 64 features, got 63")
        return lines + _traceback(rank, *failure) if job.scenario == "exception" else lines
    place = "[../third_party/gloo/gloo/transport/tcp/pair.cc:553]"
    peer = f"Connection closed by peer [10.0.0.{job.dead // 2}]:{20000 + job.dead}"
    return lines + _traceback(rank, "train.py", 26, f"RuntimeError: {place} {peer}")


def _watchdog(job: Job, host: Host, rank: int) -> str:
    """It looks once a minute, so ranks give up at different times; how long each had waited shows when that began."""
    timeout = int(job.patience * 1000)
    waited = timeout + job.rng.randrange(60_000)
    t = host.local(job.death + job.rng.expovariate(20) + waited / 1000)
    sizes = "NumelIn=26214400, NumelOut=26214400"
    work = f"WorkNCCL(SeqNum={job.steps}, OpType=ALLREDUCE, {sizes}, Timeout(ms)={timeout})"
    ran = f"{work} ran for {waited} milliseconds before timing out."
    head = f"[rank{rank}]:[E{t:%m%d %H:%M:%S}.{t.microsecond:06d}551 ProcessGroupNCCL.cpp:629]"
    return f"{head} [Rank {rank}] Watchdog caught collective operation timeout: {ran}"


def _traceback(rank: int, file: str, line: int, last: str) -> list[str]:
    frame = f'  File "/opt/train/{file}", line {line}, in main'
    return [f"[rank{rank}]: {text}" for text in (TRACEBACK, frame, "    loss.backward()", last)]


def _agent(job: Job, host: Host, ends: dict[int, float]) -> list[str]:
    """torchrun notices each process within a second, and writes the block in whole seconds of local time."""
    code = {r: -9 if job.scenario == "oom" and r == job.dead else 1 for r in ends}
    first = min(ends, key=lambda r: ends[r])
    t = host.local(ends[first])
    head = f"E{t:%m%d %H:%M:%S}.{t.microsecond:06d} 4000 torch/distributed/elastic/multiprocessing/api.py:1037]"
    who = f"local_rank: {first % 2} (pid: {5000 + first}) of binary: /usr/bin/python3"
    lines = [f"{head} failed (exitcode: {code[first]}) {who}"]
    lines += ["torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "=" * 60, "train.py FAILED"]
    lines += ["-" * 60, "Failures:"]
    for n, r in enumerate(sorted(ends, key=lambda r: -ends[r])):
        sign = "  (SIGKILL)" if code[r] == -9 else ""
        lines += [
            f"[{n}]:",
            f"  time      : {host.local(ends[r]):%Y-%m-%d_%H:%M:%S}",
            f"  host      : {host.name}",
            f"  rank      : {r} (local_rank: {r % 2})",
            f"  exitcode  : {code[r]} (pid: {5000 + r}){sign}",
            "  error_file: <N/A>",
            "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
        ]
    return [*lines, "=" * 60]


def _dmesg(job: Job, host: Host, died_here: bool) -> list[str]:
    """Seconds since boot, by a clock that is never set."""
    pid, true = 5000 + job.dead, job.death
    lines = [(host.boot + 1.2, "Linux version 6.8.0-45-generic (buildd@lcy02) #45-Ubuntu SMP")]
    lines += [(host.start - 50, "eth0: link becomes ready")]
    if died_here and job.scenario == "oom":
        task = f"mems_allowed=0,global_oom,task_memcg=/,task=python3,pid={pid},uid=0"
        sizes = f"total-vm:{job.rng.randrange(10**7, 10**8)}kB, anon-rss:61000000kB, file-rss:0kB, shmem-rss:0kB"
        killed = f"Killed process {pid} (python3) {sizes}, UID:0 pgtables:123kB oom_score_adj:0"
        lines += [
            (true, "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"),
            (true + 0.0002, f"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,{task}"),
            (true + 0.0003, f"Out of memory: {killed}"),
        ]
    return [f"[{at - host.boot:12.6f}] {text}" for at, text in lines]
