"""Stamps without a year: New Year, 29 February, stale lines, and jobs in which no line has a year."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime

import pytest

from postmortem.align.years import with_years
from postmortem.formats import times
from postmortem.model import ClockKind, Event, Where


def event(text: str, line: int = 1, source: str = "rank0.log", clock: ClockKind | None = None) -> Event:
    stamp = times.find(text)
    assert stamp is not None
    return Event("line", Where(source, line), text, time=stamp.time, clock=clock or stamp.clock, sigma=stamp.sigma)


def shown(events: list[Event]) -> list[str]:
    return [f"{datetime.fromtimestamp(e.time or 0, UTC):%Y-%m-%d %H:%M}" for e in with_years(events)]


def test_the_year_of_the_dated_lines() -> None:
    lines = [
        "2026-11-20 21:01:43,548 INFO x",
        "[W1120 21:11:09.409017083 reducer.cpp:1529] y",
        "Nov 20 21:12:00 node-a kernel: z",
    ]
    assert shown([event(t, i + 1) for i, t in enumerate(lines)]) == [
        "2026-11-20 21:01",
        "2026-11-20 21:11",
        "2026-11-20 21:12",
    ]


def test_new_year_inside_a_file() -> None:
    glog = ["I1231 23:59:58.120000 1 a.py:1] x", "I0101 00:00:03.410000 1 a.py:1] y"]
    dated = event("2027-01-01T00:00:04Z", 1, "error.log")
    assert shown([*(event(t, i + 1) for i, t in enumerate(glog)), dated])[:2] == [
        "2026-12-31 23:59",
        "2027-01-01 00:00",
    ]
    dated = event("2026-12-31T23:59:50Z", 1, "error.log")
    assert shown([*(event(t, i + 1) for i, t in enumerate(glog)), dated])[:2] == [
        "2026-12-31 23:59",
        "2027-01-01 00:00",
    ]


def test_new_year_where_no_line_has_a_year() -> None:
    """The job stays in one piece: December before January, in every file."""
    events = [
        event("I1231 23:59:58.120000 1 a.py:1] x", 1, "a.log"),
        event("I0101 00:00:03.410000 1 a.py:1] y", 2, "a.log"),
    ]
    events.append(event("I1231 23:59:59.000000 1 a.py:1] died early", 1, "b.log"))
    first, second, other = with_years(events)
    assert second.time is not None and first.time is not None and other.time is not None
    assert abs(second.time - first.time - 5.29) < 0.01 and abs(other.time - first.time - 0.88) < 0.01


def test_a_line_of_last_january_is_not_of_the_next() -> None:
    """A syslog reaches back: nobody logs what is still to come."""
    lines = ["Jan  5 10:00:00 node-a kernel: old", "Nov 20 21:12:00 node-a kernel: new"]
    dated = event("2026-11-20T21:12:10Z", 1, "error.log")
    assert shown([*(event(t, i + 1, "messages") for i, t in enumerate(lines)), dated])[:2] == [
        "2026-01-05 10:00",
        "2026-11-20 21:12",
    ]
    only_old = [event(lines[0], 1, "messages"), dated]
    assert shown(only_old)[0] == "2026-01-05 10:00"


def test_29_february() -> None:
    assert (
        shown([event("I0229 12:00:00.000001 1 a.py:1] x"), event("2028-02-29T12:00:05Z", 1, "b")])[0]
        == "2028-02-29 12:00"
    )
    lines = [
        event("I0228 23:59:59.000001 1 a.py:1] x"),
        event("I0301 00:00:01.000001 1 a.py:1] x", 2),
        event("2026-03-01T00:00:05Z", 1, "b"),
    ]
    # the placeholder year is a leap year, 2026 is none
    assert shown(lines)[:2] == ["2026-02-28 23:59", "2026-03-01 00:00"]
    assert (
        shown([event("I0229 12:00:00.000001 1 a.py:1] x"), event("2026-03-01T12:00:05Z", 1, "b")])[0][5:]
        == "02-29 12:00"
    )


def test_packed_marks_move_with_their_lines() -> None:
    """Step lines are handed over packed; New Year may fall between two of them."""
    packed = event("I1231 23:59:58.000000 1 a.py:1] step 1")
    stamps = [times.find(f"I{t} 1 a.py:1]") for t in ("1231 23:59:58.000000", "0101 00:00:08.000000")]
    packed = packed._replace(kind="sync", fields={"times": array("d", [s.time for s in stamps if s])})
    moved = with_years([packed, event("2027-01-01T00:00:09Z", 1, "b")])[0]
    assert [f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d %H:%M}" for t in moved.fields["times"]] == [
        "2026-12-31 23:59",
        "2027-01-01 00:00",
    ]


def test_an_empty_year_stays_one() -> None:
    """Without any year the date is a placeholder, and nothing pretends otherwise."""
    assert shown([event("I1120 21:00:00.000000 1 a.py:1] x")]) == ["1972-11-20 21:00"]


@pytest.mark.parametrize(
    "line, seconds",
    [
        ("1795182042.135 rank42 step 58 loss 2.1", 1795182042.135),  # ts %.s
        ("[1795182042.135] step 5", 1795182042.135),
        ("1795182042135 [rank2] step 5", 1795182042.135),
        ("1795182042135123456: step 5", 1795182042.1351235),
        ('ts=1795182042.135 level=info msg="step 5"', 1795182042.135),
        ("[1795182042] step 4", 1795182042.0),
        ("1743254528 parameters", None),  # whole seconds look like any number
        ("17951820421 tokens", None),
        ("[ 2612.608042] NVRM: Xid", 2612.608042),  # since boot
    ],
)
def test_seconds_since_1970_at_the_head_of_a_line(line: str, seconds: float | None) -> None:
    stamp = times.find(line)
    assert (stamp and stamp.time) == seconds
