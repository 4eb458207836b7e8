"""Events <-> the frame of the timeline: one row per event, columns of fixed types, in the order of time.

    event_id  time              sigma  host    rank  kind  severity  pattern        text           source    line
          17  1795209228.70409  0.004  node-b     3  kill  fatal     kernel-oom-…   … Killed …     dmesg.txt   81

time, low, high     float64: seconds since 1970 in UTC on the job's clock, and its 95 % interval; NaN if unknown
sigma               float64: one standard deviation of `time`, in seconds
stamp, resolution   float64: the time as in the line, and its standard deviation, before alignment
line, end_line, file_line, rank, local_rank, pid, attempt, process_id    Int64, missing if unknown
all others          categories; `severity` is ordered, info to fatal

`event_id`, the index, is the order in which the events were read. `process_id` is the number of a row of the
document's `processes`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from postmortem.model import Event, event_of, once, where_of
from postmortem.model.details import Details
from postmortem.model.digits import number
from postmortem.model.vocabulary import SEVERITIES

SECONDS = ("time", "low", "high", "sigma", "stamp", "resolution")
NUMBERS = ("line", "end_line", "file_line", "rank", "local_rank", "pid", "attempt", "process_id")
COLUMNS = (
    "time", "low", "high", "sigma", "clock", "source", "host", "kind", "severity", "pattern", "text",
    "line", "end_line", "rank", "local_rank", "pid", "attempt", "process_id", "raw_time",
    "stamp", "resolution", "file_line", "gpu", "run", "speaker", "source_kind",
)  # fmt: skip
LARGEST = 2**63 - 1  # of Int64
PART = 1 << 15  # rows that are made typed together, because all their columns take twice the memory of the rows
NORMAL_95 = 1.96  # standard deviations on either side of an interval of 95 %
_PLAIN = {name: Event._fields.index(name) for name in COLUMNS if name in Event._fields} | {
    "time": Event._fields.index("at"),
    "sigma": Event._fields.index("at_sigma"),
    "stamp": Event._fields.index("time"),
    "resolution": Event._fields.index("sigma"),
}
_SORTED = ("clock", "source", "host", "kind", "pattern", "gpu", "run", "speaker", "source_kind")


class Extras(NamedTuple):
    """The parts of events that are no column, by `event_id`: parsers' details, and the lines around each."""

    fields: Sequence[Details]
    context: Sequence[tuple[str, ...]]
    before: Sequence[int]


def of_events(events: Sequence[Event]) -> tuple[pd.DataFrame, Extras]:
    """Return the frame of these events, in their order, and their extras."""
    extras = Extras(*([*map(attrgetter(name), events)] for name in Extras._fields))
    return of_columns(partial(_column, events), len(events)), extras


_LINES = ("line", "end_line", "file_line")
_ADDRESS = ("source", *_LINES)


def _column(events: Sequence[Event], name: str) -> Sequence[Any] | None:
    if name in _ADDRESS:
        return [*map(itemgetter(_ADDRESS.index(name)), map(attrgetter("where"), events))]
    if name == "local_rank":
        return [number(e.fields.get("local_rank")) if e.fields else None for e in events]
    return [*map(itemgetter(_PLAIN[name]), events)] if name in _PLAIN else None


def of_columns(column: Callable[[str], Sequence[Any] | None], length: int) -> pd.DataFrame:
    """Return a frame with all COLUMNS, of which `column` returns the values; None where they are missing. They are
    made one by one: Python's values of all take more memory than the frame."""
    nothing: list[None] = [None] * length
    made: dict[str, Any] = {}
    for name in COLUMNS:
        make = seconds if name in SECONDS else integers if name in NUMBERS else partial(_words, name)
        made[name] = make(column(name) or nothing)
    rows = pd.DataFrame(made, index=pd.RangeIndex(length, name="event_id"), copy=False)
    bound(rows)
    return rows


