"""A seed -> hosts with known clocks, and the events their logs would give.

    world = World.make(seed=5001, hosts=125, marks=20)
    world.events            what the parsers would hand to `align`
    world.truth["node-007"] zone, skew, drift, steps, turns of the rate; world.crash: when errors are measured

Every host has ranks that print the same step lines, late by an exponential time, now and then by up to a
minute. One more event per host is stamped exactly at the crash: the tests and the benchmark look at its
aligned time.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from claims import event
from postmortem.model import ClockKind, Event, Where

BASE = 1_795_200_000.0  # 20 November 2026, 18:40 UTC
HOUR = 3600.0
DELAY, JITTER = 0.005, 0.002


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
    collector: float = 0.0  # stamped late by up to this

    def shows(self, true: np.ndarray) -> np.ndarray:
        raw = true + self.zone + self.skew + self.drift * (true - BASE)
        for at, jump in self.steps:
            raw = raw + jump * (true >= at)
        for at, rate in self.turns:
            raw = raw + rate * np.maximum(true - at, 0.0)
        return raw


@dataclass
class Plan:
    """Sizes and noise of a world. Shares are of the hosts, or of the marks (`missing`, `outliers`)."""

    hosts: int = 125
    marks: int = 50
    hours: float = 6.0
    ranks: int = 8
    missing: float = 0.3
    outliers: float = 0.05
    stepping: float = 0.0
    bias: float = 0.0
    rank_bias: float = 0.0
    late_hosts: float = 0.0
    seconds: bool = False
    until: float = 1.0
    skewed: float = 0.5
    absolute: float = 0.5
    init: bool = False
    wander: float = 0.0


@dataclass
class World:
    events: list[Event]
    truth: dict[str, Truth]
    crash: float

    @classmethod
    def make(cls, seed: int, **chosen: Any) -> World:
        """A world by a `Plan`."""
        plan, rng = Plan(**chosen), np.random.default_rng(seed)
        crash, n = BASE + plan.hours * HOUR, plan.marks
        moments = np.sort(BASE + rng.uniform(0, plan.hours * HOUR * plan.until, n))
        truth = {}
        events: list[Event] = []
        for h in range(plan.hosts):
            host = f"node-{h:04d}"
            t = truth[host] = _truth(rng, plan, plan.absolute if h else 1.0)
            if plan.wander:  # warm and cool, every eight hours
                turns = range(8, int(plan.hours), 8)
                t.turns = [(BASE + at * HOUR, float(rng.normal(0, plan.wander))) for at in turns]
            seen = rng.random(n) >= plan.missing
            noise = rng.exponential(DELAY, n) + rng.normal(0, JITTER, n) + t.bias
            wrong = rng.random(n) < plan.outliers
            noise = np.where(wrong, rng.uniform(-60, 60, n), noise)
            noise = noise + rng.uniform(0, t.collector, n) if t.collector else noise
            for rank in range(h * plan.ranks, (h + 1) * plan.ranks):
                own = rng.normal(0, 0.001, n) + rng.normal(0, plan.rank_bias) if plan.ranks > 1 else 0.0
                raw = t.shows(moments) + noise + own
                if t.resolution >= 1:
                    raw = np.floor(raw)
                events.append(_sync(host, rank, t, np.flatnonzero(seen), raw))
                if plan.init:
                    events.append(_init(host, rank, t, BASE + rng.exponential(DELAY)))
            shown = float(t.shows(np.array([crash]))[0])
            file, rank = f"{host}/rank{h * plan.ranks}.log", h * plan.ranks
            events.append(event("crash", file, 100_000, "line", time=shown, clock=t.kind, rank=rank, host=host))
        return cls(events, truth, crash)

    def errors(self, events: list[Event]) -> tuple[dict[str, float], dict[str, float]]:
        """Error and stated sigma of each host's time of the crash, after the reference that all share."""
        found = {e.host or "": e for e in events if e.kind == "line"}
        raw = {host: (e.at if e.at is not None else float("nan")) - self.crash for host, e in found.items()}
        return raw, {host: e.at_sigma for host, e in found.items()}


def _truth(rng: np.random.Generator, plan: Plan, absolute: float) -> Truth:
    zoned = rng.random() < 0.5
    zone = float(rng.integers(-48, 49)) * 900 if zoned else 0.0
    kind: ClockKind = "absolute" if rng.random() < absolute else "naive"
    skew = rng.uniform(-120, 120) if rng.random() < plan.skewed else rng.normal(0, 0.05)
    t = Truth(kind, zone if kind == "naive" else 0.0, skew, rng.uniform(-50e-6, 50e-6))
    t.bias = float(rng.normal(0, plan.bias)) if plan.bias else 0.0
    t.resolution = 1.0 if plan.seconds else 0.001
    if rng.random() < plan.stepping:
        at = BASE + rng.uniform(0.1, 0.9) * plan.hours * HOUR
        t.steps.append((at, float(rng.choice([-1, 1]) * np.exp(rng.uniform(np.log(0.5), np.log(30))))))
    if rng.random() < plan.late_hosts:
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
    more: dict[str, Any] = {"sigma": 0.3 if t.resolution >= 1 else 0.0003, "clock": t.kind, "source_kind": "console"}
    more |= {"time": first, "rank": rank, "host": host, "fields": fields}
    return event("step 0 loss 2.3", f"{host}/rank{rank}.log", 10, "sync", **more)


def _init(host: str, rank: int, t: Truth, moment: float) -> Event:
    """The process group is ready: a line printed once, without the delay of the steps."""
    raw = t.shows(np.array([moment]))
    first = _sync(host, rank, t, np.array([0]), raw)
    zero, one = array("q", [0]), array("q", [1])
    fields = {**first.fields, "family": "once process group ready", "columns": 1, "values": zero, "lines": one}
    return first._replace(where=Where(f"{host}/rank{rank}.log", 1), fields=fields)
