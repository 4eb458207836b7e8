"""What is shown of each clock and how clocks without a line in common are placed, on hand-built estimates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import postmortem.align as whole
from claims import NOON, event
from postmortem.align import align, place
from postmortem.align.consensus import Consensus, Segment
from postmortem.align.estimate import (
    LOST,
    UNCOMPARED,
    ZONE_ONLY,
    Estimate,
    Row,
    _by_life,
    _one,
    _reason,
    _take_lonely,
    _take_twins,
)
from postmortem.align.kernel import Bridge
from postmortem.align.owners import ClockId
from postmortem.align.place import Correction
from postmortem.model import Clock, Event

HOUR = 3600.0


def clock(host: str | None = "a", kind: Any = "naive", kernel: bool = False) -> ClockId:
    return ClockId(host, 0, kind, kernel)


A, B, DATED = clock("a"), clock("b"), clock("a", "absolute")
LIFE = (NOON, NOON + 600)


def lonely(*clocks: ClockId, named: Any = (), how: str = "", **spans: Any) -> dict[ClockId, Row]:
    found: dict[ClockId, Estimate] = {}
    lives = {c: spans.get(c.host or "", LIFE) for c in clocks}
    _take_lonely(clocks, found, dict(named), lives, how)
    return {c: e.rows[0] for c, e in found.items()}


# ── clocks with nothing in common ────────────────────────────────────────────────────────────────────────────────────


def test_one_host_alone_is_right_by_itself() -> None:
    dated = lonely(DATED)[DATED]
    assert (dated.zone, dated.known, dated.events, dated.state) == (0.0, True, 0, "weak")
    assert dated.correction == Correction()
    named = lonely(A, named={A: 2 * HOUR})[A]
    assert (named.zone, named.known, named.events, named.state) == (2 * HOUR, True, 1, "aligned")
    assert named.correction == Correction(shift=2 * HOUR)
    alone = lonely(A)[A]
    assert (alone.zone, alone.known, alone.state) == (None, False, "weak")
    assert "read as UTC" in alone.reason


def test_beside_another_host_its_skew_is_not_known() -> None:
    both = lonely(DATED, clock("b", "absolute"))
    assert [row.correction.floor for row in both.values()] == [UNCOMPARED, UNCOMPARED]
    named = lonely(A, B, named={A: 2 * HOUR, B: 0.0}, a=(NOON + 2 * HOUR, NOON + 2 * HOUR + 600))
    assert [(row.zone, row.state) for row in named.values()] == [(2 * HOUR, "weak"), (0.0, "weak")]


def test_a_log_that_lives_when_the_others_do_has_their_zone() -> None:
    dated = clock("b", "absolute")
    same = lonely(dated, A)[A]
    assert (same.zone, same.known, same.state, same.correction.floor) == (0.0, True, "weak", UNCOMPARED)
    abroad = lonely(dated, A, a=(NOON + 2 * HOUR, NOON + 2 * HOUR + 600))[A]
    assert (abroad.zone, abroad.correction.shift) == (2 * HOUR, 2 * HOUR)
    assert (abroad.known, abroad.correction.floor) == (True, ZONE_ONLY)
    never = lonely(dated, A, a=(NOON + 40 * HOUR, NOON + 41 * HOUR))[A]
    assert (never.zone, never.known, never.state, never.correction.floor) == (None, False, "refused", LOST)


def test_where_no_stamp_names_a_zone_the_likeliest_reading_counts() -> None:
    tokyo = lonely(A, B, b=(NOON + 9 * HOUR, NOON + 9 * HOUR + 600))
    assert {c.host: (row.zone, row.correction.shift) for c, row in tokyo.items()} == {
        "a": (0.0, 0.0), "b": (9 * HOUR, 9 * HOUR),
    }  # fmt: skip
    near = lonely(A, B, b=(NOON + HOUR, NOON + HOUR + 600))
    assert all("no timestamp has a time zone" in row.reason for row in near.values() if row.zone is None)


def test_a_zone_that_is_open_is_not_shown() -> None:
    (row,) = _by_life(HOUR, 0.0, "open", True).rows
    assert (row.zone, row.known, row.correction.shift) == (None, False, HOUR)
    (utc,) = _by_life(0.0, 0.0, "open", True).rows
    assert (utc.zone, utc.known, utc.correction.floor) == (None, True, UNCOMPARED)
    (likely,) = _by_life(3 * HOUR, HOUR, "likely", True).rows
    assert (likely.zone, likely.known, likely.correction.shift) == (2 * HOUR, True, 2 * HOUR)


# ── two forms of one clock ───────────────────────────────────────────────────────────────────────────────────────────


def twin(of: Estimate, named: Any = (), host: str = "a") -> Estimate | None:
    local = clock(host)
    found = {DATED: of}
    _take_twins(found, dict(named), {DATED: LIFE, local: LIFE})
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


# ── the reason of a row ──────────────────────────────────────────────────────────────────────────────────────────


def segment(offset: float = 0.0, **more: Any) -> Segment:
    usual: dict[str, Any] = {"state": "aligned", "why": "", "first": 0.0, "last": 9.0, "drift": True, "alone": 0.0}
    return Segment(Correction(offset=offset), 9, 9, **(usual | more))


def compared(c: ClockId, *segments: Segment) -> Consensus:
    return Consensus({c: segments}, ((c,),), {c: {"step #": 7, "once init": 2, "epoch #": 1}}, {}, {})


def test_the_reason_names_the_lines_and_how_the_zone_is_known() -> None:
    ways = {
        "named": "",
        "likely": "this one fits the other hosts best",
        "open": "and several fit",
        "alone": "read as UTC",
    }
    for how, words in ways.items():
        reason = _reason(A, compared(A, segment(why="too few")), segment(why="too few"), 0, how)
        assert reason.startswith("too few; lines in common with other hosts: 7 of `step #`, 2 of `init`")
        assert "epoch" not in reason and words in reason
        assert ("no timestamp has a time zone" in reason) is (how != "named")
        assert reason.endswith(f"below {place.UNSEEN * 1000:.0f} ms")


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_kernel_log_that_nothing_joins_is_refused_or_read_as_utc() -> None:
    boot, wall = (whole._shown_kernel(clock(kind=k, kernel=True), None, 9.0, ("k",)) for k in ("boot", "naive"))
    assert (boot.state, boot.events, boot.offset, boot.at) == ("refused", 0, None, 9.0)
    assert (wall.state, wall.events) == ("weak", 0) and "UTC" in wall.reason
    known = Bridge(2 * HOUR + 5.0, 2 * HOUR, 0.123456, 3, "aligned", "kills")
    shown = whole._shown_kernel(clock(kernel=True), known, 9.0, ("k",))
    assert (shown.zone, shown.offset, shown.uncertainty, shown.events) == (2 * HOUR, 5.0, 0.123, 3)


def test_a_kernels_wall_time_is_the_hosts_own_clock_where_they_agree() -> None:
    wall, boot = clock(kernel=True), clock(kind="boot", kernel=True)
    own = {A: _one(Correction(shift=HOUR), HOUR, True, 9, "aligned", "")}

    def same(offset: float, *sources: ClockId) -> ClockId | None:
        return whole._same_as(wall, sources, own, {wall: Bridge(offset, HOUR, 0.3, 1, "aligned", "")})

    assert same(HOUR) == A and same(HOUR + 1) is None
    assert same(HOUR + 1, boot) == boot
    assert whole._same_as(wall, [], own, {}) is None
    assert whole._same_as(boot, [], own, {boot: Bridge(HOUR, HOUR, 0.3, 1, "", "")}) is None
    own[A] = _one(Correction(shift=HOUR, offset=3.0, origin=NOON), HOUR, True, 9, "aligned", "")
    assert same(HOUR + 3.9) == A and same(HOUR + 4.1) is None


def test_lines_of_one_file_are_shown_in_their_order_where_clocks_waver() -> None:
    def shown(*times: float | None) -> list[float]:
        return whole._display_order(times, ["a"] * len(times), [*range(1, len(times) + 1)])

    wavers = whole.IN_ORDER
    assert shown(10.0, 9.0 - wavers + 1.0, 12.0) == [10.0, 10.0, 12.0]
    assert shown(10.0, 9.9 - wavers) == [10.0, 9.9 - wavers]
    assert shown(10.0, None, 11.0) == [10.0, whole._LAST, 11.0]
    assert whole._display_order([10.0, 9.9], ["a", "b"], [1, 2]) == [10.0, 9.9]
    assert whole._display_order([10.0, 9.9], ["a", "a"], [2, 1]) == [10.0, 9.9]


def test_a_clock_is_shown_at_the_last_moment_that_is_known_well() -> None:
    def at(*events: Event) -> float | None:
        return align(events).clocks[0].at

    def line(time: float, sigma: float = 0.0) -> Event:
        return event(file="a.log", kind="line", time=time, clock="absolute", sigma=sigma)

    assert at(line(NOON), line(NOON + 9)) == NOON + 9
    assert at(line(NOON), line(NOON + 99, 59.0)) == NOON + 99
    assert at(line(NOON), line(NOON + 99, 61.0)) == NOON
    assert at(line(1000.0)) is None


def test_a_row_shows_what_is_left_beside_the_zone() -> None:
    row = Row(Correction(shift=HOUR, offset=2.0, drift=1e-5, var=0.04), HOUR, True, 9, "aligned", "why", True)
    shown = whole._shown(A, row, 0.0, ("f",))
    assert shown == Clock("a", "naive", HOUR, 2.0, 10.0, 0.0, 0.2, 9, "aligned", "why", ("f",))
    unknown = whole._shown(A, row._replace(known=False, state="refused", drift=False), 0.0, ())
    assert (unknown.offset, unknown.drift_ppm, unknown.uncertainty) == (None, None, None)
    assert whole._shown(A, row._replace(state="refused"), 0.0, ()).uncertainty == 0.2
    moved = whole._at(replace(shown, offset=None), 100_000.0, row.correction)
    assert (moved.at, moved.offset, moved.uncertainty) == (100_000.0, 3.0, 0.2)
    assert whole._at(shown, 5.0, None) == replace(shown, at=5.0)
