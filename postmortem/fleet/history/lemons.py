"""Hosts, GPUs, racks and switches that are at fault more often than chance explains.

    host  gpu-017: at fault in 6 of 9 jobs, expected 0.4 (q < 0.001); 14 to 61 times the usual rate

Each unit has failures against an exposure: the hours that its jobs ran, or the number of its jobs where
hours are not known. Healthy units differ, too: their rates are drawn from a Gamma distribution, which is
fitted to the fleet (empirical Bayes), so failures are negative binomial. Its tail is the p-value of a unit;
Benjamini and Hochberg's step makes q-values of them: of the units that are accused, at most that share is
accused wrongly.

What counts is a job whose verdict is about hardware, is more than a guess, and names the host; once for a
job and a cause, so that a requeue loop is one failure. Pure: no store, no clock.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from postmortem.errors import UsageError
from postmortem.report.text import line

HARDWARE = ("gpu-hardware", "gpu-fault", "native-crash", "network", "peer-lost")
FEWEST = 3  # failures below which nobody is accused
TIMED = 0.9  # share of jobs with known hours from which hours are the exposure
SPREADS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
USUAL_SPREAD = 0.25  # what is believed of the spread before anything is seen: rates differ by half
RATES = 40
MOST_GPUS = 64


@dataclass
class Unit:
    """A host, a GPU, a rack, …: which failures it is blamed for, and what it went through."""

    kind: str
    name: str
    blamed: set[str] = field(default_factory=set)
    exposure: float = 0.0
    jobs: int = 0


@dataclass
class Fleet:
    """What is counted: hosts and GPUs by name, and where hosts stand."""

    hours: bool  # whether exposure is in hours
    hosts: dict[str, Unit]
    gpus: dict[str, Unit]
    places: Mapping[str, Mapping[str, str]]  # host -> {"rack": "r7", …}


@dataclass(frozen=True, slots=True)
class Judged:
    """One unit and what chance says."""

    kind: str
    name: str
    faults: int
    jobs: int
    exposure: float
    hours: bool
    expected: float
    times: float  # the healthy hosts' rate, shrunk towards the fleet's where data are few
    low: float
    high: float  # 90 % of what is believed of `times`
    p: float
    q: float
    lemon: bool

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def mapping(text: str) -> dict[str, dict[str, str]]:
    """`host,rack,switch` and a line for each host, as CSV."""
    try:
        rows = list(csv.DictReader(text.splitlines()))
    except csv.Error as error:
        raise UsageError(f"the map of the hosts is no CSV: {error}", "begin it with the line host,rack") from None
    if not rows or "host" not in rows[0] or len(rows[0]) < 2:
        raise UsageError("the map of the hosts has no column host, or no other", "begin it with the line host,rack")
    return {
        row["host"]: {k: v for k, v in row.items() if k and k != "host" and isinstance(v, str) and v}
        for row in rows
        if row["host"]
    }


# ── counting ────────────────────────────────────────────────────────────────────────────────────────────────


def fleet(
    rows: Sequence[Mapping[str, Any]],
    involved: Iterable[Mapping[str, Any]],
    places: Mapping[str, Mapping[str, str]],
    categories: Sequence[str] = HARDWARE,
) -> Fleet:
    """What the rows of the store tell; `categories` is what counts against a host."""
    known = {row["uid"]: row for row in rows}
    hours = [row["hours"] for row in rows if row["hours"]]
    timed = bool(rows) and len(hours) >= TIMED * len(rows)
    usual = median(hours) if hours else 1.0
    found = Fleet(timed, {}, {}, places)
    of_job: dict[str, list[str]] = defaultdict(list)
    for each in involved:
        row = known.get(each["uid"])
        if row is None:
            continue
        blame = _key(row) if each["fault"] and counts(row, categories) else None
        units = found.hosts if each["kind"] == "host" else found.gpus
        unit = units.setdefault(each["name"], Unit(each["kind"], each["name"]))
        if blame:
            unit.blamed.add(blame)
        if each["kind"] == "host":
            unit.jobs += 1
            unit.exposure += (row["hours"] or usual) if timed else 1.0
            of_job[row["uid"]].append(each["name"])
    _of_gpus(found, known, of_job)
    return found


def counts(row: Mapping[str, Any], categories: Sequence[str]) -> bool:
    """Whether the verdict is one that counts against the host that it names."""
    failed = row["outcome"] in ("incident", "recovered") and row["confidence"] != "hypothesis"
    return failed and ("all" in categories or row["category"] in categories)


def _key(row: Mapping[str, Any]) -> str:
    return f"{row['job']}/{row['cause']}" if row["job"] else str(row["uid"])


def _of_gpus(found: Fleet, known: Mapping[str, Mapping[str, Any]], of_job: Mapping[str, Sequence[str]]) -> None:
    """A GPU has been through what its host has. Those that nobody ever named are there, too: as many as the
    jobs had ranks on a host."""
    many = [
        known[uid]["world_size"] / len(hosts) for uid, hosts in of_job.items() if known[uid]["world_size"] and hosts
    ]
    each = min(max(round(median(many)), 1), MOST_GPUS) if many else 1
    if not found.gpus:
        return
    named: dict[str, int] = defaultdict(int)
    for gpu in list(found.gpus.values()):
        host, _, address = gpu.name.rpartition("/")
        if host not in found.hosts:
            del found.gpus[gpu.name]  # nobody knows in which host it is
            continue
        named[host] += 1
        gpu.exposure, gpu.jobs = found.hosts[host].exposure, found.hosts[host].jobs
    for unit in found.hosts.values():
        for number in range(each - named[unit.name]):
            name = f"{unit.name}/\0{number}"
            found.gpus[name] = Unit("gpu", name, set(), unit.exposure, unit.jobs)


# ── judging ─────────────────────────────────────────────────────────────────────────────────────────────────


def judge(found: Fleet, rate: float = 0.05) -> list[Judged]:
    """Every unit with a failure, the most suspicious first; hosts, then GPUs, then what the map names. A
    rack is judged by what its accused hosts do not explain."""
    hosts = _judged(list(found.hosts.values()), rate, found.hours)
    told = hosts + _judged(list(found.gpus.values()), rate, found.hours)
    accused = {each.name for each in hosts if each.lemon}
    for units in _places(found, accused):
        told += _judged(units, rate, found.hours)
    return [each for each in told if each.faults]


def _places(found: Fleet, accused: set[str]) -> Iterator[list[Unit]]:
    kinds = list(dict.fromkeys(kind for own in found.places.values() for kind in own))
    for kind in kinds:
        units: dict[str, Unit] = {}
        for host in found.hosts.values():
            name = found.places.get(host.name, {}).get(kind)
            if name is None or host.name in accused:
                continue
            unit = units.setdefault(name, Unit(kind, name))
            unit.blamed |= host.blamed
            unit.exposure += host.exposure
            unit.jobs += host.jobs
        yield list(units.values())


def _judged(units: Sequence[Unit], rate: float, hours: bool) -> list[Judged]:
    units = [u for u in units if u.exposure > 0]
    if not any(u.blamed for u in units):
        return []
    usual = _fitted([len(u.blamed) for u in units], [u.exposure for u in units])
    p = [_tail(len(u.blamed), usual.rate * u.exposure, usual.spread) for u in units]
    q = adjusted(p)
    prior = _prior(units, usual)
    found = [_one(u, usual, prior, p[i], q[i], rate, hours) for i, u in enumerate(units)]
    return sorted(found, key=lambda each: (each.p, -each.faults, each.name))


@dataclass(frozen=True, slots=True)
class Usual:
    """The healthy units: failures per exposure, and how much their rates differ (1 / shape of the Gamma)."""

    rate: float
    spread: float


def _fitted(faults: Sequence[int], exposure: Sequence[float]) -> Usual:
    """The most likely rate and spread, by what is not unusual: each unit counts up to a bound, as one of
    which it is known that it has no more. So lemons neither raise the rate nor widen the spread that hides
    them."""
    import numpy as np

    n, e = np.array(faults), np.array(exposure)
    mean = n.sum() / e.sum()
    bound = np.floor(mean * e + 2 * np.sqrt(mean * e) + 1).astype(int)
    n, e, bound = n[n <= bound], e[n <= bound], bound[n <= bound]
    least = 0.5 / e.sum()  # half a failure: a fleet in which nothing else failed yet accuses not everybody
    best, found = -math.inf, Usual(mean, SPREADS[0])
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
                best, found = likely, Usual(float(rate), spread)
    return found


def _prior(units: Sequence[Unit], usual: Usual) -> tuple[float, float]:
    """Shape and rate of the Gamma that all units come from, lemons too, by moments: what a unit's own rate
    is shrunk towards. In multiples of the usual rate."""
    expected = [usual.rate * u.exposure for u in units]
    mean = sum(len(u.blamed) for u in units) / sum(expected)
    excess = sum((len(u.blamed) - mean * e) ** 2 - mean * e for u, e in zip(units, expected, strict=True))
    spread = max(excess / sum((mean * e) ** 2 for e in expected), USUAL_SPREAD)
    return 1 / spread, 1 / spread / mean


def _one(unit: Unit, usual: Usual, prior: tuple[float, float], p: float, q: float, rate: float, hours: bool) -> Judged:
    n, expected = len(unit.blamed), usual.rate * unit.exposure
    a, b = prior[0] + n, prior[1] + expected
    return Judged(
        unit.kind, unit.name, n, unit.jobs, round(unit.exposure, 3), hours, round(expected, 4),
        round(a / b, 2), round(_gamma(a, 0.05) / b, 2), round(_gamma(a, 0.95) / b, 2), p, q,
        q < rate and n >= FEWEST,
    )  # fmt: skip


def _tail(n: int, mean: float, spread: float) -> float:
    """The chance of `n` failures or more where rates have this spread: the tail of the negative binomial."""
    total, log = 0.0, -math.log1p(spread * mean) / spread
    for k in range(n):
        total += math.exp(log)
        log += math.log(mean * (1 + spread * k) / (k + 1)) - math.log1p(spread * mean)
    first = math.exp(log) if log > -700 else 0.0  # of the tail, where 1 minus the rest has no digits left
    return min(max(1.0 - total, first), 1.0)


def adjusted(p: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg: the smallest false-discovery rate at which each would be accused."""
    order = sorted(range(len(p)), key=lambda i: p[i], reverse=True)
    q, best = [1.0] * len(p), 1.0
    for rank, i in zip(range(len(p), 0, -1), order, strict=True):
        best = min(best, p[i] * len(p) / rank)
        q[i] = best
    return q


