"""The steps of the alignment one by one, on hand-built events and corrections."""

from __future__ import annotations

import math
from typing import Any

import pytest

from claims import NOON, event
from postmortem.align import _display_order, owners, place, zones
from postmortem.align.owners import ClockId, Owners
from postmortem.align.place import Correction, Pieces
from postmortem.model import Event
from postmortem.model.frame import of_events, plain

# ── the order of lines ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_small_step_back_keeps_the_order_of_its_file_and_moves_no_other_file() -> None:
    """A line 2 s before the one above it stays below that one; the next file has no part in it."""
    back = [event("one", "a.log", 1, at=NOON + 10), event("two", "a.log", 2, at=NOON + 8)]
    rows, _ = of_events([*back, event("other", "b.log", 1, at=NOON + 7)])
    assert _display_order(rows).tolist() == [2, 0, 1]


# ── place: corrections ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_correction_takes_off_zone_offset_and_drift() -> None:
    c = Correction(shift=3600.0, offset=5.0, drift=0.001, origin=1000.0)
    at, _ = c.apply(3600.0 + 5.0 + 1000.0 + 100.1, 0.5)
    assert at == pytest.approx(1100.0)
    assert c.offset_at(1100.0) == pytest.approx(5.1)


def test_its_error_grows_away_from_the_middle_of_what_was_compared() -> None:
    c = Correction(origin=1000.0, centre=50.0, var=0.04, var_drift=0.01, floor=0.3)
    assert c.sigma_at(1050.0) == pytest.approx(math.sqrt(0.04 + 0.09))
    assert c.sigma_at(1060.0) == pytest.approx(math.sqrt(0.04 + 1.0 + 0.09))
    assert c.sigma_at(1040.0) == c.sigma_at(1060.0)
    assert Correction(floor=3.0).apply(10.0, 4.0)[1] == pytest.approx(5.0)


def test_stamps_of_coarse_resolution_are_moved_to_the_middle_of_their_interval() -> None:
    assert Correction(centred=True).apply(10.0, 0.3)[0] == pytest.approx(10.5)
    assert Correction(centred=True).apply(10.0, 0.45)[0] == 10.0
    assert Correction().apply(10.0, 0.3)[0] == 10.0


def test_a_bend_goes_from_knot_to_knot_and_on_beyond_the_last() -> None:
    c = Correction(bends=((0.0, 10.0, 20.0), (0.0, 1.0, 0.0), (0.0, 0.5, 1.0)))
    assert [c.offset_at(t) for t in (-10.0, 0.0, 5.0, 10.0, 15.0, 20.0, 30.0)] == pytest.approx(
        [-1.0, 0.0, 0.5, 1.0, 0.5, 0.0, -1.0]
    )
    assert [c.sigma_at(t) ** 2 for t in (-10.0, 5.0, 15.0, 30.0)] == pytest.approx([0.0, 0.25, 0.75, 1.0])
    assert Correction(bends=((0.0,), (5.0,), (1.0,))).offset_at(3.0) == 0.0


# ── place: segments ──────────────────────────────────────────────────────────────────────────────────────────────────

TWO = Pieces((Correction(), Correction(offset=10.0)), {"a.log": ((2, 5, 9), (0, 0, 1))}, ((100.0, 110.0),))


def test_a_line_has_the_segment_of_those_around_it() -> None:
    for line, segments in ((5, (0, 0)), (9, (1, 1)), (3, (0, 0)), (7, (0, 1)), (12, (1, 1))):
        assert TWO.choose("a.log", line, 0.0) == segments, line


def test_a_line_of_another_file_has_it_by_its_stamp() -> None:
    for t, segments in ((99.9, (0, 0)), (100.0, (0, 1)), (110.0, (0, 1)), (110.1, (1, 1))):
        assert TWO.choose("b.log", 7, t) == TWO.choose("a.log", None, t) == segments, t


def test_a_line_that_may_be_on_either_side_of_a_step_has_the_jump_as_error() -> None:
    assert TWO.one("a.log", 7, 50.0, 0.5) == (45.0, 5.5)
    assert TWO.one("a.log", 9, 50.0, 0.5) == (40.0, 0.5)
    assert TWO.one("a.log", 5, 50.0, 0.5) == (50.0, 0.5)


