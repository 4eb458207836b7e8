"""Timestamps without a year: New Year, 29 February, stale lines, and jobs in which no line has a year."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime

import pytest

from postmortem.align import years
from postmortem.formats import times
from postmortem.model import Event, Where


def event(text: str, line: int = 1, source: str = "rank0.log") -> Event:
    stamp = times.find(text)
    assert stamp is not None
    return Event("line", Where(source, line), text, time=stamp.time, clock=stamp.clock, sigma=stamp.sigma)


def of(*texts: str) -> list[Event]:
    return [event(text, line) for line, text in enumerate(texts, 1)]


def shown(events: list[Event]) -> list[str]:
    return [f"{datetime.fromtimestamp(e.time or 0, UTC):%Y-%m-%d %H:%M}" for e in years.with_years(events)]


def glog(*days: str) -> tuple[str, ...]:
    return tuple(f"I{day} 12:00:00.000001 1 a.py:1] x" for day in days)


TURN = ("I1231 23:59:58.120000 1 a.py:1] x", "I0101 00:00:03.410000 1 a.py:1] y")
TURNED = ["2026-12-31 23:59", "2027-01-01 00:00"]
OLD = "Jan  5 10:00:00 node-a kernel: old"
# the lines of one file, a line with a year in another file, and the times of the former
CASES = (
    (("[W1120 21:11:09.409017083 reducer.cpp:1529] y", "Nov 20 21:12:00 node-a kernel: z"), "2026-11-20 21:01:43,548 INFO x",
     ["2026-11-20 21:11", "2026-11-20 21:12"]),
    (TURN, "2027-01-01T00:00:04Z", TURNED),
    (TURN, "2026-12-31T23:59:50Z", TURNED),
    (glog("1231", "0101") * 2, "2027-01-01T12:00:00Z", ["2026-12-31 12:00", "2027-01-01 12:00"] * 2),  # out of order
    ((OLD, "Nov 20 21:12:00 node-a kernel: new"), "2026-11-20T21:12:10Z", ["2026-01-05 10:00", "2026-11-20 21:12"]),
    ((OLD,), "2026-11-20T21:12:10Z", ["2026-01-05 10:00"]),  # a syslog reaches back
    (glog("1119"), "2026-11-20T12:00:00Z", ["2026-11-19 12:00"]),
    (glog("1127"), "2026-11-20T12:00:05Z", ["2026-11-27 12:00"]),
    (glog("1128"), "2026-11-20T12:00:00Z", ["2025-11-28 12:00"]),
    (glog("0229"), "2028-02-29T12:00:05Z", ["2028-02-29 12:00"]),
    (glog("0229"), "2026-03-01T12:00:05Z", ["2024-02-29 12:00"]),
    (("I0228 23:59:59.000001 1 a.py:1] x", "I0301 00:00:01.000001 1 a.py:1] x"), "2026-03-01T00:00:05Z",
     ["2026-02-28 23:59", "2026-03-01 00:00"]),  # the placeholder year is a leap year, 2026 is none
)  # fmt: skip


def test_the_lines_of_a_file_get_the_year_of_the_lines_with_dates() -> None:
    for lines, dated, wanted in CASES:
        assert shown([*of(*lines), event(dated, 1, "error.log")])[:-1] == wanted, (lines, dated)


def test_a_kernels_old_log_does_not_date_the_job_where_its_own_lines_do() -> None:
    old = event("2020-01-01T12:00:00Z", 1, "k")._replace(source_kind="kernel")
    day = event("2026-11-20T12:00:00Z", 1, "d.log")
    assert shown([day, *[old] * 9, *of(*glog("1119"))])[-1] == "2026-11-19 12:00"
    assert shown([old, *of(*glog("0102"))])[-1] == "2020-01-02 12:00"


def test_a_job_without_any_year_stays_in_one_piece() -> None:
    """December before January in every file; the year is a placeholder."""
    early = event("I1231 23:59:59.000000 1 a.py:1] died early", 1, "b.log")
    first, second, other = [e.time or 0.0 for e in years.with_years([*of(*TURN), early])]
    assert (second - first, other - first) == pytest.approx((5.29, 0.88), abs=0.01)
    assert shown(of(*glog("1120"))) == ["1972-11-20 12:00"]


def test_packed_step_lines_move_with_the_year_of_the_first() -> None:
    stamps = array("d", [e.time or 0.0 for e in of(*TURN)])
    packed = of(TURN[0])[0]._replace(kind="sync", fields={"times": stamps})
    moved = years.with_years([packed, event("2027-01-01T00:00:09Z", 1, "b")])[0].fields["times"]
    assert isinstance(moved, array)
    assert [f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d %H:%M}" for t in moved] == TURNED


def test_the_note_on_the_chosen_years() -> None:
    def note(*days: str) -> str:
        return years.note_on([datetime.fromisoformat(f"{day}T12:00Z").timestamp() for day in days])

    assert note() == note("2026-11-20") == ""
    assert note("2026-12-31", "2027-01-01").startswith("stamps without a year: 2026 before New Year, 2027")
    assert "29 February" in note("2024-02-29")
    assert note(f"{years.NO_YEAR}-05-05") == "no line of the job names the year"


def test_seconds_since_1970_at_the_head_of_a_line() -> None:
    for line, seconds in {
        "1795182042.135 rank42 step 58 loss 2.1": 1795182042.135,  # ts %.s
        "[1795182042.135] step 5": 1795182042.135,
        "1795182042135 [rank2] step 5": 1795182042.135,
        "1795182042135123456: step 5": 1795182042.1351235,
        'ts=1795182042.135 level=info msg="step 5"': 1795182042.135,
        "[1795182042] step 4": 1795182042.0,
        "1743254528 parameters": None,  # whole seconds look like any number
        "17951820421 tokens": None,
        "[ 2612.608042] NVRM: Xid": 2612.608042,  # since boot
    }.items():
        stamp = times.find(line)
        assert (stamp and stamp.time) == seconds, line
