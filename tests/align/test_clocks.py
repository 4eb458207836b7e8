"""Zones and how likely they are, steps, kernels, and what too few lines are worth."""

from __future__ import annotations

import zoneinfo
from array import array
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from claims import NOON, event
from postmortem.align import align, consensus, kernel, place, steps, waits, zones
from postmortem.align.consensus import Segment
from postmortem.align.estimate import _believable, _jump, _turn
from postmortem.align.kernel import Bridge
from postmortem.align.owners import ClockId, Owners
from postmortem.align.place import Correction
from postmortem.model import Clock, Event

HOUR = 3600.0

# ── zones ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_zone_exists_where_the_world_keeps_it() -> None:
    names = zoneinfo.available_timezones()
    if not names:
        pytest.skip("this machine has no table of time zones")
    seasons = [datetime(2026, month, 1) for month in (1, 7)]
    kept = {zoneinfo.ZoneInfo(name).utcoffset(day) for name in names for day in seasons}
    hours = {d.total_seconds() / HOUR for d in kept if d is not None}
    assert {quarter / 4 for quarter in range(-60, 61) if zones.exists(quarter * 900.0)} == hours


LIKELIHOOD = (  # from where most machines stand to where none does
    [0],
    [-8, -7, -5, -4, 1, 2, 8, 9, 5.5],
    [-6],
    [3, 10],
    [11, -3, 4, 7],
    [12, 13],
    [9.5, 10.5],
    [-12, -11, -10, -9.5, -3.5, -2.5, -1, 3.5, 4.5, 5, 5.75, 6.5, 8.75, 12.75, 13.75, 14],
    [0.25, -13, 15],
)


def test_zones_of_one_region_are_equally_likely_and_others_less() -> None:
    weights = [{zones.weight(hours * HOUR) for hours in group} for group in LIKELIHOOD]
    assert all(len(group) == 1 for group in weights)
    assert all(max(after) < min(before) for before, after in pairwise(weights))
    assert max(weights[-1]) < 1e-3 * min(weights[-2])


def test_utc_outweighs_any_other_reading_by_more_than_what_is_clear() -> None:
    others = [zones.weight(h * HOUR) for h in range(-12, 15) if h]
    assert zones.weight(0.0) > zones.CLEAR * max(others)


# ── lines that state when the waiting began ──────────────────────────────────────────────────────────────────────────


def waited(rank: int, ms: Any = "600000", **fields: Any) -> Event:
    fields = {"ran_ms": ms, "seq": "7", "pg": "0"} | fields
    return event(file=f"r{rank}.log", rank=rank, time=NOON, sigma=0.0, fields=fields)


def test_a_time_out_marks_the_moment_at_which_its_rank_began_to_wait() -> None:
    (mark,) = waits.marks([waited(3)])
    assert (mark.kind, mark.time, mark.sigma) == ("sync", NOON - 600.0, waits.APART)
    assert [list(mark.fields[name]) for name in ("values", "times", "lines")] == [[0], [NOON - 600.0], [0]]  # type: ignore[call-overload]
    assert mark.fields["columns"] == 1


def test_collectives_of_two_groups_or_of_two_numbers_are_not_the_same() -> None:
    made = waits.marks([waited(0), waited(1), waited(0, pg="1"), waited(0, seq="8"), waited(0)])
    families = [mark.fields["family"] for mark in made]
    assert len(families) == 4 and len(set(families)) == 3
    (nameless,) = waits.marks([waited(0, pg=None)])
    assert nameless.fields["family"] == "once entered collective 7 of its group"


def test_a_line_without_milliseconds_a_stamp_a_rank_or_a_number_marks_nothing() -> None:
    e = waited(0)
    assert not list(waits.marks([waited(0, ms) for ms in ("", "12.5", "9" * 10, 600000, None)]))
    assert not list(waits.marks([e._replace(time=None), e._replace(rank=None), waited(0, seq=None)]))
    assert len(list(waits.marks([waited(0, "9" * 9)]))) == 1


