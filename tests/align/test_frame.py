"""The timeline as a pandas frame, for notebooks."""

from __future__ import annotations

import pandas as pd

from claims import NOON, event
from postmortem.align import FRAME, Timeline


def test_each_event_is_a_row_with_its_interval_and_columns_have_types() -> None:
    events = (
        event("b", "r1.log", 2, rank=1, at=NOON + 1, at_sigma=0.5, severity="fatal", local_rank=3, host="a"),
        event("a", "r0.log", 1, rank=0, at=NOON, at_sigma=0.0, attempt=1),
        event("nowhere", "x.json", None, at=None),
    )
    frame = Timeline(events, ()).frame()
    assert list(frame["text"]) == ["a", "b", "nowhere"]  # by time, those without one last
    assert list(frame.columns) == ["time", "low", "high", *FRAME[1:]]
    assert frame["low"][1] == NOON + 1 - 0.98 and frame["high"][1] == NOON + 1 + 0.98
    assert pd.isna(frame["time"][2]) and pd.isna(frame["line"][2])
    assert frame["local_rank"][1] == 3 and frame["attempt"][0] == 1
    assert {name: str(frame[name].dtype) for name in ("time", "rank", "local_rank", "line", "host", "severity")} == {
        "time": "float64", "rank": "Int64", "local_rank": "Int64", "line": "Int64", "host": "category",
        "severity": "category",
    }  # fmt: skip
    assert frame[frame["severity"] >= "error"]["text"].tolist() == ["b"]


def test_a_frame_without_events_has_its_columns() -> None:
    frame = Timeline((), ()).frame()
    assert frame.empty and str(frame["rank"].dtype) == "Int64"