def test_a_last_line_that_lies_off_alone_is_doubted() -> None:
    alone = Pieces((Correction(),), {}, (), (40.0, 6.0))
    assert alone.one("a.log", 1, 50.0, 0.5) == (50.0, 3.5)
    assert alone.one("a.log", 1, 40.0, 0.5) == (40.0, 0.5)


# ── place: lines without a stamp ─────────────────────────────────────────────────────────────────────────────────────

CLOCK = ClockId(None, 0, "naive", False)
KNOWN = {CLOCK: Pieces((Correction(),), {})}


def at(*stamps: float | None, lines: tuple[int | None, ...] = (), **more: Any) -> list[tuple[float | None, float]]:
    numbers = lines or tuple(range(1, len(stamps) + 1))
    events = [
        event(file="a", line=n, time=t, clock="none" if t is None else "naive", sigma=0.0, **more)
        for t, n in zip(stamps, numbers, strict=True)
    ]
    clocks = [None if t is None else CLOCK for t in stamps]
    rows, _ = of_events(events)
    place.correct(rows, clocks, KNOWN)
    return list(zip(plain(rows["time"]), plain(rows["sigma"]), strict=True))


def test_a_line_without_a_stamp_has_the_interval_between_its_neighbours() -> None:
    assert at(10.0, None, 20.0) == [(10.0, 0.0), (15.0, 5.0), (20.0, 0.0)]
    assert at(10.0, None, 10.5)[1] == (10.25, place.UNSTAMPED)
    assert at(10.0, None, 20.0, lines=(5, 1, 9))[1] == (10.0, place.ABOVE)
    assert at(10.0, None, 20.0, lines=(5, 5, 9))[1] == (10.0, 0.0)  # another event of the first line


def test_with_one_neighbour_it_is_known_badly_and_with_none_not_at_all() -> None:
    assert at(10.0, None)[1] == (10.0, place.UNBOUNDED)
    assert at(None, 10.0)[0] == (10.0, place.ABOVE)
    assert at(20.0, None, 10.0)[1] == (20.0, place.UNBOUNDED)
    assert at(None, None) == [(None, 0.0), (None, 0.0)]
    assert at(10.0, None, lines=(1, None))[1] == (None, 0.0)


# ── copies ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def marks(file: str, *times: float, rank: int | None = 0, clock: Any = "naive", **more: Any) -> Event:
    fields = {"family": "step", "values": tuple(range(len(times))), "times": times, "columns": 1}
    return event(file=file, kind="sync", rank=rank, time=times[0], clock=clock, fields=fields, **more)


def test_a_launchers_copy_of_an_attempts_file_is_left_out() -> None:
    filed = marks("run/0/a.log", 1.0, 2.0, 3.0, attempt=4)
    copy, own = marks("agent.err", 1.0, 2.0, 9.0), marks("agent.err", 7.0, 8.0, 9.0)
    job_of = {"run/0/a.log": 0, "agent.err": 0}
    assert owners.without_copies([filed, copy, own], job_of) == [filed, own._replace(attempt=4)]
    assert owners.without_copies([copy, own], job_of) == [copy, own]
    second = marks("run/1/a.log", 20.0, attempt=5)
    assert owners.without_copies([filed, second, own], job_of | {"run/1/a.log": 0})[-1] == own


# ── owners ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def stamped(**more: Any) -> Event:
    return event(**({"time": NOON, "clock": "naive"} | more))


def test_a_line_has_the_clock_of_its_host_its_ranks_host_or_its_files() -> None:
    named = stamped(file="a.log", host="a", rank=1)
    owner = Owners([named, stamped(file="a.log"), stamped(file="b.log", rank=1), stamped(file="c.log")])
    assert [c.host for c in owner.clocks if c] == ["a", "a", "a", None]


def test_two_hosts_in_one_file_or_of_one_rank_name_none() -> None:
    two = [stamped(file="a.log", host=h, rank=1) for h in ("a", "b")]
    owner = Owners([*two, stamped(file="a.log"), stamped(file="c.log", rank=1)])
    assert [c.host for c in owner.clocks if c] == ["a", "b", None, None]


