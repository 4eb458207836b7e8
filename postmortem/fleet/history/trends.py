"""Rows of the store -> the figures of a fleet: over time, by cause, by size. Pure: no store, no clock.

    figures(rows, involved, now)  ->  Figures(failed=212, periods=(Period("2026-03-09", {"hang": 3}), …), …)

Only what was filed is counted. Where jobs that went well are not filed, the time to a failure is that of the
jobs that failed, and the page says so.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from postmortem.report import text

Row = Mapping[str, Any]
WEEK_S = 7 * 86400
WEEKS = 60  # longer than that is told by months
SIZES = (1, 2, 9, 65, 513, 4097)  # ranks from which on a job is of the next size
FEW = 200  # failures up to which the interval is exact
NOTHING = "unknown"


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
    host: str  # at fault most often, where it was more than once
    there: int


@dataclass(frozen=True, slots=True)
class Size:
    """Jobs of about the same number of ranks, and how long they ran until one failed."""

    low: int
    high: int | None
    jobs: int
    failures: int
    hours: float
    between: tuple[float, float, float] | None  # mean hours to a failure, and its 95 % interval


@dataclass(frozen=True, slots=True)
class Figures:
    """What the pages show."""

    filed: int
    failed: int
    hours: float
    unknown_hours: int  # failures of which nobody knows what they lost
    recent: int
    before: int  # in the week before the last one
    monthly: bool
    periods: tuple[Period, ...]
    categories: tuple[Cause, ...]
    causes: tuple[Cause, ...]
    new: tuple[Cause, ...]  # of them, those first seen in the last week
    sizes: tuple[Size, ...]


def figures(rows: Sequence[Row], involved: Iterable[Row], now: float) -> Figures:
    """All figures of rows as `Store.rows` gives them, the latest first."""
    failed = [row for row in rows if row["outcome"] != "healthy"]
    week, two = (_iso(now - n * WEEK_S) for n in (1, 2))
    hosts: dict[str, list[str]] = defaultdict(list)
    for each in involved:
        if each["fault"] and each["kind"] == "host":
            hosts[each["uid"]].append(each["name"])
    known = [row for row in failed if row["cause"]]
    causes = _grouped(known, "cause", hosts, week)
    monthly, periods = _periods(failed)
    return Figures(
        filed=len(rows),
        failed=len(failed),
        hours=sum(row["lost_rank_hours"] or 0.0 for row in failed),
        unknown_hours=sum(row["lost_rank_hours"] is None for row in failed),
        recent=sum(row["when"] >= week for row in failed),
        before=sum(two <= row["when"] < week for row in failed),
        monthly=monthly,
        periods=tuple(periods),
        categories=tuple(_grouped(failed, "category", hosts, week)),
        causes=tuple(cause for cause in causes if cause.count > 1),
        new=tuple(cause for cause in causes if cause.first >= week),
        sizes=tuple(_sizes(rows)),
    )


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _grouped(rows: Sequence[Row], name: str, hosts: Mapping[str, list[str]], week: str) -> list[Cause]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[name] or NOTHING].append(row)
    found = []
    for key, those in groups.items():
        blamed = Counter(host for row in those for host in hosts.get(row["uid"], ()))
        host, there = max(blamed.items(), key=lambda item: (item[1], item[0]), default=("", 0))
        last = max(those, key=lambda row: str(row["when"]))
        found.append(
            Cause(
                key,
                len(those),
                sum(row["lost_rank_hours"] or 0.0 for row in those),
                min(row["when"] for row in those),
                last,
                sum(row["when"] >= week for row in those),
                host if there > 1 else "",
                there,
            )
        )
    return sorted(found, key=lambda cause: (-cause.count, -cause.hours, cause.name))


def _periods(failed: Sequence[Row]) -> tuple[bool, Iterator[Period]]:
    """Every week or month from the first incident to the last one, empty ones too."""
    days = [(date.fromisoformat(row["when"][:10]), row["category"] or NOTHING) for row in failed]
    if not days:
        return False, iter(())
    first, last = min(days)[0], max(days)[0]
    monthly = (last - first).days > 7 * WEEKS
    counts: dict[date, Counter[str]] = defaultdict(Counter)
    for day, category in days:
        counts[_begin(day, monthly)][category] += 1
    return monthly, _filled(counts, _begin(first, monthly), _begin(last, monthly), monthly)


def _filled(counts: Mapping[date, Counter[str]], first: date, last: date, monthly: bool) -> Iterator[Period]:
    while first <= last:
        yield Period(first, counts.get(first, Counter()))
        first = _begin(first + timedelta(days=32), True) if monthly else first + timedelta(days=7)


def _begin(day: date, monthly: bool) -> date:
    return day.replace(day=1) if monthly else day - timedelta(days=day.weekday())


def _sizes(rows: Sequence[Row]) -> Iterator[Size]:
    """Jobs of known size and time; one that was analyzed twice is one."""
    for low, next_ in zip(SIZES, (*SIZES[1:], None), strict=True):
        own = [
            row for row in rows if row["world_size"] and row["hours"] and low <= row["world_size"] < (next_ or math.inf)
        ]
        if own:
            hours, failures = sum(row["hours"] for row in own), sum(r["outcome"] != "healthy" for r in own)
            between = _between(hours, failures)
            yield Size(low, next_ and next_ - 1, len(own), failures, hours, between)


def _between(hours: float, failures: int) -> tuple[float, float, float] | None:
    if not failures:
        return None
    low, high = interval(failures)
    return hours / failures, hours / high, hours / low


def interval(count: int) -> tuple[float, float]:
    """The 95 % interval of a Poisson mean of which `count` was seen: Garwood's, exact; by Wilson and Hilferty
    where the count is large."""
    if count > FEW:
        return _hilferty(count, -1.959964), _hilferty(count + 1, 1.959964)
    low = _root(lambda mean: 1 - _at_most(count - 1, mean) - 0.025, 0.0, float(count)) if count else 0.0
    return low, _root(lambda mean: 0.025 - _at_most(count, mean), float(count), 2.0 * count + 10)


def _hilferty(shape: int, z: float) -> float:
    return shape * float(1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))) ** 3


def _at_most(count: int, mean: float) -> float:
    term = total = math.exp(-mean)
    for k in range(1, count + 1):
        term *= mean / k
        total += term
    return total if count >= 0 else 0.0


def _root(rising: Any, low: float, high: float) -> float:
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def said(size: Size) -> str:
    """The ranks of a size: `2–8`."""
    if size.high is None:
        return f"{size.low:,} or more"
    return text.ranges(range(size.low, size.high + 1)) if size.high <= 8 else f"{size.low:,}–{size.high:,}"