# ── where a clock was set ────────────────────────────────────────────────────────────────────────────────────────────


def cut(*offsets: float, apart: float = 1.0) -> int | None:
    """The number of marks before the step."""
    x = np.arange(len(offsets)) * apart
    found = steps._best_cut(x, np.array(offsets), 0.05)
    return None if found is None else found[0]


def test_a_step_lies_between_the_marks_of_either_level() -> None:
    assert cut(0, 0, 0, 0, 0, 5, 5, 5, 5, 5) == 5
    assert cut(0, 0, 0, 9, 0, 5, 5, 5, 5, 5) == 5  # one of them was late


def test_two_marks_on_a_side_are_enough_and_one_is_not() -> None:
    assert cut(0, 0, 5, 5, 5, 5, 5, 5) == 2
    assert cut(0, 0, 0, 0, 0, 0, 5, 5) == 6
    assert cut(0, 5, 5, 5, 5, 5, 5, 5) is None
    assert cut(0, 0, 0, 0, 0, 0, 0, 5) is None


def test_levels_that_lie_near_each_other_are_no_step() -> None:
    assert cut(*[0.0] * 5, *[0.1] * 5) is None
    assert cut(*[0.0] * 5, *[0.12] * 5) == 5


def test_marks_that_lie_on_no_level_show_no_step() -> None:
    assert cut(0, 3, 7, 1, 9, 5, 14, 8, 11, 6) is None
    assert cut(0, 1, 0, 2, 0, 5, 7, 5, 8, 5) == 5
    assert cut(0, 1, 0, 2, 3, 5, 7, 5, 8, 9) is None


def test_a_steady_drift_of_hours_is_no_step() -> None:
    assert cut(*(0.01 * n for n in range(40)), apart=600.0) is None


def test_a_cut_moves_to_where_the_levels_change() -> None:
    levels = np.array([0.0, 0.1, 0.0, 0.1, 5.0, 5.1, 5.0, 5.0, 5.1, 5.0])
    assert {steps._sharpened(levels, guess, 0.0, 5.0) for guess in range(10)} == {4}
    late = levels.copy()
    late[2] = 2.4  # nearer to the level before
    assert steps._sharpened(late, 4, 0.0, 5.0) == 4


def test_single_outliers_start_no_search() -> None:
    def off(*where: int) -> bool:
        far = np.zeros(12, dtype=bool)
        far[list(where)] = True
        return steps._in_a_row(far)

    assert not off(3) and not off(3, 4) and not off(2, 6, 9) and not off(0) and not off(11)
    assert off(3, 4, 5) and off(3, 4, 6) and off(0, 1) and off(10, 11)


# ── how good a comparison is ─────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_clocks_common_lines_are_worth() -> None:
    def state(*near: int, marks: int = 0) -> str:
        return consensus._state([bool(n) for n in near], marks or len(near))[0]

    assert state(marks=3) == "weak"
    assert state(*[1] * consensus.LEAST) == "aligned"
    assert state(*[1] * (consensus.LEAST - 1)) == "weak"
    assert state(*[1] * 5, *[0] * 6) == "refused"
    assert state(*[1] * (2 * consensus.LEAST), 0, 0) == "refused"
    assert state(*[1] * (2 * consensus.LEAST), 1, 0) == "aligned"


def test_too_few_lines_are_counted_in_words() -> None:
    assert consensus._state([], 1)[1] == "only 1 common line, accurate only to seconds"
    assert consensus._state([], 2)[1] == "only 2 common lines, accurate only to seconds"
    assert consensus._state([True], 1)[1].startswith("only 1 common line: too few")


