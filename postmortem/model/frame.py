"""Columns of events -> a pandas frame with fixed types, for notebooks and for outputs.

pandas is imported only where a frame is used: its import takes 0.3 s, half of the time of a small analysis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from postmortem.model.vocabulary import SEVERITIES

if TYPE_CHECKING:
    import pandas as pd

SECONDS = ("time", "low", "high", "sigma")
NUMBERS = ("rank", "local_rank", "attempt", "line")


def framed(columns: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """Return a frame of the columns: SECONDS as float64 (NaN: unknown), NUMBERS as Int64, all else as categories,
    in alphabetical order but for the severity (info to fatal)."""
    import pandas as pd

    made: dict[str, Any] = {}
    for name, values in columns.items():
        if name in SECONDS:
            made[name] = pd.array([float("nan") if v is None else float(v) for v in values], dtype="float64")
        elif name in NUMBERS:
            made[name] = pd.array(list(values), dtype="Int64")
        else:
            made[name] = categories(values, SEVERITIES[::-1] if name == "severity" else None)
    return pd.DataFrame(made)


def categories(values: Sequence[Any], order: Sequence[str] | None = None) -> pd.Categorical:
    """Return categories of Python's own strings: Arrow's cannot have half a surrogate pair, as a log can."""
    import pandas as pd

    known = order or sorted({value for value in values if value is not None})
    place = {value: number for number, value in enumerate(known)}
    codes = [place.get(value, -1) for value in values]
    return pd.Categorical.from_codes(codes, pd.Index(known, dtype=object), ordered=order is not None)
