"""Columns of events -> a pandas frame with fixed types, built in one place for notebooks and for outputs.

pandas is imported here and where a frame is used, nowhere else: its import takes 0.3 s, half of what the
whole analysis of a small incident takes.
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
    """A row each, in their order: SECONDS as float64 (NaN: not known), NUMBERS as Int64, all else as
    categories, in alphabetical order but for the severity (info to fatal)."""
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
    """Categories of Python's own strings: Arrow's can hold no half of a surrogate pair, and a log can."""
    import pandas as pd

    known = order or sorted({value for value in values if value is not None})
    place = {value: number for number, value in enumerate(known)}
    codes = [place.get(value, -1) for value in values]
    return pd.Categorical.from_codes(codes, pd.Index(known, dtype=object), ordered=order is not None)