def synced(host: str, n: int, apart: float, skew: float = 0.0) -> list[Event]:
    """A host's own line, and the lines of `n` steps that all hosts print."""
    times = array("d", [NOON + skew + i * apart for i in range(n)])
    fields = {"family": "step #", "columns": 1, "times": times}
    fields |= {"values": array("q", range(n)), "lines": array("q", range(1, n + 1))}
    more = {"file": f"{host}.log", "host": host, "clock": "absolute", "sigma": 0.0005, "source_kind": "console"}
    return [
        event(kind="sync", time=times[0], fields=fields, **more),
        event("x", kind="line", line=n, time=times[-1], **more),
    ]


def rows(*hosts: list[Event]) -> dict[str | None, Clock]:
    return {c.host: c for c in align([e for own in hosts for e in own]).clocks}


def test_a_rate_is_given_for_a_minute_with_six_lines_and_not_of_less() -> None:
    def has_rate(n: int, apart: float) -> bool:
        found = rows(*(synced(h, n, apart, skew) for h, skew in (("a", 0.0), ("b", 3.0))))
        assert found["b"].offset is not None and found["a"].offset is not None
        assert found["b"].offset - found["a"].offset == pytest.approx(3.0, abs=0.01)
        return found["b"].drift_ppm is not None

    assert [has_rate(*given) for given in ((6, 20.0), (9, 10.0), (5, 30.0), (6, 12.0))] == [True, True, False, False]


# ── one or two common lines ──────────────────────────────────────────────────────────────────────────────────────────


def segment(offset: float = 0.0, marks: int = 2, inliers: int = 2, **more: Any) -> Segment:
    usual: dict[str, Any] = {"state": "weak", "why": "", "first": 0.0, "last": 9.0, "drift": False, "alone": 0.0}
    return Segment(Correction(offset=offset), marks, inliers, **(usual | more))


def believed(*segments: Segment, kind: Any = "naive", how: str = "named") -> bool:
    clock = ClockId("a", 0, kind, False)
    found = consensus.Consensus({clock: segments}, ((clock,),), {}, {}, {})
    return _believable(clock, found, how)


def test_many_lines_or_three_that_agree_are_believed() -> None:
    assert believed(segment(333.0, marks=4))
    assert believed(segment(333.0, marks=2), segment(333.0, marks=2))
    assert believed(segment(333.0, marks=3, inliers=3))
    assert not believed(segment(333.0, marks=3))


def test_one_or_two_are_believed_where_machines_have_such_a_clock() -> None:
    assert believed(segment(100.0)) and not believed(segment(130.0))
    assert believed(segment(-5 * HOUR + 100.0))
    assert not believed(segment(-5 * HOUR), kind="absolute")
    assert not believed(segment(0.25 * HOUR))
    for how in ("open", "alone"):
        assert believed(segment(0.25 * HOUR), how=how)
    assert believed(segment(0.0), segment(130.0, marks=1))


def test_a_rate_that_turned_is_what_lies_between_its_fastest_and_its_slowest_hours() -> None:
    def turn(*knots: tuple[float, float, float]) -> float:
        bent = Correction(bends=tuple(zip(*knots, strict=True)))
        return _turn(segment()._replace(correction=bent))

    straight = [(0.0, 0.0, 0.0), (1e6, 1.0, 0.0), (2e6, 2.0, 0.0)]
    assert turn(*straight) == pytest.approx(0.0)
    assert turn(*straight[:2], (2e6, 4.0, 0.0)) == pytest.approx(2.0)
    assert turn(*straight[:2], (2e6, 4.0, place.UNSEEN**2)) == 0.0


def test_a_jump_is_shown_with_its_size_and_an_hour_by_its_name() -> None:
    def jump(by: float, few: bool = False) -> str:
        return _jump([segment(0.0, last=10.0), segment(by, first=20.0 + by)], 1, few)

    assert jump(2.5) == ", after its clock was set by +2.50 s"
    assert jump(-2.5, few=True) == ", after its clock was set by -2.50 s (or the other host's the other way)"
    assert jump(-3604.0) == ", after its clock was set by -3604 s: daylight saving time"
    assert jump(3606.0) == ", after its clock was set by +3606.00 s"
    assert _jump([segment(), segment(9.0)], 0, False) == ""


