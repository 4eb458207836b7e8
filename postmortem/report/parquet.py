"""The events of the timeline -> Parquet, for pandas, DuckDB, Polars and Spark, with the columns of `table`.

pandas.read_parquet("events.parquet").query("severity == 'fatal'")

What acts on a terminal is written out in the texts, as in all outputs. Needs pyarrow (extra `parquet`).
"""

from __future__ import annotations

import io

from postmortem.errors import PostmortemError
from postmortem.report import view
from postmortem.report.table import COLUMNS, cells, table
from postmortem.report.text import visible


def render_parquet(incident: view.Incident) -> bytes:
    """Return the file. Raises PostmortemError where pyarrow is not installed."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        hint = "pip install pyarrow, or write --format csv or ndjson"
        raise PostmortemError("--format parquet needs pyarrow, which is not installed", hint) from None
    import pandas as pd

    rows = table(incident)
    for name in COLUMNS:
        if rows[name].dtype == "category":
            rows[name] = pd.Categorical(cells(rows[name], lambda word: None if word is None else visible(word)))
    held = io.BytesIO()
    rows.to_parquet(held, engine="pyarrow", index=False)
    return held.getvalue()
