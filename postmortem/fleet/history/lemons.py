"""Hosts, GPUs, racks and switches that are at fault more often than chance explains.

    host  gpu-017: at fault in 6 of 9 jobs, expected 0.4 (q < 0.001); 14 to 61 times the usual rate

Each unit has failures against an exposure: the hours of its jobs, or their number where hours are unknown. The
rates of healthy units differ too: they are drawn from a Gamma distribution fitted to the fleet (empirical Bayes),
so failures are negative binomial. Its tail is the p-value of a unit. Benjamini and Hochberg's step makes q-values
of them: at most that share of the accused units is accused wrongly.

A job counts if its verdict is about hardware, is more than a hypothesis, and names the host; once per job and
cause, so that a requeue loop is one failure.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from postmortem.errors import UsageError
from postmortem.report.text import line

HARDWARE = ("gpu-hardware", "gpu-fault", "native-crash", "network", "peer-lost")
FEWEST = 3  # failures needed for an accusation
TIMED = 0.9  # share of jobs with known hours from which hours are the exposure
SPREADS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
USUAL_SPREAD = 0.25  # prior of the spread: rates differ by half
RATES = 40
MOST_GPUS = 64
Z95 = 1.6448536  # quantile 0.95 of the normal distribution
SHOWN = 20

Rows = Sequence[Mapping[str, Any]]


@dataclass
class Unit:
    """A host, a GPU, a rack, …: its failures and its exposure."""

    kind: str
    name: str
    blamed: set[str] = field(default_factory=set)
    exposure: float = 0.0
    jobs: int = 0

    def absorb(self, other: Unit) -> None:
        self.blamed |= other.blamed
        self.exposure += other.exposure
        self.jobs += other.jobs


@dataclass
class Fleet:
    """Hosts and GPUs by name, and the places of hosts."""

    hours: bool  # unit of the exposure; else jobs
    hosts: dict[str, Unit]
    gpus: dict[str, Unit]
    places: Mapping[str, Mapping[str, str]]  # host -> {"rack": "r7", …}


@dataclass(frozen=True)
class Judged:
    """A unit and the result of its test."""

    kind: str
    name: str
    faults: int
    jobs: int
    exposure: float
    hours: bool
    expected: float
    times: float  # multiple of the healthy hosts' rate, shrunk towards the fleet's where data are few
    low: float
    high: float  # 90 % interval of `times`
    p: float
    q: float
    lemon: bool


def mapping(text: str) -> dict[str, dict[str, str]]:
    """Parse a CSV table with a column `host`, and others such as `rack` and `switch`."""
    try:
        rows = list(csv.DictReader(text.splitlines()))
    except csv.Error as error:
        raise UsageError(f"the map of the hosts is not CSV: {error}", "begin it with the line host,rack") from None
    if not rows or "host" not in rows[0] or len(rows[0]) < 2:
        raise UsageError("the map of the hosts has no column host, or no other", "begin it with the line host,rack")
    return {
        row["host"]: {k: v for k, v in row.items() if k and k != "host" and isinstance(v, str) and v}
        for row in rows
        if row["host"]
    }


def fleet(
    rows: Rows,
    involved: Iterable[Mapping[str, Any]],
    places: Mapping[str, Mapping[str, str]],
    categories: Sequence[str] = HARDWARE,
) -> Fleet:
    """Count failures and exposure in rows of the store. Only `categories` count against a host."""
    known = {row["uid"]: row for row in rows}
    hours = [row["hours"] for row in rows if row["hours"]]
    usual = median(hours) if hours else 1.0
    found = Fleet(bool(rows) and len(hours) >= TIMED * len(rows), {}, {}, places)
    hosts_of: Counter[str] = Counter()
    for each in involved:
        row = known.get(each["uid"])
        if row is None:
            continue
        units = found.hosts if each["kind"] == "host" else found.gpus
        unit = units.setdefault(each["name"], Unit(each["kind"], each["name"]))
        if each["fault"] and _counts(row, categories):
            unit.blamed.add(f"{row['job']}/{row['cause']}" if row["job"] else str(row["uid"]))
        if each["kind"] == "host":
            unit.jobs += 1
            unit.exposure += (row["hours"] or usual) if found.hours else 1.0
            hosts_of[row["uid"]] += 1
    if found.gpus:
        ranks = [known[uid]["world_size"] / n for uid, n in hosts_of.items() if known[uid]["world_size"]]
        _expose_gpus(found, min(max(round(median(ranks)), 1), MOST_GPUS) if ranks else 1)
    return found


def _counts(row: Mapping[str, Any], categories: Sequence[str]) -> bool:
    failed = row["outcome"] in ("incident", "recovered") and row["confidence"] != "hypothesis"
    return failed and ("all" in categories or row["category"] in categories)


def _expose_gpus(found: Fleet, each: int) -> None:
    """Give GPUs the exposure of their host, and add those that no verdict names: `each` of a host in all."""
    named: Counter[str] = Counter()
    for gpu in list(found.gpus.values()):
        host = found.hosts.get(gpu.name.rpartition("/")[0])
        if host is None:
            del found.gpus[gpu.name]
            continue
        named[host.name] += 1
        gpu.exposure, gpu.jobs = host.exposure, host.jobs
    for host in found.hosts.values():
        for number in range(each - named[host.name]):
            name = f"{host.name}/\0{number}"
            found.gpus[name] = Unit("gpu", name, set(), host.exposure, host.jobs)


def judge(found: Fleet, rate: float = 0.05) -> list[Judged]:
    """Return every unit with a failure, the most suspicious first; hosts, then GPUs, then places."""
    hosts = _judged(list(found.hosts.values()), rate, found.hours)
    judged = hosts + _judged(list(found.gpus.values()), rate, found.hours)
    for units in _places(found, {each.name for each in hosts if each.lemon}):
        judged += _judged(units, rate, found.hours)
    return [each for each in judged if each.faults]


def _places(found: Fleet, accused: set[str]) -> Iterator[list[Unit]]:
    """Yield racks, then switches, …, without their accused hosts: a rack is judged by the rest."""
    for kind in dict.fromkeys(kind for own in found.places.values() for kind in own):
        units: dict[str, Unit] = {}
        for host in found.hosts.values():
            name = found.places.get(host.name, {}).get(kind)
            if name is not None and host.name not in accused:
                units.setdefault(name, Unit(kind, name)).absorb(host)
        yield list(units.values())


def _judged(units: Sequence[Unit], rate: float, hours: bool) -> list[Judged]:
    units = [u for u in units if u.exposure > 0]
    if not any(u.blamed for u in units):
        return []
    usual, spread = _fitted([len(u.blamed) for u in units], [u.exposure for u in units])
    expected = [usual * u.exposure for u in units]
    p = [_tail(len(u.blamed), mean, spread) for u, mean in zip(units, expected, strict=True)]
    shape, scale = _prior(units, expected)
    found = []
    for u, mean, p_value, q in zip(units, expected, p, adjusted(p), strict=True):
        n = len(u.blamed)
        a, b = shape + n, scale + mean
        found.append(Judged(
            u.kind, u.name, n, u.jobs, round(u.exposure, 3), hours, round(mean, 4), round(a / b, 2),
            round(gamma_quantile(a, -Z95) / b, 2), round(gamma_quantile(a, Z95) / b, 2), p_value, q,
            q < rate and n >= FEWEST,
        ))  # fmt: skip
    return sorted(found, key=lambda each: (each.p, -each.faults, each.name))


def _fitted(faults: Sequence[int], exposure: Sequence[float]) -> tuple[float, float]:
    """Return the most likely failures per exposure of healthy units, and the spread (1 / shape) of their rates. Units
    count up to a bound, so that lemons neither raise the rate nor widen the spread that would hide them."""
    import numpy as np

    n, e = np.array(faults), np.array(exposure)
    mean = n.sum() / e.sum()
    bound = np.floor(mean * e + 2 * np.sqrt(mean * e) + 1).astype(int)
    n, e, bound = n[n <= bound], e[n <= bound], bound[n <= bound]
    least = 0.5 / e.sum()  # half a failure: in a fleet without other failures not every unit is suspicious
    best, found = -math.inf, (float(mean), SPREADS[0])
    for spread in SPREADS:
        prior = math.log(spread) - spread / USUAL_SPREAD
        for rate in np.geomspace(least, max(2 * mean, 2 * least), RATES):
            log = np.log1p(spread * rate * e)
            term = -log / spread
            sure, total = np.where(n == 0, term, 0.0), np.exp(term)
            for k in range(int(bound.max())):
                term = term + np.log(rate * e * (1 + spread * k) / (k + 1)) - log
                sure = np.where(n == k + 1, term, sure)
                total += np.where(k < bound, np.exp(term), 0.0)
            likely = float((sure - np.log(total)).sum()) + prior
            if likely > best:
                best, found = likely, (float(rate), spread)
    return found


def _prior(units: Sequence[Unit], expected: Sequence[float]) -> tuple[float, float]:
    """Return shape and rate of the Gamma distribution of all units, lemons included, by moments and in multiples of
    the usual rate: the target of the shrinkage."""
    mean = sum(len(u.blamed) for u in units) / sum(expected)
    excess = sum((len(u.blamed) - mean * e) ** 2 - mean * e for u, e in zip(units, expected, strict=True))
    spread = max(excess / sum((mean * e) ** 2 for e in expected), USUAL_SPREAD)
    return 1 / spread, 1 / spread / mean


def _tail(n: int, mean: float, spread: float) -> float:
    """Return the probability of `n` or more failures: the tail of the negative binomial distribution."""
    total, log = 0.0, -math.log1p(spread * mean) / spread
    for k in range(n):
        total += math.exp(log)
        log += math.log(mean * (1 + spread * k) / (k + 1)) - math.log1p(spread * mean)
    first = math.exp(log) if log > -700 else 0.0  # of the tail, where 1 minus the rest has no digits left
    return min(max(1.0 - total, first), 1.0)


def adjusted(p: Sequence[float]) -> list[float]:
    """Return q-values (Benjamini and Hochberg): the smallest false-discovery rate at which each is accused."""
    order = sorted(range(len(p)), key=lambda i: p[i], reverse=True)
    q, best = [1.0] * len(p), 1.0
    for rank, i in zip(range(len(p), 0, -1), order, strict=True):
        best = min(best, p[i] * len(p) / rank)
        q[i] = best
    return q


def gamma_quantile(shape: float, z: float) -> float:
    """Return a quantile of the Gamma distribution of scale 1 (Wilson and Hilferty), accurate to a few percent."""
    return shape * max(1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape)), 0.0) ** 3


def sentence(each: Judged) -> str:
    """Return `gpu-017: at fault in 6 of 9 jobs, expected 0.4 (q < 0.001)`, and the conclusion."""
    times = f"{each.faults} times in {each.exposure:,.0f} h" if each.hours else f"in {each.faults} of {each.jobs} jobs"
    start = f"{line(each.name, 80)}: at fault {times}, expected {_figure(each.expected)} ({_q(each.q)})"
    if each.lemon:
        return f"{start}; {_figure(each.low)} to {_figure(each.high)} times the usual rate"
    return f"{start}; {'too few to accuse it' if each.faults < FEWEST else 'chance explains that'}"


def table(judged: Sequence[Judged], rate: float) -> list[str]:
    """Return lines of the accused units, and of the others at fault."""
    if not judged:
        return ["no host is at fault in any incident that counts"]
    lemons = [f"  {each.kind:<7} {sentence(each)}" for each in judged if each.lemon]
    by_chance = sorted((each for each in judged if not each.lemon), key=lambda each: (each.p, each.name))
    others = [f"  {each.kind:<7} {sentence(each)}" for each in by_chance]
    head = f"at fault more often than chance explains (at most {rate:.0%} of these wrongly):"
    lines = [head, *lemons] if lemons else ["no unit is at fault more often than chance explains"]
    if others:
        lines += ["also at fault:", *others[:SHOWN]]
    if len(others) > SHOWN:
        lines.append(f"  and {len(others) - SHOWN} more; --json has all")
    return lines


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.1 else f"{value:.2g}"


def _q(value: float) -> str:
    return "q < 0.001" if value < 0.001 else f"q = {value:.{3 if value < 0.1 else 2}f}"
