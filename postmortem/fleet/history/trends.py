"""Rows of the store -> figures of a fleet: over time, by cause, by size of the job.

    figures(rows, involved, now)  ->  Figures(failed=212, periods=(Period("2026-03-09", {"hang": 3}), …), …)

Only filed jobs count. Where jobs that went well are not filed, the time to a failure is that of failed jobs.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from postmortem.fleet.history.lemons import gamma_quantile
from postmortem.fleet.history.rows import stamp
from postmortem.report import text

Row = Mapping[str, Any]
WEEK_S = 7 * 86400
WEEKS = 60  # a longer time is divided into months
SIZES = (1, 2, 9, 65, 513, 4097)  # smallest number of ranks of each class of size
EXACT = 200  # failures up to which the interval is exact
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Period:
    """A week or a month, by its first day."""

    begin: date
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Cause:
    """All incidents of one category, or of one fingerprint."""

    name: str
    count: int
    hours: float  # rank-hours lost
    first: str
    last: Row
    recent: int  # in the last week
    host: str  # at fault most often; empty if never twice
    there: int


@dataclass(frozen=True, slots=True)
class Size:
    """Jobs of about the same number of ranks."""

    low: int
    high: int | None
    jobs: int
    failures: int
    hours: float

    @property
    def ranks(self) -> str:
        """`2–8`"""
        if self.high is None:
            return f"{self.low:,} or more"
        if self.high <= 8:
            return text.ranges(range(self.low, self.high + 1))
        return f"{self.low:,}–{self.high:,}"

    @property
    def between(self) -> tuple[float, float, float] | None:
        """Mean hours to a failure, and its 95 % interval; None without a failure."""
        if not self.failures:
            return None
        low, high = interval(self.failures)
        return self.hours / self.failures, self.hours / high, self.hours / low


@dataclass(frozen=True, slots=True)
class Figures:
    """Content of the overview page."""

    filed: int
    failed: int
    hours: float
    unknown_hours: int  # failures with an unknown loss
    recent: int
    before: int  # in the week before the last one
    monthly: bool
    periods: tuple[Period, ...]
    categories: tuple[Cause, ...]
    causes: tuple[Cause, ...]
    new: tuple[Cause, ...]  # causes first seen in the last week
    sizes: tuple[Size, ...]


def figures(rows: Sequence[Row], involved: Iterable[Row], now: float) -> Figures:
    """Return the figures of rows as `Store.rows` gives them, the latest first."""
    failed = [row for row in rows if row["outcome"] != "healthy"]
    week, two = str(stamp(now - WEEK_S)), str(stamp(now - 2 * WEEK_S))
    hosts: dict[str, list[str]] = defaultdict(list)
    for each in involved:
        if each["fault"] and each["kind"] == "host":
            hosts[each["uid"]].append(each["name"])
    causes = _grouped([row for row in failed if row["cause"]], "cause", hosts, week)
    days = [(date.fromisoformat(row["when"][:10]), row["category"] or UNKNOWN) for row in failed]
    monthly = bool(days) and (max(days)[0] - min(days)[0]).days > 7 * WEEKS
    return Figures(
        filed=len(rows),
        failed=len(failed),
        hours=sum(row["lost_rank_hours"] or 0.0 for row in failed),
        unknown_hours=sum(row["lost_rank_hours"] is None for row in failed),
        recent=sum(row["when"] >= week for row in failed),
        before=sum(two <= row["when"] < week for row in failed),
        monthly=monthly,
        periods=tuple(_periods(days, monthly)),
        categories=tuple(_grouped(failed, "category", hosts, week)),
        causes=tuple(cause for cause in causes if cause.count > 1),
        new=tuple(cause for cause in causes if cause.first >= week),
        sizes=tuple(_sizes(rows)),
    )


def _grouped(rows: Sequence[Row], name: str, hosts: Mapping[str, list[str]], week: str) -> list[Cause]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[name] or UNKNOWN].append(row)
    found = []
    for key, group in groups.items():
        blamed = Counter(host for row in group for host in hosts.get(row["uid"], ()))
        host, there = max(blamed.items(), key=lambda item: (item[1], item[0]), default=("", 0))
        found.append(
            Cause(
                name=key,
                count=len(group),
                hours=sum(row["lost_rank_hours"] or 0.0 for row in group),
                first=min(row["when"] for row in group),
                last=max(group, key=lambda row: str(row["when"])),
                recent=sum(row["when"] >= week for row in group),
                host=host if there > 1 else "",
                there=there,
            )
        )
    return sorted(found, key=lambda cause: (-cause.count, -cause.hours, cause.name))


def _periods(days: Sequence[tuple[date, str]], monthly: bool) -> Iterator[Period]:
    """Yield every week or month from the first incident to the last, empty ones too."""
    counts: dict[date, Counter[str]] = defaultdict(Counter)
    for day, category in days:
        counts[_begin(day, monthly)][category] += 1
    begin, last = min(counts, default=date.max), max(counts, default=date.min)
    while begin <= last:
        yield Period(begin, counts.get(begin, Counter()))
        begin = _begin(begin + timedelta(days=32), True) if monthly else begin + timedelta(days=7)


def _begin(day: date, monthly: bool) -> date:
    return day.replace(day=1) if monthly else day - timedelta(days=day.weekday())


def _sizes(rows: Sequence[Row]) -> Iterator[Size]:
    """Yield the classes of jobs of known size and time."""
    timed = [row for row in rows if row["world_size"] and row["hours"]]
    for low, above in zip(SIZES, (*SIZES[1:], None), strict=True):
        own = [row for row in timed if low <= row["world_size"] < (above or math.inf)]
        if own:
            failures = sum(row["outcome"] != "healthy" for row in own)
            yield Size(low, above and above - 1, len(own), failures, sum(row["hours"] for row in own))


def interval(count: int) -> tuple[float, float]:
    """Return the 95 % interval of a Poisson mean from one count: Garwood's, or Wilson and Hilferty's if it is large."""
    if count > EXACT:
        return gamma_quantile(count, -1.959964), gamma_quantile(count + 1, 1.959964)
    low = _root(lambda mean: 1 - _at_most(count - 1, mean) - 0.025, 0.0, float(count)) if count else 0.0
    return low, _root(lambda mean: 0.025 - _at_most(count, mean), float(count), 2.0 * count + 10)


def _at_most(count: int, mean: float) -> float:
    """Return the Poisson probability of at most `count`."""
    term = total = math.exp(-mean)
    for k in range(1, count + 1):
        term *= mean / k
        total += term
    return total if count >= 0 else 0.0


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2
