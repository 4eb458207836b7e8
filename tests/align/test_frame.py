"""The timeline as a pandas frame: what everything behind the alignment reads, and what a notebook gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from claims import NOON, event
from postmortem.align import Timeline
from postmortem.analyze import aligned, analyze, concluded
from postmortem.model.frame import COLUMNS, plain

SAMPLES = Path(__file__).parents[2] / "sample_logs"


def test_each_event_is_a_row_with_its_interval_and_columns_have_types() -> None:
    events = (
        event("b", "r1.log", 2, rank=1, at=NOON + 1, at_sigma=0.5, severity="fatal", local_rank=3, host="a"),
        event("a", "r0.log", 1, rank=0, at=NOON, at_sigma=0.0, attempt=1),
        event("nowhere", "x.json", None, at=None),
    )
    timeline = Timeline.of(events)
    frame = timeline.frame
    assert plain(frame["text"]) == ["a", "b", "nowhere"]  # by time, those without one last
    assert frame.index.name == "event_id" and frame.index.tolist() == [1, 0, 2]
    assert list(frame.columns) == [*COLUMNS]
    assert frame["low"][0] == NOON + 1 - 0.98 and frame["high"][0] == NOON + 1 + 0.98
    assert pd.isna(frame["time"][2]) and pd.isna(frame["line"][2])
    assert frame["local_rank"][0] == 3 and frame["attempt"][1] == 1
    assert {name: str(frame[name].dtype) for name in ("time", "rank", "local_rank", "line", "host", "severity")} == {
        "time": "float64", "rank": "Int64", "local_rank": "Int64", "line": "Int64", "host": "category",
        "severity": "category",
    }  # fmt: skip
    assert plain(frame[frame["severity"] >= "error"]["text"]) == ["b"]
    assert timeline.events == [*events], "typed rows of a frame are the events, in the order in which they were read"


def test_a_frame_without_events_has_its_columns() -> None:
    frame = Timeline.of(()).frame
    assert frame.empty and str(frame["rank"].dtype) == "Int64"


def test_numbers_of_any_length_are_no_error() -> None:
    odd: Any = "7.5"
    frame = Timeline.of([event(pid=10**30, rank=3), event(pid=7, rank=-(10**30)), event(pid=odd, rank=2)]).frame
    assert plain(frame["pid"]) == [None, 7, None] and plain(frame["rank"]) == [3, None, 2]


def test_the_diagnosis_reads_the_frame_and_nothing_else() -> None:
    """A cell is changed between the two halves of `analyze`, and the document says so."""
    evidence = aligned([str(SAMPLES / "host-oom-cache-of-rank-2" / "logs")])
    before = concluded(evidence).document["verdict"]
    frame = evidence.timeline.frame.copy()
    killed = frame["source"] == before["evidence"][0]["source"]
    assert before["category"] == "host-oom" and killed.any()
    frame.loc[killed, "time"] += 60
    moved = concluded(replace(evidence, timeline=replace(evidence.timeline, frame=frame))).document["verdict"]
    assert moved["evidence"][0]["time"] != before["evidence"][0]["time"]
    rest = replace(evidence.timeline, frame=frame[~killed])
    without = concluded(replace(evidence, timeline=rest)).document["verdict"]["evidence"]
    assert before["evidence"][0]["source"] not in {row["source"] for row in without}


def test_an_incident_has_its_timeline_for_a_notebook() -> None:
    timeline = analyze([str(SAMPLES / "host-oom-cache-of-rank-2" / "logs")]).timeline
    last = timeline.groupby("rank").last()
    assert last.index.tolist() == [0, 1, 2] and last["time"].notna().all()
