"""The steps of the comparison of clocks: zones, marks, steps, states and kernels."""

from __future__ import annotations

import zoneinfo
from array import array
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from claims import NOON, event
from postmortem.align import _doubted, consensus, kernel, marks, steps, zones
from postmortem.align.consensus import Segment
from postmortem.align.estimate import TOGETHER, _believable, _one, _turn, began_to_wait
from postmortem.align.owners import ClockId, Owners
from postmortem.align.place import Correction
from postmortem.model import Event
from postmortem.model.details import captured

HOUR = 3600.0

# ── zones ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_zones_of_many_machines() -> None:
    usual = [quarter / 4 for quarter in range(-60, 61) if zones.is_usual(quarter * 900.0)]
    assert usual == [-8, -7, -6, -5, -4, -3, 0, 1, 2, 3, 4, 5.5, 7, 8, 9, 10, 11, 12, 13]


def test_a_zone_exists_where_a_place_on_earth_has_it() -> None:
    names = zoneinfo.available_timezones()
    if not names:
        pytest.skip("this machine has no table of time zones")
    seasons = [datetime(2026, month, 1) for month in (1, 7)]
    kept = {zoneinfo.ZoneInfo(name).utcoffset(day) for name in names for day in seasons}
    hours = {d.total_seconds() / HOUR for d in kept if d is not None}
    assert {quarter / 4 for quarter in range(-60, 61) if zones.exists(quarter * 900.0)} == hours


# ── lines that state when the waiting began ──────────────────────────────────────────────────────────────────────────


def waited(rank: int, ms: object = 600000, **fields: Any) -> Event:
    more = {"ran_ms": ms, "seq": 7, "pg": "0"} | fields
    return event(file=f"r{rank}.log", rank=rank, time=NOON, sigma=0.0, fields=more)


def test_a_time_out_marks_the_moment_at_which_its_rank_began_to_wait() -> None:
    (mark,) = began_to_wait([waited(3)])
    assert (mark.kind, mark.time, mark.sigma) == ("sync", NOON - 600.0, TOGETHER)
    assert [list(mark.fields[name]) for name in ("values", "times", "lines")] == [[0], [NOON - 600.0], [0]]  # type: ignore[call-overload]
    assert mark.fields["columns"] == 1


def test_collectives_of_two_groups_or_of_two_numbers_are_not_the_same() -> None:
    made = began_to_wait([waited(0), waited(1), waited(0, pg="1"), waited(0, seq=8), waited(0)])
    families = [mark.fields["family"] for mark in made]
    assert len(families) == 4 and len(set(families)) == 3
    (nameless,) = began_to_wait([waited(0, pg=None)])
    assert nameless.fields["family"] == "once entered collective 7 of its group"


def test_a_time_that_is_no_number_of_milliseconds_marks_nothing() -> None:
    assert captured({"ran_ms": "600000", "seq": "7", "port": "29500", "frames": "x"}) == {
        "ran_ms": 600000,
        "seq": 7,
        "port": "29500",
    }
    for ms in ("", "12.5", "9" * 19, "many"):
        assert captured({"ran_ms": ms}) == {}
    assert not list(began_to_wait([waited(0, None)]))


# ── the numbers of a line that name the moment ──────────────────────────────────────────────────────────────────────


def printed(*rows: tuple[int, ...], rank: int = 0) -> Event:
    """What one rank printed: the line's shape is column 0, its numbers are the others."""
    flat = array("q", [n for row in rows for n in (7, *row)])
    times = array("d", range(len(rows)))
    fields = {"values": flat, "columns": len(rows[0]) + 1, "times": times, "lines": array("q", range(len(rows)))}
    return event(kind="sync", rank=rank, fields=fields)


def columns(*members: Event, form: str = "progress #") -> tuple[int, ...] | None:
    return marks._key_columns(form, members)


def test_a_number_that_counts_alike_on_all_ranks_names_the_moment() -> None:
    counted = [printed(*((n, 900 + 31 * n % 17 + rank) for n in range(20)), rank=rank) for rank in (0, 1)]
    assert columns(*counted) == (1,)


