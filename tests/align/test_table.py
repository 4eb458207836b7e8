"""Clocks without a line in common and the table of clocks, on hand-built estimates; and the timeline as a pandas frame:
what everything behind the alignment reads, and what a notebook gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

import postmortem.align as room
from claims import NOON, event
from postmortem.align import Timeline, align
from postmortem.align.estimate import (
    LOST,
    UNCOMPARED,
    ZONE_ONLY,
    Estimate,
    Row,
    _one,
    _ranks_apart,
    _take_lonely,
    _take_twins,
)
from postmortem.align.owners import ClockId
from postmortem.align.place import Correction
from postmortem.analyze import aligned, analyze, concluded
from postmortem.model import Event
from postmortem.model.frame import COLUMNS, plain

HOUR = 3600.0


def clock(host: str | None = "a", kind: Any = "naive", kernel: bool = False) -> ClockId:
    return ClockId(host, 0, kind, kernel)


A, B, DATED = clock("a"), clock("b"), clock("a", "absolute")
SPAN = (NOON, NOON + 600)


def unrelated(*clocks: ClockId, named: Any = (), how: str = "", **spans: Any) -> dict[ClockId, Row]:
    found: dict[ClockId, Estimate] = {}
    both = {c: spans.get(c.host or "", SPAN) for c in clocks}
    _take_lonely(clocks, found, dict(named), both, how)
    return {c: e.rows[0] for c, e in found.items()}


# ── clocks with nothing in common ────────────────────────────────────────────────────────────────────────────────────


def test_one_host_alone_is_read_as_it_is() -> None:
    dated = unrelated(DATED)[DATED]
    assert (dated.zone, dated.known, dated.events, dated.state) == (0.0, True, 0, "weak")
    assert dated.correction == Correction()
    named = unrelated(A, named={A: 2 * HOUR})[A]
    assert (named.zone, named.known, named.events, named.state) == (2 * HOUR, True, 1, "aligned")
    assert named.correction == Correction(shift=2 * HOUR)
    alone = unrelated(A)[A]
    assert (alone.zone, alone.known, alone.state) == (None, False, "weak")
    assert "read as UTC" in alone.reason


def test_beside_another_host_its_skew_is_not_known() -> None:
    both = unrelated(DATED, clock("b", "absolute"))
    assert [row.correction.floor for row in both.values()] == [UNCOMPARED, UNCOMPARED]
    named = unrelated(A, B, named={A: 2 * HOUR, B: 0.0}, a=(NOON + 2 * HOUR, NOON + 2 * HOUR + 600))
    assert [(row.zone, row.state) for row in named.values()] == [(2 * HOUR, "weak"), (0.0, "weak")]


def test_a_log_with_the_span_of_the_others_has_their_zone() -> None:
    dated = clock("b", "absolute")
    same = unrelated(dated, A)[A]
    assert (same.zone, same.known, same.state, same.correction.floor) == (0.0, True, "weak", UNCOMPARED)
    abroad = unrelated(dated, A, a=(NOON + 2 * HOUR, NOON + 2 * HOUR + 600))[A]
    assert (abroad.zone, abroad.correction.shift) == (2 * HOUR, 2 * HOUR)
    assert (abroad.known, abroad.correction.floor) == (True, ZONE_ONLY)
    never = unrelated(dated, A, a=(NOON + 40 * HOUR, NOON + 41 * HOUR))[A]
    assert (never.zone, never.known, never.state, never.correction.floor) == (None, False, "refused", LOST)


# ── two forms of one clock ───────────────────────────────────────────────────────────────────────────────────────────


def twin(of: Estimate, named: Any = (), host: str = "a") -> Estimate | None:
    local = clock(host)
    found = {DATED: of}
    _take_twins(found, dict(named), {DATED: SPAN, local: SPAN})
    return found.get(local)


def test_another_form_of_a_hosts_stamps_has_the_same_skew() -> None:
    known = _one(Correction(offset=7.0, floor=0.2), 0.0, True, 9, "aligned", "compared")
    found = twin(known, {A: 2 * HOUR})
    assert found is not None
    assert found.rows[0].correction == Correction(shift=2 * HOUR, offset=7.0, floor=0.2)
    assert (found.rows[0].zone, found.rows[0].state) == (2 * HOUR, "aligned")
    assert found.rows[0].reason == "the same clock as the host's stamps with a zone (compared)"
    assert twin(known) is None  # its zone is not known
    assert twin(known, {B: 0.0}, host="b") is None
    assert twin(_one(Correction(), None, True, 9, "weak", ""), {A: 2 * HOUR}) is None


# ── sets of clocks ───────────────────────────────────────────────────────────────────────────────────────────────────


def sync(rank: int | None, *times: float, **more: Any) -> Event:
    fields = {"family": "step #", "columns": 1, "values": list(range(len(times))), "times": list(times)}
    return event(kind="sync", rank=rank, fields=fields, **more)


def test_ranks_of_one_unnamed_host_print_a_line_within_a_second() -> None:
    one = sync(0, 10.0, 20.0)
    assert not _ranks_apart([one, sync(1, 11.0, 21.0)])
    assert _ranks_apart([one, sync(1, 11.1, 21.0)])
    assert _ranks_apart([one, sync(1, 10.0, 18.9)])
    assert not _ranks_apart([one, sync(None, 15.0)])
    assert not _ranks_apart([one, sync(1, 15.0, host="b")])
    assert not _ranks_apart([one, sync(1, 15.0, run="r")])


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_lines_of_one_file_are_shown_in_order_though_stamps_go_back_a_little() -> None:
    def shown(*times: float | None, files: str = "aaa", lines: Sequence[int] = (1, 2, 3)) -> list[float | None]:
        rows = zip(files, lines, times, strict=False)
        return plain(room.Timeline.of([event(file=f, line=n, at=t) for f, n, t in rows]).frame["time"])

    wavers = room.IN_ORDER
    assert shown(10.0, 9.0 - wavers + 1.0, 12.0) == [10.0, 9.0 - wavers + 1.0, 12.0]
    assert shown(10.0, 9.9 - wavers) == [9.9 - wavers, 10.0]
    assert shown(10.0, None, 11.0) == [10.0, 11.0, None]
    assert shown(10.0, 9.9, files="ab") == [9.9, 10.0]
    assert shown(10.0, 9.9, lines=(2, 1)) == [9.9, 10.0]


def test_a_clock_is_shown_at_the_last_moment_that_is_known_well() -> None:
    def at(*events: Event) -> float | None:
        return align(events).clocks[0].at

    def line(time: float, sigma: float = 0.0) -> Event:
        return event(file="a.log", kind="line", time=time, clock="absolute", sigma=sigma)

    assert at(line(NOON), line(NOON + 9)) == NOON + 9
    assert at(line(NOON), line(NOON + 99, 59.0)) == NOON + 99
    assert at(line(NOON), line(NOON + 99, 61.0)) == NOON
    assert at(line(1000.0)) is None


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
