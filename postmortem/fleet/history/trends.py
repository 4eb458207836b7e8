"""Rows of the store -> figures of a fleet: over time, by cause, by size of the job.

    figures(rows, involved, now)
    ->  {"failed": 212, "periods": [(date(2026, 3, 9), {"hang": 3}), …], "categories": [{"name": "hang", …}, …], …}

Only filed jobs count. Where jobs that went well are not filed, the time to a failure is that of failed jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from postmortem.fleet.history.lemons import gamma_quantile
from postmortem.fleet.history.rows import clean, stamp
from postmortem.report import text

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]
WEEK_S = 7 * 86400
WEEKS = 60  # a longer time is divided into months
SIZES = (1, 2, 9, 65, 513, 4097)  # smallest number of ranks of each class of size
EXACT = 200  # failures up to which the interval is exact
UNKNOWN = "unknown"
COLUMNS = (
    "uid", "when", "outcome", "category", "cause", "headline", "report", "world_size", "hours", "lost_rank_hours",
)  # fmt: skip


def figures(rows: Sequence[Row], involved: Iterable[Row], now: float) -> dict[str, Any]:
    """Return the content of the overview of rows as `Store.rows` gives them, the latest first."""
    import pandas as pd

    every = pd.DataFrame(rows, columns=COLUMNS, dtype=object).astype(dict.fromkeys(COLUMNS[-3:], "float64"))
    failed = every[every["outcome"] != "healthy"].copy()
    week, two = str(stamp(now - WEEK_S)), str(stamp(now - 2 * WEEK_S))
    failed[["category", "cause"]] = failed[["category", "cause"]].map(clean)  # indexes take no halves of surrogates
    failed["category"] = failed["category"].fillna(UNKNOWN)
    failed["recent"] = failed["when"] >= week
    at_fault = [(e["uid"], clean(e["name"])) for e in involved if e["fault"] and e["kind"] == "host"]
    blamed = failed.merge(pd.DataFrame(at_fault, columns=["uid", "host"], dtype=object), on="uid")
    causes = _grouped(failed, blamed, "cause")
    days = pd.to_datetime(failed["when"].str[:10])
    monthly = bool(len(days)) and (days.max() - days.min()).days > 7 * WEEKS
    return {
        "filed": len(every),
        "failed": len(failed),
        "hours": float(failed["lost_rank_hours"].sum()),
        "unknown_hours": int(failed["lost_rank_hours"].isna().sum()),
        "recent": int(failed["recent"].sum()),
        "before": int(failed["when"].between(two, week, inclusive="left").sum()),
        "monthly": monthly,
        "periods": _periods(days, failed["category"], "M" if monthly else "W") if len(days) else [],
        "categories": _grouped(failed, blamed, "category"),
        "causes": [cause for cause in causes if cause["count"] > 1],
        "new": [cause for cause in causes if cause["first"] >= week],
        "sizes": _sizes(every),
    }


def _grouped(failed: pd.DataFrame, blamed: pd.DataFrame, name: str) -> list[dict[str, Any]]:
    """Return a record for each value of a column, the most frequent first: its number of incidents, in all and in the
    last week, the rank-hours lost, the latest incident, and the host most often at fault, if more than once."""
    latest = failed.sort_values("when", ascending=False, kind="stable").drop_duplicates(name).set_index(name)
    sums = {"count": ("uid", "size"), "hours": ("lost_rank_hours", "sum"), "recent": ("recent", "sum")}
    found = failed.groupby(name).agg(**sums, first=("when", "min"))
    hosts = blamed.groupby([name, "host"]).size().rename("there").reset_index().sort_values(["there", "host"])
    hosts = hosts[hosts["there"] > 1].drop_duplicates(name, keep="last").set_index(name)
    found = found.join(hosts).join(latest[["when", "headline", "report"]])
    found = found.fillna({"host": "", "there": 0}).astype({"there": int})
    found["category"] = found.index if name == "category" else latest["category"]
    found = found.rename_axis("name").reset_index().sort_values("name")
    found = found.sort_values(["count", "hours"], ascending=False, kind="stable")
    return found.to_dict("records")  # type: ignore[return-value]


def _periods(days: pd.Series[Any], categories: pd.Series[Any], unit: str) -> list[tuple[date, dict[str, int]]]:
    """Return every week or month by its first day, from the first incident to the last, with its counts."""
    import pandas as pd

    periods = days.dt.to_period(unit)
    every = pd.period_range(periods.min(), periods.max(), freq=unit)
    counts = pd.crosstab(periods, categories).reindex(every, fill_value=0)
    rows = zip(every, counts.to_dict("records"), strict=True)
    return [(period.start_time.date(), {str(k): n for k, n in row.items() if n}) for period, row in rows]


def _sizes(every: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the classes of jobs of about the same number of ranks, of those with a known size and time."""
    timed = every[(every["world_size"] > 0) & (every["hours"] > 0)]
    found = []
    for low, above in zip(SIZES, (*SIZES[1:], math.inf), strict=True):
        own = timed[(timed["world_size"] >= low) & (timed["world_size"] < above)]
        if len(own):
            failures, hours = int((own["outcome"] != "healthy").sum()), float(own["hours"].sum())
            found.append({"ranks": _ranks(low, above), "jobs": len(own), "failures": failures, "hours": hours})
    return found


def _ranks(low: int, above: float) -> str:
    """Return `2–8`."""
    if above == math.inf:
        return f"{low:,} or more"
    return text.ranges(range(low, int(above))) if above <= 9 else f"{low:,}–{int(above) - 1:,}"


def between(size: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """Return mean hours to a failure, and its 95 % interval; None without a failure."""
    if not size["failures"]:
        return None
    low, high = interval(size["failures"])
    return size["hours"] / size["failures"], size["hours"] / high, size["hours"] / low


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