def test_the_span_of_a_log_names_its_zone() -> None:
    others = (NOON, NOON + 600)

    def span(first: float, last: float) -> float | None:
        return zones.by_span((NOON + first, NOON + last), others)

    assert span(2 * HOUR, 2 * HOUR + 600) == 2 * HOUR
    assert span(2 * HOUR + 100, 2 * HOUR + 300) == 2 * HOUR
    assert span(2 * HOUR + 300, 2 * HOUR + 600) == 2 * HOUR
    assert span(2 * HOUR + 130, 2 * HOUR + 300) is None
    assert span(29 * HOUR, 29 * HOUR + 600) is None
    assert span(500, 2 * HOUR + 500) == 0.0  # they meet


def test_a_line_a_quarter_of_an_hour_after_the_others_is_no_zone() -> None:
    """slurmstepd's `DUE TO TIME LIMIT`, 15 or 30 minutes after the last step of a job that hung."""
    others = (NOON, NOON + 600)
    for pause in (900, 1800, 2700, 4500, 6300):
        assert zones.by_span((NOON + 600 + pause, NOON + 600 + pause), others) is None, pause
    for zone in (5.5 * HOUR, -3.5 * HOUR):  # India, Newfoundland
        assert zones.by_span((NOON + 600 + zone, NOON + 600 + zone), others) == zone


# ── a kernel's clock ─────────────────────────────────────────────────────────────────────────────────────────────────

ABSOLUTE, LOCAL, BOOT = (ClockId("a", 0, kind, True) for kind in ("absolute", "naive", "boot"))  # type: ignore[arg-type]


def bridge(clock: ClockId, *windows: tuple[float, float], stamp: float = NOON, own: Any = None) -> Bridge | None:
    return kernel._bridge(clock, {clock: {"x": stamp}}, windows, {}, own)


def test_a_wall_time_that_its_kills_bear_out_is_taken_as_it_is() -> None:
    for near in ((-1.0, 1.0), (1.9, 3.0), (-3.0, -1.9)):
        found = bridge(ABSOLUTE, near)
        assert found and (found.offset, found.zone, found.state, found.events) == (0.0, 0.0, "aligned", 1)
    local = bridge(LOCAL, (-2 * HOUR - 1, -2 * HOUR + 1))
    assert local and (local.offset, local.zone, local.own) == (2 * HOUR, 2 * HOUR, False)


def test_most_of_the_kills_have_to() -> None:
    one, two = (bridge(ABSOLUTE, (-1.0, 1.0), (59.0, 61.0), *more) for more in ((), ((-1.0, 1.0),)))
    assert one and one.state == "weak"
    assert two and (two.state, two.events) == ("aligned", 3)


def test_a_hosts_own_skew_is_tried_first() -> None:
    found = bridge(ABSOLUTE, (-38.0, -36.0), own=(0.0, lambda _: 37.0))
    assert found and (found.offset, found.zone, found.own, found.state) == (37.0, 0.0, True, "aligned")
    right = bridge(ABSOLUTE, (-1.0, 1.0), own=(0.0, lambda _: 37.0))
    assert right and (right.offset, right.own) == (0.0, False)