def bound(rows: pd.DataFrame) -> None:
    """Set `low` and `high` by `time` and `sigma`."""
    rows["low"] = rows["time"] - NORMAL_95 * rows["sigma"]
    rows["high"] = rows["time"] + NORMAL_95 * rows["sigma"]


def seconds(values: Sequence[float | None]) -> Any:
    return np.array(values, dtype=np.float64)  # None becomes NaN


def integers(values: Sequence[int | None]) -> Any:
    """Return Int64, missing where a value is None, no whole number, or does not fit: a log may have any number."""
    try:
        whole = array("q", [0 if value is None else value for value in values])
    except (OverflowError, TypeError):
        fits = [type(v) is int and abs(v) <= LARGEST for v in values]
        return integers([v if fit else None for v, fit in zip(values, fits, strict=True)])
    missing = np.fromiter((value is None for value in values), dtype=bool, count=len(values))
    return pd.arrays.IntegerArray(np.array(whole, dtype=np.int64), missing)


def _words(name: str, values: Sequence[str | None]) -> pd.Categorical:
    if name == "severity":
        return categories(values, SEVERITIES[::-1], ordered=True)
    known = [value for value in dict.fromkeys(values) if value is not None]
    return categories(values, sorted(known) if name in _SORTED else known)


def categories(values: Sequence[str | None], known: Sequence[str], ordered: bool = False) -> pd.Categorical:
    """Return categories of Python's own strings: Arrow's cannot have half a surrogate pair, as a log can."""
    place: dict[str | None, int] = {value: at for at, value in enumerate(known)} | {None: -1}
    codes = np.fromiter(map(place.__getitem__, values), dtype=np.int32, count=len(values))
    return pd.Categorical.from_codes(codes, pd.Index(known, dtype=object), ordered=ordered)


def to_events(frame: pd.DataFrame, extras: Extras) -> list[Event]:
    """Return typed rows of a frame, in its order."""
    parts = (frame.iloc[at : at + PART] for at in range(0, len(frame), PART))
    return [event for part in parts for event in _typed(part, extras)]


def _typed(frame: pd.DataFrame, extras: Extras) -> Iterator[Event]:
    columns = {name: plain(frame[name]) for name in COLUMNS}
    columns["where"] = once([*map(where_of, zip(*(columns[name] for name in _ADDRESS), strict=True))])
    columns["at"], columns["time"] = columns["time"], columns["stamp"]
    columns["at_sigma"], columns["sigma"] = columns["sigma"], columns["resolution"]
    columns |= {name: once(columns[name]) for name in ("rank", "time", "at", "sigma", "at_sigma")}
    own = frame.index.tolist()
    columns |= {name: [*map(values.__getitem__, own)] for name, values in zip(Extras._fields, extras, strict=True)}
    return map(event_of, zip(*(columns[name] for name in Event._fields), strict=True))


def plain(column: pd.Series[Any]) -> list[Any]:
    """Return a column as Python's own values, None where one is missing."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        known = [*column.cat.categories, None]  # a missing value has the code -1
        return [*map(known.__getitem__, column.cat.codes.tolist())]
    if column.dtype == np.float64:
        values = column.to_numpy()
        found: list[Any] = values.tolist()
        return [None if v != v else v for v in found] if np.isnan(values).any() else found
    taken: Any = column.array  # Int64
    return [*taken.to_numpy(dtype=object, na_value=None).tolist()]


def used(column: pd.Series[Any]) -> list[str]:
    """Return the categories that occur in a column."""
    return [*column.cat.remove_unused_categories().cat.categories]


def renamed(column: pd.Series[Any], names: Iterable[str]) -> pd.Series[Any]:
    """Return a column of categories with other names for them, in their order; two may become one."""
    names = list(names)
    if names == column.cat.categories.tolist():
        return column
    known = list(dict.fromkeys(names))
    place = {name: at for at, name in enumerate(known)}
    codes = np.array([*(place[name] for name in names), -1], dtype=np.int32)[column.cat.codes.to_numpy()]
    return pd.Series(pd.Categorical.from_codes(codes, pd.Index(known, dtype=object)), index=column.index)