def test_a_report_of_an_agent_does_not_name_the_host_of_its_clock() -> None:
    owner = Owners([stamped(file="agent.err", host="b", kind="exit", rank=1), stamped(file="agent.err")])
    assert [c.host for c in owner.clocks if c] == ["b", None]


def test_the_kernels_clock_is_a_reading_of_its_own_and_unstamped_lines_have_none() -> None:
    assert owners.is_kernel(event(clock="boot"))
    assert owners.is_kernel(event(speaker="kernel"))
    owner = Owners([stamped(host="a"), stamped(host="a", speaker="kernel"), event(host="a"), stamped(clock="none")])
    assert [c and c.kernel for c in owner.clocks] == [False, True, None, None]
    assert [len(found) for found in owner.grouped(owner.events).values()] == [1, 1]


def test_a_console_beside_another_runs_files_is_not_of_that_runs_host() -> None:
    named = stamped(file="x/a.log", host="a", rank=1)
    other = stamped(file="y/run/b.log", run="r", rank=1)
    for folder, host in (("y/console", None), ("z/console", "a")):
        owner = Owners([named, other, stamped(file=folder, rank=1)])
        assert [c.host for c in owner.clocks if c] == ["a", None, host]


# ── zones ────────────────────────────────────────────────────────────────────────────────────────────────────────────

NAIVE, DATED = ClockId("a", 0, "naive", False), ClockId("a", 0, "absolute", False)


def test_a_zone_by_the_span_of_the_hosts_other_stamps() -> None:
    """Spans in seconds after noon. A watchdog's ten minutes behind the error file are no zone."""
    for naive, dated, zone in (
        ((7200, 7800), (0, 600), 7200.0),
        ((7300, 7700), (0, 600), 7200.0),
        ((7080, 7800), (0, 600), 7200.0),
        ((7200, 16200), (8990, 9000), 7200.0),
        ((-3600, 600), (-30, 0), 0.0),
        ((54000, 54600), (0, 600), None),
        ((1000 - NOON, 1600 - NOON), (0, 600), None),
    ):
        first, last = ((NOON + begin, NOON + end) for begin, end in (naive, dated))
        assert zones.named_by_span({NAIVE: first, DATED: last}) == ({} if zone is None else {NAIVE: zone}), naive
    assert zones.named_by_span({NAIVE: (NOON + 7200, NOON + 7800)}) == {}


def test_the_amount_to_subtract_from_all_offsets() -> None:
    a, b, c = (ClockId(h, 0, "naive", False) for h in "abc")
    assert zones.gauge({}, {}) == (0.0, "alone")
    assert zones.gauge({a: 5.0, b: 7.0}, {}) == (5.0, "alone")
    assert zones.gauge({a: 3605.0, b: 7.0}, {a: 3600.0}) == (5.0, "named")
    assert zones.gauge({a: 0.02, b: 0.0}, {})[1] == "alone"
    assert zones.gauge({a: 0.0, b: -3600.0, c: 0.0}, {})[1] in ("likely", "open")
    assert zones.gauge({a: 0.0, b: 8 * 3600.0}, {})[1] == "open"  # California and UTC, or UTC and Singapore


@pytest.mark.parametrize("apart", [9, 5.5, -5, 1, 5.75], ids=["Tokyo", "Kolkata", "New York", "Berlin", "Kathmandu"])
def test_two_hosts_without_a_zone_are_read_as_people_set_them_up(apart: float) -> None:
    base, how = zones.gauge({ClockId("a", 0, "naive", False): 0.0, ClockId("b", 0, "naive", False): apart * 3600.0}, {})
    assert (base, how) == (0.0, "likely") and zones.snapped(apart * 3600.0) == apart * 3600.0


def test_neighboring_lines_with_and_without_a_zone_show_it() -> None:
    """glog's local time on the console of a logger that prints UTC."""
    local, utc = stamped(file="a.log", line=7, time=NOON + 7200), stamped(file="a.log", line=8, time=NOON + 1)
    assert zones.named_by_lines({NAIVE: [local], DATED: [utc]}) == {NAIVE: 7200.0}
    assert zones.named_by_lines({NAIVE: [local], DATED: [utc._replace(time=NOON + 400)]}) == {}
    assert zones.named_by_lines({NAIVE: [local], DATED: [stamped(file="b.log", line=8, time=NOON + 1)]}) == {}