def test_a_skew_that_only_the_kills_show_is_weak_and_no_zone() -> None:
    for clock in (ABSOLUTE, LOCAL):
        found = bridge(clock, (-101.0, -99.0))
        assert found and (found.offset, found.zone, found.state) == (100.0, 0.0, "weak")
    abroad = bridge(LOCAL, (-2 * HOUR - 101.0, -2 * HOUR - 99.0))
    assert abroad and (abroad.offset, abroad.zone) == (2 * HOUR + 100.0, 2 * HOUR)
    hours = bridge(ABSOLUTE, (-2 * HOUR - 101.0, -2 * HOUR - 99.0))
    assert hours and (hours.offset, hours.events) == (0.0, 0)  # its stamps carry their zone
    days = bridge(ABSOLUTE, (-7 * 24 * HOUR, -7 * 24 * HOUR + 1))
    assert days and (days.offset, days.events) == (0.0, 0)  # another process had that pid
    assert bridge(LOCAL, (-7 * 24 * HOUR, -7 * 24 * HOUR + 1)) is None


def test_without_a_kill_the_zone_is_the_hosts_or_the_stamps_own() -> None:
    own = (2 * HOUR, lambda t: 5.0 if t == NOON - 2 * HOUR else 0.0)
    local = bridge(LOCAL, own=own)
    assert local and (local.offset, local.zone, local.sigma, local.own) == (2 * HOUR + 5, 2 * HOUR, 1.0, True)
    dated = bridge(ABSOLUTE)
    assert dated and (dated.offset, dated.zone, dated.events, dated.own) == (0.0, 0.0, 0, False)
    assert bridge(LOCAL) is None and bridge(BOOT) is None


def test_boot_time_is_what_the_clock_was_set_to_and_grows_vague_with_the_days() -> None:
    line = f"rtc_cmos: setting system clock to 2026-11-21T12:00:00 UTC ({int(NOON)})"
    found = kernel._by_boot({line: 0.5, "x": 100_000.5}, lambda t: 3.0 if t == NOON + 100_000 else 0.0)
    assert found and (found.offset, found.zone, found.state) == (3.0 - NOON + 0.5, None, "weak")
    assert found.sigma == pytest.approx(kernel.RTC_S + kernel.RTC_DRIFT * 100_000)
    assert kernel._by_boot({"x": 1.0}, lambda t: 0.0) is None


def test_kills_agree_on_the_smallest_interval_that_most_of_them_hold() -> None:
    three = kernel._by_kills([(0.0, 4.0), (1.0, 6.0), (2.0, 9.0)])
    assert three and (three.offset, three.events, three.state) == (-3.0, 3, "aligned")
    assert three.sigma == pytest.approx(2.0 / 12**0.5)
    two = kernel._by_kills([(0.0, 4.0), (1.0, 6.0)])
    assert two and (two.events, two.state) == (2, "weak")
    split = kernel._by_kills([(0.0, 1.0)] * 3 + [(50.0 + n, 50.5 + n) for n in range(3)])
    assert split and (split.events, split.state, split.sigma) == (3, "weak", 0.3)
    unbounded = kernel._by_kills([(-900.0, 0.0)])
    assert unbounded and unbounded.offset == pytest.approx(kernel.AGENT_S / 4)


def test_twins_give_their_zone_where_they_lie_a_zone_apart() -> None:
    good = {ABSOLUTE: Bridge(4.0, 0.0, 0.1, 9, "aligned", "")}

    def twin(clock: ClockId, apart: float) -> Bridge | None:
        lines = {ABSOLUTE: {"x": NOON, "y": NOON + 1}, clock: {"x": NOON + apart, "z": 1.0}}
        return kernel._by_twins(clock, lines, good)

    local = twin(LOCAL, -5 * HOUR + 1.0)
    assert local and (local.offset, local.zone, local.sigma, local.events) == (4 - 5 * HOUR, -5 * HOUR, 0.5, 1)
    assert twin(LOCAL, -5 * HOUR + 2.5) is None
    boot = twin(BOOT, 500.0 - NOON)
    assert boot and (boot.offset, boot.zone, boot.sigma, boot.state) == (504.0 - NOON, None, 0.3, "aligned")
    assert kernel._by_twins(LOCAL, {LOCAL: {"z": 1.0}, ABSOLUTE: {"x": 2.0}}, good) is None


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