def _gamma(shape: float, share: float) -> float:
    """A quantile of the Gamma distribution of scale 1, by Wilson and Hilferty; off by a few percent at
    shape 1."""
    z = 1.6448536 if share > 0.5 else -1.6448536
    root = 1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))
    return shape * max(root, 0.0) ** 3


# ── words ───────────────────────────────────────────────────────────────────────────────────────────────────


def sentence(each: Judged) -> str:
    """`gpu-017: at fault in 6 of 9 jobs, expected 0.4 (q < 0.001)`, and how sure that is."""
    name = line(each.name, 80)
    over = (
        f"in {each.faults} of {each.jobs} jobs" if not each.hours else f"{each.faults} times in {each.exposure:,.0f} h"
    )
    told = f"{name}: at fault {over}, expected {_figure(each.expected)} ({_q(each.q)})"
    if each.lemon:
        return f"{told}; {_figure(each.low)} to {_figure(each.high)} times the usual rate"
    if each.faults < FEWEST:
        return f"{told}; too few to accuse it"
    return f"{told}; chance explains that"


def table(judged: Sequence[Judged], rate: float, most: int = 20) -> list[str]:
    """Who is accused, and then who was at fault and is not."""
    if not judged:
        return ["no host is at fault in any incident that counts"]
    lemons = [each for each in judged if each.lemon]
    others = sorted((e for e in judged if not e.lemon), key=lambda e: (e.p, e.name))
    head = f"at fault more often than chance explains (at most {rate:.0%} of these wrongly):"
    lines = [head] if lemons else ["nobody is at fault more often than chance explains"]
    lines += [f"  {each.kind:<7} {sentence(each)}" for each in lemons]
    if others:
        lines += ["also at fault:", *(f"  {each.kind:<7} {sentence(each)}" for each in others[:most])]
    if len(others) > most:
        lines.append(f"  and {len(others) - most} more; --json has all")
    return lines


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.1 else f"{value:.2g}"


def _q(value: float) -> str:
    return "q < 0.001" if value < 0.001 else f"q = {value:.3f}" if value < 0.1 else f"q = {value:.2f}"
