"""Stamps without a year: New Year, 29 February, stale lines, and jobs in which no line has a year."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime
from typing import Any

import claims
from conftest import table
from postmortem.align.years import with_years
from postmortem.formats import times
from postmortem.model import Event

LAST_OF_2026 = "I1231 23:59:58.120000 1 a.py:1] x"
FIRST_OF_2027 = "I0101 00:00:03.410000 1 a.py:1] y"


def event(text: str, line: int = 1, file: str = "rank0.log", **more: Any) -> Event:
    stamp = times.find(text)
    assert stamp is not None
    return claims.event(text, file, line, "line", time=stamp.time, clock=stamp.clock, sigma=stamp.sigma, **more)


def dated(text: str, **more: Any) -> Event:
    return event(text, file="error.log", **more)


def shown(*events: Event) -> list[str]:
    return [f"{datetime.fromtimestamp(e.time or 0, UTC):%Y-%m-%d %H:%M}" for e in with_years(events)]


def test_the_year_of_the_dated_lines() -> None:
    lines = ("2026-11-20 21:01:43,548 INFO x", "[W1120 21:11:09.409017083 reducer.cpp:1529] y")
    found = shown(*(event(text, i + 1) for i, text in enumerate((*lines, "Nov 20 21:12:00 node-a kernel: z"))))
    assert found == ["2026-11-20 21:01", "2026-11-20 21:11", "2026-11-20 21:12"]


def test_new_year_inside_a_file() -> None:
    for moment in ("2027-01-01T00:00:04Z", "2026-12-31T23:59:50Z"):
        found = shown(event(LAST_OF_2026), event(FIRST_OF_2027, 2), dated(moment))
        assert found[:2] == ["2026-12-31 23:59", "2027-01-01 00:00"], moment
    turns = shown(*(event(text, i) for i, text in enumerate([LAST_OF_2026, FIRST_OF_2027] * 2, 1)), dated(moment))
    assert turns[:4] == ["2026-12-31 23:59", "2027-01-01 00:00"] * 2, "lines out of order keep their year"


def test_new_year_where_no_line_has_a_year() -> None:
    """The job stays in one piece: December before January, in every file."""
    early = event("I1231 23:59:59.000000 1 a.py:1] died early", 1, "b.log")
    moments = [e.time or 0.0 for e in with_years([event(LAST_OF_2026), event(FIRST_OF_2027, 2), early])]
    assert abs(moments[1] - moments[0] - 5.29) < 0.01 and abs(moments[2] - moments[0] - 0.88) < 0.01


def test_a_line_of_last_january_is_not_of_the_next() -> None:
    """A syslog reaches back: no line is from the future."""
    old, new = "Jan  5 10:00:00 node-a kernel: old", "Nov 20 21:12:00 node-a kernel: new"
    for lines in ((old, new), (old,)):
        found = shown(*(event(text, i + 1, "messages") for i, text in enumerate(lines)), dated("2026-11-20T21:12:10Z"))
        assert found[: len(lines)] == ["2026-01-05 10:00", "2026-11-20 21:12"][: len(lines)]


def test_a_kernels_old_log_does_not_date_the_job_where_its_own_lines_do() -> None:
    old = [dated("2020-01-01T12:00:00Z", source_kind="kernel")] * 9
    line = event("I1119 12:00:00.000001 1 a.py:1] x")
    assert shown(line, *old, dated("2026-11-20T12:00:00Z"))[0] == "2026-11-19 12:00"
    assert shown(line, *old)[0] == "2019-11-19 12:00"


def test_29_february() -> None:
    leap = event("I0229 12:00:00.000001 1 a.py:1] x")
    assert shown(leap, dated("2028-02-29T12:00:05Z"))[0] == "2028-02-29 12:00"
    assert shown(leap, dated("2026-03-01T12:00:05Z"))[0][5:] == "02-29 12:00"
    lines = [event("I0228 23:59:59.000001 1 a.py:1] x"), event("I0301 00:00:01.000001 1 a.py:1] x", 2)]
    # the placeholder year is a leap year, 2026 is none
    assert shown(*lines, dated("2026-03-01T00:00:05Z"))[:2] == ["2026-02-28 23:59", "2026-03-01 00:00"]


def test_packed_marks_move_with_their_lines() -> None:
    """Step lines are handed over packed; New Year may fall between two of them."""
    stamps = array("d", [event(text).time or 0.0 for text in (LAST_OF_2026, FIRST_OF_2027)])
    packed = event(LAST_OF_2026)._replace(kind="sync", fields={"times": stamps})
    moved: Any = with_years([packed, dated("2027-01-01T00:00:09Z")])[0].fields["times"]
    found = [f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d %H:%M}" for t in moved]
    assert found == ["2026-12-31 23:59", "2027-01-01 00:00"]


def test_an_empty_year_stays_one() -> None:
    """Without any year the date is a placeholder, and nothing pretends otherwise."""
    assert shown(event("I1120 21:00:00.000000 1 a.py:1] x")) == ["1972-11-20 21:00"]


def test_seconds_since_1970_at_the_head_of_a_line() -> None:
    for line, seconds in table("align_years")["seconds"]:
        stamp = times.find(line)
        assert (stamp and stamp.time) == seconds, line
