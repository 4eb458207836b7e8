"""A seed -> hosts with known clocks, and the events their logs would give.

    world = World.make(seed=5001, hosts=125, marks=20)
    world.events            what the parsers would hand to `align`
    world.truth["node-007"] zone, skew, drift, steps, turns of the rate; world.crash: when errors are measured

Every host has ranks that print the same step lines, late by an exponential time, now and then by up to a minute. One
more event per host is stamped exactly at the crash, for the tests and the benchmark.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np

from postmortem.model import ClockKind, Event, Where

BASE = 1_795_200_000.0  # 20 November 2026, 18:40 UTC
HOUR = 3600.0


@dataclass
class Truth:
    """A host's clock: what it shows is `true + zone + skew + drift * (true - BASE)` plus the steps before."""

    kind: ClockKind = "naive"
    zone: float = 0.0
    skew: float = 0.0
    drift: float = 0.0
    steps: list[tuple[float, float]] = field(default_factory=list)  # true time, jump
    turns: list[tuple[float, float]] = field(default_factory=list)  # true time, change of the rate
    bias: float = 0.0
    resolution: float = 0.001
    outliers: float = 0.05
    collector: float = 0.0  # stamped late by up to this

    def shows(self, true: np.ndarray) -> np.ndarray:
        raw = true + self.zone + self.skew + self.drift * (true - BASE)
        for at, jump in self.steps:
            raw = raw + jump * (true >= at)
        for at, rate in self.turns:
            raw = raw + rate * np.maximum(true - at, 0.0)
        return raw

    def total(self, true: float) -> float:
        """Skew at a moment, without the zone."""
        return float(self.shows(np.array([true]))[0] - true - self.zone)


@dataclass
class World:
    events: list[Event]
    truth: dict[str, Truth]
    crash: float

    @classmethod
    def make(
        cls,
        seed: int,
        hosts: int = 125,
        marks: int = 50,
        hours: float = 6.0,
        ranks: int = 8,
        missing: float = 0.3,
        outliers: float = 0.05,
        delay: float = 0.005,
        jitter: float = 0.002,
        stepping: float = 0.0,
        bias: float = 0.0,
        rank_bias: float = 0.0,
        late_hosts: float = 0.0,
        seconds: bool = False,
        until: float = 1.0,
        skewed: float = 0.5,
        absolute: float = 0.5,
        init: bool = False,
        wander: float = 0.0,
    ) -> World:
        rng = np.random.default_rng(seed)
        crash = BASE + hours * HOUR
        moments = np.sort(BASE + rng.uniform(0, hours * HOUR * until, marks))
        truth = {}
        events: list[Event] = []
        for h in range(hosts):
            host = f"node-{h:04d}"
            t = _truth(rng, hours, stepping, bias, late_hosts, seconds, skewed, absolute if h else 1.0, outliers)
            truth[host] = t
            if wander:  # warm and cool, every eight hours
                t.turns = [(BASE + at * HOUR, float(rng.normal(0, wander))) for at in range(8, int(hours), 8)]
            seen = rng.random(marks) >= missing
            noise = rng.exponential(delay, marks) + rng.normal(0, jitter, marks) + t.bias
            wrong = rng.random(marks) < t.outliers
            noise = np.where(wrong, rng.uniform(-60, 60, marks), noise)
            noise = noise + rng.uniform(0, t.collector, marks) if t.collector else noise
            for r in range(ranks):
                own = rng.normal(0, 0.001, marks) + rng.normal(0, rank_bias) if ranks > 1 else 0.0
                raw = t.shows(moments) + noise + own
                if t.resolution >= 1:
                    raw = np.floor(raw)
                events.append(_sync(host, h * ranks + r, t, np.flatnonzero(seen), raw))
                if init:
                    events.append(_init(host, h * ranks + r, t, BASE + rng.exponential(delay)))
            events.append(_line(host, h * ranks, t, crash))
        return cls(events, truth, crash)

    def errors(self, events: list[Event]) -> tuple[dict[str, float], dict[str, float]]:
        """Error and stated sigma of each host's time of the crash, after the reference that all share."""
        found = {e.host or "": e for e in events if e.kind == "line"}
        raw = {host: (e.at if e.at is not None else float("nan")) - self.crash for host, e in found.items()}
        return raw, {host: e.at_sigma for host, e in found.items()}


def _truth(
    rng: np.random.Generator,
    hours: float,
    stepping: float,
    bias: float,
    late_hosts: float,
    seconds: bool,
    skewed: float,
    absolute: float,
    outliers: float,
) -> Truth:
    zoned = rng.random() < 0.5
    zone = float(rng.integers(-48, 49)) * 900 if zoned else 0.0
    kind: ClockKind = "absolute" if rng.random() < absolute else "naive"
    skew = rng.uniform(-120, 120) if rng.random() < skewed else rng.normal(0, 0.05)
    t = Truth(kind, zone if kind == "naive" else 0.0, skew, rng.uniform(-50e-6, 50e-6), outliers=outliers)
    t.bias = float(rng.normal(0, bias)) if bias else 0.0
    t.resolution = 1.0 if seconds else 0.001
    if rng.random() < stepping:
        at = BASE + rng.uniform(0.1, 0.9) * hours * HOUR
        t.steps.append((at, float(rng.choice([-1, 1]) * np.exp(rng.uniform(np.log(0.5), np.log(30))))))
    if rng.random() < late_hosts:
        t.collector = 60.0
    return t


def _sync(host: str, rank: int, t: Truth, seen: np.ndarray, raw: np.ndarray) -> Event:
    values = np.column_stack([np.zeros(len(seen), dtype=np.int64), seen * 10]).ravel()
    fields = {
        "family": "step # loss ~",
        "columns": 2,
        "values": array("q", values.tolist()),
        "times": array("d", raw[seen].tolist()),
        "lines": array("q", (seen + 10).tolist()),
    }
    first = float(raw[seen][0]) if len(seen) else None
    return Event(
        kind="sync",
        where=Where(f"{host}/rank{rank}.log", 10),
        text="step 0 loss 2.3",
        time=first,
        clock=t.kind,
        sigma=0.3 if t.resolution >= 1 else 0.0003,
        rank=rank,
        host=host,
        fields=fields,
        source_kind="console",
    )


def _init(host: str, rank: int, t: Truth, moment: float) -> Event:
    """The process group is ready: a line that is printed once, and is not late with the steps."""
    raw = t.shows(np.array([moment]))
    first = _sync(host, rank, t, np.array([0]), raw)
    fields = {
        **first.fields,
        "family": "once process group ready",
        "columns": 1,
        "values": array("q", [0]),
        "lines": array("q", [1]),
    }
    return first._replace(where=Where(f"{host}/rank{rank}.log", 1), fields=fields)


def _line(host: str, rank: int, t: Truth, crash: float) -> Event:
    shown = float(t.shows(np.array([crash]))[0])
    return Event(
        "line",
        Where(f"{host}/rank{rank}.log", 100_000),
        "crash",
        time=shown,
        clock=t.kind,
        sigma=0.0,
        rank=rank,
        host=host,
    )
