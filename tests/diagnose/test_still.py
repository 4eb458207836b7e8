"""A job that had stood still long before a scheduler ended it, on hand-built events."""

from __future__ import annotations

from typing import Any

import pytest

from claims import NOON, bye, case, claim, event, steps
from postmortem.diagnose.derive.standstill import _long, derive
from postmortem.library import load
from postmortem.model import Event

LIMIT = load()["slurm-time-limit"]


def found(*events: Event, at: float = 3600.0, **more: Any) -> list[str]:
    known = {"raw_time": "…", "clock": "absolute"} | more
    end = event("DUE TO TIME LIMIT", "slurm.out", 3, at=NOON + at, speaker="scheduler", **known)
    return [c.because for c in derive(case(*events, ranks=(0,)), [claim(LIMIT, end)])]


def work(*numbers: int, pace: float = 2.0, **more: Any) -> list[Event]:
    known = {"raw_time": "…", "clock": "absolute"} | more
    return [e._replace(at=NOON + pace * int(str(e.fields["step"]))) for e in steps(0, *numbers, at=NOON, **known)]


def test_a_silence_of_half_an_hour_and_twenty_steps_is_the_story() -> None:
    said = found(*work(1, 100))
    assert said == ["no rank printed a line in the last 57 minutes; before that, up to step 100, a step took 2.0 s"]
    assert found(*work(1, 100), at=200 + 1800)
    assert not found(*work(1, 100), at=200 + 1799)


def test_slow_steps_need_a_longer_silence() -> None:
    assert not found(*work(1, 10, pace=100), at=1000 + 1999)
    assert found(*work(1, 10, pace=100), at=1000 + 2000)


def test_no_limit_is_longer_than_a_month() -> None:
    assert found(*work(1, 100), at=200 + 30 * 86400.0 - 1)
    assert not found(*work(1, 100), at=200 + 30 * 86400.0)


def test_without_a_pace_a_stamp_or_after_a_goodbye_nothing_is_known() -> None:
    assert not found(*work(1))
    assert not found(*work(1, 100, raw_time=""))
    assert not found(*work(1, 100), raw_time="")
    assert not found(*work(1, 100), bye(0, 999, at=NOON, raw_time="…"))
    assert not found()


@pytest.mark.parametrize("clock, at, told", [("naive", 200 + 3600 + 119, False), ("naive", 200 + 3600 + 120, True)])
def test_unknown_zones_explain_whole_half_hours(clock: str, at: float, told: bool) -> None:
    assert bool(found(*work(1, 100), at=at, clock=clock)) is told
    assert bool(found(*work(1, 100, clock=clock), at=at)) is told
    assert found(*work(1, 100), at=at)


def test_the_last_line_of_each_rank_in_each_log_counts() -> None:
    other = event("late", "rank1.log", 5, "line", rank=1, at=NOON + 3500, raw_time="…", clock="absolute",
                  source_kind="console")  # fmt: skip
    assert not found(*work(1, 100), other)
    assert found(*work(1, 100), other._replace(source_kind="kernel"))


@pytest.mark.parametrize(
    "seconds, words",
    [(2.0, "2.0 s"), (9.96, "10.0 s"), (10.0, "10 s"), (99.0, "99 s"), (100.0, "2 minutes"), (5399.0, "90 minutes"),
     (5400.0, "1.5 hours")],
)  # fmt: skip
def test_long_in_words(seconds: float, words: str) -> None:
    assert _long(seconds) == words