def test_numbers_that_repeat_need_a_second_one() -> None:
    epochs = [printed(*((n // 5, n % 5) for n in range(20)), rank=rank) for rank in (0, 1)]
    assert columns(*epochs) == (1, 2)


def test_numbers_that_each_rank_draws_itself_name_nothing() -> None:
    drawn = [printed(*((1000 * rank + 37 * n % 101,) for n in range(20)), rank=rank) for rank in (0, 1)]
    assert columns(*drawn) is None


def test_three_of_ten_numbers_in_common_name_the_moment() -> None:
    def drawn(common: int) -> tuple[int, ...] | None:
        numbers = [[37 * n % 11 + 100 * rank * (n >= common) for n in range(10)] for rank in (0, 1)]
        return columns(*(printed(*((n,) for n in own), rank=rank) for rank, own in enumerate(numbers)))

    assert drawn(3) == (1,)
    assert drawn(2) is None


def test_a_constant_counts_where_a_word_names_a_counter() -> None:
    word = marks.WORDS[0]
    once = [printed((3,), rank=rank) for rank in (0, 1)]
    assert columns(*once, form=f"{word} #") == (0, 1)
    assert columns(*once, form="memory #") is None
    own = [printed((rank,), rank=rank) for rank in (0, 1)]
    assert columns(*own, form=f"{word} #") == (0,)  # the rank's own number


def test_rising_numbers_may_step_back_once_in_a_while() -> None:
    def rising(*numbers: int) -> bool:
        return marks._rising([marks._table(printed(*((n,) for n in numbers)))], 1)

    assert rising(*range(20))
    assert rising(*range(11), 5, *range(11, 22))
    assert not rising(*[1, 2, 1, 2] * 5)
    assert not rising(1)


# ── where a clock was set ────────────────────────────────────────────────────────────────────────────────────────────


def cut(*offsets: float, apart: float = 1.0) -> int | None:
    """The number of marks before the step."""
    x = np.arange(len(offsets)) * apart
    found = steps._best_cut(x, np.array(offsets), 0.05)
    return None if found is None else found[0]


def test_a_step_lies_between_the_marks_of_either_level() -> None:
    assert cut(0, 0, 0, 0, 0, 5, 5, 5, 5, 5) == 5
    assert cut(0, 0, 0, 9, 0, 5, 5, 5, 5, 5) == 5  # one of them was late
    assert cut(-5, -5, -5, 5, 5, 5) == 3


def test_a_step_is_larger_than_the_error_of_both_levels() -> None:
    assert cut(0, 0, 0, 0.11, 0.11) == 3
    assert cut(0, 0, 0, 0.1, 0.1) is None


def test_two_marks_on_a_side_are_enough_and_one_is_not() -> None:
    assert cut(0, 0, 5, 5, 5, 5, 5, 5) == 2
    assert cut(0, 0, 0, 0, 0, 0, 5, 5) == 6
    assert cut(0, 5, 5, 5, 5, 5, 5, 5) is None
    assert cut(0, 0, 0, 0, 0, 0, 0, 5) is None


def test_a_steady_drift_of_hours_is_no_step() -> None:
    assert cut(*(0.01 * n for n in range(40)), apart=600.0) is None


# ── how good a comparison is ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_state_of_a_clock_by_its_common_lines() -> None:
    def state(*near: int, marks: int = 0) -> str:
        return consensus._state([bool(n) for n in near], marks or len(near))[0]

    assert state(marks=3) == "weak"
    assert state(*[1] * consensus.LEAST) == "aligned"
    assert state(*[1] * (consensus.LEAST - 1)) == "weak"
    assert state(*[1] * 5, *[0] * 6) == "refused"
    assert state(*[1] * (2 * consensus.LEAST), 0, 0) == "refused"
    assert state(*[1] * (2 * consensus.LEAST), 1, 0) == "aligned"


# ── one or two common lines ──────────────────────────────────────────────────────────────────────────────────────────


def segment(offset: float = 0.0, marks: int = 2, inliers: int = 2, **more: Any) -> Segment:
    usual: dict[str, Any] = {"state": "weak", "why": "", "first": 0.0, "last": 9.0, "drift": False, "alone": 0.0}
    return Segment(Correction(offset=offset), marks, inliers, **(usual | more))


def believed(*segments: Segment, kind: Any = "naive", how: str = "named") -> bool:
    clock = ClockId("a", 0, kind, False)
    found = consensus.Consensus({clock: segments}, ((clock,),), {}, {}, {})
    return _believable(clock, found, how)


def test_many_lines_or_three_that_agree_are_trusted_with_any_offset() -> None:
    assert believed(segment(333.0, marks=4))
    assert believed(segment(333.0, marks=2), segment(333.0, marks=2))
    assert believed(segment(333.0, marks=3, inliers=3))
    assert not believed(segment(333.0, marks=3))


def test_one_or_two_are_trusted_where_machines_have_such_a_clock() -> None:
    assert believed(segment(100.0)) and not believed(segment(130.0))
    assert believed(segment(-5 * HOUR + 100.0))
    assert not believed(segment(-5 * HOUR), kind="absolute")
    assert not believed(segment(0.25 * HOUR))
    for how in ("open", "alone"):
        assert believed(segment(0.25 * HOUR), how=how)
    assert believed(segment(0.0), segment(130.0, marks=1))


def test_the_span_of_a_log_shows_its_zone() -> None:
    others = (NOON, NOON + 600)

    def span(first: float, last: float) -> float | None:
        return zones.by_span((NOON + first, NOON + last), others)

    assert span(2 * HOUR, 2 * HOUR + 600) == 2 * HOUR
    assert span(2 * HOUR + 100, 2 * HOUR + 300) == 2 * HOUR
    assert span(2 * HOUR + 300, 2 * HOUR + 600) == 2 * HOUR
    assert span(2 * HOUR + 130, 2 * HOUR + 300) is None
    assert span(29 * HOUR, 29 * HOUR + 600) is None
    assert span(500, 2 * HOUR + 500) == span(600, 2 * HOUR) == 0.0  # they meet


def test_a_line_a_quarter_of_an_hour_after_the_others_is_no_zone() -> None:
    """slurmstepd's `DUE TO TIME LIMIT`, 15 or 30 minutes after the last step of a job that hung."""
    others = (NOON, NOON + 600)
    for pause in (900, 1800, 2700, 4500, 6300):
        assert zones.by_span((NOON + 600 + pause, NOON + 600 + pause), others) is None, pause
    for zone in (5.5 * HOUR, -3.5 * HOUR):  # India, Newfoundland
        assert zones.by_span((NOON + 600 + zone, NOON + 600 + zone), others) == zone


# ── a kernel's clock ─────────────────────────────────────────────────────────────────────────────────────────────────

ABSOLUTE, LOCAL, BOOT = (ClockId("a", 0, kind, True) for kind in ("absolute", "naive", "boot"))  # type: ignore[arg-type]


def test_kills_agree_on_the_smallest_interval_that_most_of_them_share() -> None:
    three = kernel._by_kills([(0.0, 4.0), (1.0, 6.0), (2.0, 9.0)])
    assert three and (three.offset, three.events, three.state) == (-3.0, 3, "aligned")
    assert three.sigma == pytest.approx(2.0 / 12**0.5)
    two = kernel._by_kills([(0.0, 4.0), (1.0, 6.0)])
    assert two and (two.events, two.state) == (2, "weak")
    split = kernel._by_kills([(0.0, 1.0)] * 3 + [(50.0 + n, 50.5 + n) for n in range(3)])
    assert split and (split.events, split.state, split.sigma) == (3, "weak", 0.3)
    unbounded = kernel._by_kills([(-900.0, 0.0)])
    assert unbounded and unbounded.offset == pytest.approx(kernel.AGENT_S / 4)


def test_a_kill_lies_between_the_last_line_and_the_launchers_report() -> None:
    def windows(kill: Event, *others: Event) -> list[tuple[float, float]]:
        owner = Owners([kill, *others])
        ends, lasts, _ = kernel._ends(others, owner, lambda e: (e.time or 0.0, e.sigma))
        return kernel._windows({LOCAL: [kill]}, ends, lasts).get(LOCAL, [])

    kill = event("Killed process 77", "dmesg", time=1000.0, clock="naive", host="a", speaker="kernel", pid=77)
    line = event("step 1", time=995.0, clock="naive", sigma=0.5, host="a", rank=3, kind="line")
    end = event("exit", "agent.err", time=1003.0, clock="naive", sigma=0.5, host="a", rank=3, pid=77, kind="exit")
    assert windows(kill, line, end) == [(-6.0, 4.0)]
    assert windows(kill, end) == [(4.0 - 900, 4.0)]
    assert windows(kill, line, end._replace(time=1002.0), end) == [(-6.0, 3.0)]
    assert windows(kill, line, end._replace(sigma=31.0)) == []
    assert windows(kill, line._replace(sigma=31.0), end) == [(4.0 - 900, 4.0)]
    assert windows(kill, line._replace(rank=4), end) == [(4.0 - 900, 4.0)]
    assert windows(kill, line, end._replace(pid=78)) == []
    elsewhere = windows(kill, end._replace(host="b"))
    assert len(elsewhere) == 1  # a pid that only one host has
    assert windows(kill, end._replace(host="b"), end._replace(host="c")) == []


def test_without_a_kill_a_kernels_wall_time_is_read_by_the_hosts_clock() -> None:
    """`dmesg -T` has the host's zone and its skew, `--time-format iso` states its zone."""
    host = 7200.0, lambda _: 5.0  # zone and skew
    for clock, known, read in (
        (LOCAL, host, (7205.0, 7200.0)),
        (ABSOLUTE, host, (5.0, 0.0)),
        (ABSOLUTE, None, (0.0, 0.0)),
    ):
        found = kernel._bridge(clock, {clock: {"Xid 79": NOON}}, [], {}, known)
        assert found and (found.offset, found.zone, found.state) == (*read, "weak")
    assert kernel._bridge(LOCAL, {LOCAL: {"Xid 79": NOON}}, [], {}, None) is None


def test_a_kernel_that_only_a_rejected_clock_joins_is_rejected_unless_it_states_its_zone() -> None:
    bridge = kernel.Bridge(5.0, 0.0, 1.0, 1, "weak", "a kill")
    own = {ClockId("a", 0, "naive", False): _one(Correction(), None, False, 9, "refused", "")}
    states = [_doubted(clock, bridge, own).state for clock in (BOOT, LOCAL, ABSOLUTE)]
    assert states == ["refused", "refused", "weak"]


# ── reasons ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_how_much_the_rate_of_a_clock_changed() -> None:
    """10 ppm for an hour, then 4: a change of 6. A knot that is hardly known does not count."""
    bends = (0.0, 3600.0, 7200.0, 9000.0), (1.0, 1.036, 1.0504, 9.0), (0.0, 0.0, 0.0, 1.0)
    segment = Segment(Correction(bends=bends), 9, 9, "aligned", "", 0.0, 9000.0, True, 0.0)
    assert _turn(segment) == pytest.approx(6.0)
    assert _turn(segment._replace(correction=Correction())) == 0.0
