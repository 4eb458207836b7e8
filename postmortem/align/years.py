"""Stamps without a year -> stamps with the year in which they were written.

    [W1231 23:59:58.120000000 ProcessGroupNCCL.cpp:1] ...     read as 31 December 1972
    [W0101 00:00:03.410000000 ProcessGroupNCCL.cpp:1] ...     read as 1 January 1972: a year too early

Inside one file the month going back by more than half a year is New Year. The file's last stamp gets the year that puts
it next to the dated stamps of the job, and not far behind the last of them: no log has events of the future. In a job
without any year the stamps stay in the placeholder year, in one piece even over New Year.
"""

from __future__ import annotations

import calendar
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from statistics import median

from postmortem.formats.times import NO_YEAR
from postmortem.model import Event

YEARLESS_END = 4e8  # stamps before 1982 have no year of their own
YEAR_S = 365.2425 * 86400
HALF = YEAR_S / 2
DAY = 86400
AHEAD = 7 * 86400.0  # how far a stamp may lie behind the last dated one
WALL = ("naive", "absolute")
OTHERS = ("kernel", "scheduler", "slurm", "job-report", "unit-status", "kubernetes")


def yearless(e: Event) -> bool:
    return e.time is not None and e.clock == "naive" and e.time < YEARLESS_END


def with_years(events: Sequence[Event]) -> list[Event]:
    """Give every stamp without a year the right one; packed marks too."""
    lacking: dict[str, list[int]] = defaultdict(list)
    for i, e in enumerate(events):
        if yearless(e):
            lacking[e.where.source].append(i)
    if not lacking:
        return list(events)
    known = [e for e in events if e.time is not None and e.time >= YEARLESS_END and e.clock in WALL]
    # a host's log goes back years, and a table of jobs weeks
    own = [e for e in known if e.source_kind not in OTHERS]
    dated = [e.time for e in own or known if e.time is not None]
    middle, latest = (
        (median(dated), max(dated))
        if dated
        else _undated([e.time for e in events if yearless(e) and e.time is not None])
    )
    out = list(events)
    for indices in lacking.values():
        indices.sort(key=lambda i: events[i].where.line or 0)
        years = _years([events[i].time or 0.0 for i in indices], middle, latest)
        for i, year in zip(indices, years, strict=True):
            out[i] = _dated(events[i], year, middle, latest)
    return out


def note_on(times: Iterable[float]) -> str:
    """A note on the inferred years of one clock, from its stamps without a year; empty where there is no doubt."""
    days = [datetime.fromtimestamp(day * DAY, UTC) for day in {int(t // DAY) for t in times}]
    years = sorted({day.year for day in days})
    if not years:
        return ""
    if years[0] == NO_YEAR or years[0] == NO_YEAR - 1:
        return "no line of the job names the year"
    if len(years) > 1:
        return f"stamps without a year: {years[0]} before New Year, {years[-1]} after it"
    leap = any((day.month, day.day) == (2, 29) for day in days)
    return f"stamps without a year: {years[0]}, the nearest year with a 29 February" if leap else ""


def _years(times: Sequence[float], middle: float, latest: float) -> list[int]:
    """The year of each stamp of one file, in file order: found for the last one, counted back over each New Year."""
    year = _nearest(times[-1], middle, latest)
    found = [year]
    for later, earlier in pairwise(reversed(times)):
        if earlier - later > HALF:
            year -= 1
        elif later - earlier > HALF and year < found[0]:  # lines written out of order around New Year
            year += 1
        found.append(year)
    found.reverse()
    return found


def _nearest(time: float, middle: float, latest: float) -> int:
    """The year that puts a stamp nearest to the middle of the dated ones, and not long after the last."""
    around = datetime.fromtimestamp(middle, UTC).year
    there = {year: at for year in range(around - 4, around + 5) if (at := moved(time, year)) is not None}
    return min(there, key=lambda y: (there[y] > latest + AHEAD, abs(there[y] - middle), y), default=around)


def moved(time: float, year: int) -> float | None:
    """A stamp of the placeholder year in another one; None for 29 February in a year that has none."""
    whole = int(time)
    days = _days(whole // DAY, year)
    return None if days is None else whole + days * DAY + time - whole


@lru_cache(maxsize=4096)
def _days(day: int, year: int) -> int | None:
    """How many days lie between a day of the placeholder year and the same one of another year."""
    date = datetime.fromtimestamp(day * DAY, UTC)
    if date.month == 2 and date.day == 29 and not calendar.isleap(year):
        return None
    turned = date.year - NO_YEAR  # a leap second or a zone may have moved it over
    return int(datetime(year + turned, date.month, date.day, tzinfo=UTC).timestamp()) // DAY - day


def _dated(e: Event, year: int, middle: float, latest: float) -> Event:
    assert e.time is not None
    there = moved(e.time, year)
    if there is None:
        there = moved(e.time, _nearest(e.time, middle, latest)) or e.time
    if e.kind != "sync":
        return e._replace(time=there)
    return e._replace(time=there, fields={**e.fields, "times": _packed(e.fields["times"], e.time, there)})


def _packed(times: array[float], before: float, there: float) -> array[float]:
    """Marks in the years that follow from the first one's."""
    out, year = array("d"), datetime.fromtimestamp(there, UTC).year
    for t in times:
        if before - t > HALF:
            year += 1
        elif t - before > HALF:
            year -= 1
        before = t
        out.append(moved(t, year) or t)
    return out


def _undated(times: Sequence[float]) -> tuple[float, float]:
    """Middle and end of a job without any year: on the year's circle it begins behind the widest gap."""
    circle = sorted(times)
    gaps = [(b - a, b) for a, b in pairwise(circle)]
    width, start = max(gaps, default=(0.0, circle[0]))
    if width <= YEAR_S - (circle[-1] - circle[0]):
        return median(circle), circle[-1]
    turned = sorted(t if t < start else (moved(t, NO_YEAR - 1) or t) for t in circle)
    return median(turned), turned[-1]
