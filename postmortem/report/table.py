"""The events of an incident -> the table that ndjson, CSV and Parquet hold, a row each, by time.

time                     uncertainty_s  rank  host    kind  severity  pattern       text   file     line
2026-11-20 21:13:48.704  0.004             3  node-b  kill  fatal     kernel-oom-…  … K …  dmesg…     81
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from postmortem.report import view
from postmortem.report.events import frame

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("time", "uncertainty_s", "rank", "host", "kind", "severity", "pattern", "text", "file", "line")
_CALENDAR = (-62_135_596_800, 253_402_300_800)  # the years 1 to 9999, which ISO 8601 can write


def table(incident: view.Incident) -> pd.DataFrame:
    """COLUMNS: `time` as datetime64[us, UTC], `uncertainty_s` one standard deviation in seconds (float64),
    `rank` and `line` as Int64, all else as categories. What is not known is missing; no text is."""
    rows = frame(incident)
    rows["uncertainty_s"] = rows["sigma"].where(_known(rows["time"]))
    rows["time"] = moments(rows["time"])
    for name in ("host", "kind", "pattern"):
        rows[name] = rows[name].cat.remove_categories([""] if "" in rows[name].cat.categories else [])
    return rows.rename(columns={"source": "file"})[list(COLUMNS)]


def _known(time: pd.Series[float]) -> pd.Series[bool]:
    return time.between(*_CALENDAR, inclusive="left")


def moments(time: pd.Series[float]) -> pd.Series[pd.Timestamp]:
    """Epoch seconds -> datetime64[us, UTC]; NaT where no clock places the event, or no calendar the day."""
    import numpy as np
    import pandas as pd

    known = time.where(_known(time)).to_numpy()
    lost = np.isnan(known)
    whole = np.floor(np.where(lost, 0, known))
    # the whole seconds apart, so that a microsecond is rounded as `datetime` rounds it
    micro = np.rint((np.where(lost, 0, known) - whole) * 1e6)
    found = (whole.astype("int64") * 1_000_000 + micro.astype("int64")).view("datetime64[us]")
    found[lost] = np.datetime64("NaT")
    return pd.Series(found, index=time.index).dt.tz_localize("UTC")


def iso(time: pd.Series[pd.Timestamp]) -> list[str | None]:
    """Moments -> ISO 8601 in UTC, to the microsecond."""
    import numpy as np

    words = np.datetime_as_string(time.dt.tz_localize(None).to_numpy(), unit="us").tolist()
    return [None if word == "NaT" else f"{word}Z" for word in words]


def cells(column: pd.Series[Any], shown: Callable[[Any], Any]) -> list[Any]:
    """Each value as `shown`, which is asked once for each that differs, with None for what is missing."""
    import pandas as pd

    codes, known = pd.factorize(column.array)  # of a Series the known are an Index, of Arrow strings
    told = [*map(shown, known.tolist()), shown(None)]  # what is missing has the code -1
    return [told[code] for code in codes.tolist()]
