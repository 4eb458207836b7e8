"""Clocks with a known truth: how far the aligned time is off, and whether it states so.

The noise laws are ours (see `clocks/world.py`); `benchmarks/clock_alignment.py` prints the same figures for many seeds.
"""

from __future__ import annotations

import random
import subprocess
import sys
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from clocks.world import BASE, HOUR, World

from claims import event
from conftest import ROOT
from postmortem.align import Timeline, align, marks
from postmortem.model import Clock, Event


def with_times(e: Event, change: Callable[[float], float]) -> Event:
    """The same marks with other stamps."""
    times: Any = e.fields["times"]
    return e._replace(fields={**e.fields, "times": array("d", map(change, times))})


def clocks_of(timeline: Timeline) -> dict[str, list[Clock]]:
    found: dict[str, list[Clock]] = {}
    for clock in timeline.clocks:
        found.setdefault(clock.host or "", []).append(clock)
    return found


def errors(world: World, timeline: Timeline) -> dict[str, tuple[float, float, bool]]:
    """Host -> error at the crash against what all share, stated sigma, aligned."""
    raw, sigma = world.errors(timeline.events)
    rows = clocks_of(timeline)
    good = {h: all(c.state == "aligned" for c in rows[h]) for h in raw}
    shared = float(np.median([raw[h] for h in raw if good[h]] or [0.0]))
    return {h: (raw[h] - shared, sigma[h], good[h]) for h in raw}


def test_twenty_common_lines_are_enough_for_milliseconds() -> None:
    world = World.make(seed=31, hosts=60, marks=20)
    timeline = align(world.events)
    found = errors(world, timeline)
    size = np.array([abs(e) for e, _, good in found.values() if good])
    inside = [abs(e) <= 1.96 * s for e, s, good in found.values() if good]
    assert len(size) >= 0.95 * len(found)
    assert np.quantile(size, 0.95) <= 0.008 and size.max() <= 0.05
    assert 0.9 <= np.mean(inside) <= 1.0
    for host, rows in clocks_of(timeline).items():
        assert rows[0].zone == world.truth[host].zone, rows[0].reason
        assert rows[0].events >= 6 and rows[0].reason


def test_the_order_of_the_input_is_no_input() -> None:
    world = World.make(seed=33, hosts=8, marks=20, stepping=0.3)
    one = align(world.events)
    shuffled = list(world.events)
    random.Random(1).shuffle(shuffled)
    other = align(shuffled)
    assert one.clocks == other.clocks
    assert sorted(one.events, key=lambda e: str(e.where)) == sorted(other.events, key=lambda e: str(e.where))


def test_steps_are_found_and_none_is_invented() -> None:
    found = there = 0
    for seed in (41, 42, 43):
        world = World.make(seed=seed, hosts=60, marks=50, stepping=0.2)
        for host, rows in clocks_of(align(world.events)).items():
            steps = world.truth[host].steps
            assert len(rows) == 1 or steps, f"{host}: {rows[1].reason}"
            there += len(steps)
            found += bool(steps) and len(rows) == 2
    assert there > 20 and found >= 0.95 * there


def test_of_two_clocks_one_step_is_found_once() -> None:
    """Each of two clocks sees the other's step: only one of them is cut."""
    world = World.make(seed=44, hosts=2, marks=60, outliers=0.0, skewed=0.0, absolute=1.0)
    moved = [set_at(e, BASE + 3 * HOUR, 5.0) if e.host == "node-0001" else e for e in world.events]
    timeline = align(moved)
    assert len(timeline.clocks) == 3
    assert sum("set by" in c.reason for c in timeline.clocks) == 1
    a, b = [e.at for e in timeline.events]
    assert a == pytest.approx(b, abs=0.03)


def set_at(e: Event, at: float, jump: float) -> Event:
    """The event as a clock shows it that was set at `at`, by its own reading."""
    if e.kind == "sync":
        return with_times(e, lambda t: t + (jump if t > at else 0.0))
    return e._replace(time=(e.time or 0.0) + (jump if (e.time or 0.0) > at else 0.0))


def test_lines_around_a_step_have_the_jump_as_error() -> None:
    """Between the last common line before a step and the first behind it, nothing shows on which side a line is."""
    world = World.make(seed=45, hosts=10, marks=60, ranks=1, outliers=0.0)
    host = "node-0003"
    marks = next(e for e in world.events if e.host == host and e.kind == "sync")
    moments = sorted(zip(marks.fields["times"], marks.fields["lines"], strict=True))
    before, behind = next((a, b) for a, b in zip(moments[20:], moments[21:], strict=False) if b[1] - a[1] >= 2)
    cut = (before[0] + behind[0]) / 2
    events = [set_at(e, cut, 20.0) if e.host == host else e for e in world.events]

    more: Any = {"clock": world.truth[host].kind, "sigma": 0.0003, "rank": 3, "host": host}
    places = ((before[1], before[0]), ((before[1] + behind[1]) // 2, before[0] + 1.0), (behind[1], behind[0] + 20.0))
    events += [event("between", marks.where.source, n, "line", time=time, **more) for n, time in places]
    timeline = align(events)
    sure, between, after = [e for e in timeline.events if e.text == "between"]
    assert sure.at_sigma < 0.1 and after.at_sigma < 0.1
    assert 9.0 < between.at_sigma < 12.0
    assert sure.at is not None and between.at is not None and after.at is not None and sure.at < after.at
    assert any("after its clock was set by +20.0" in c.reason for c in timeline.clocks)


def test_a_host_that_always_prints_late_is_covered_by_the_floor() -> None:
    """A pipeline's last stage prints each step later than the first, for good: no number of steps shows that.
    Lines printed once, behind the init, disagree with the steps then, and the stated error takes that in.
    """
    world = World.make(seed=46, hosts=60, marks=50, bias=0.05, init=True)
    timeline = align(world.events)
    inside = [abs(e) <= 1.96 * s for e, s, good in errors(world, timeline).values() if good]
    assert np.mean(inside) > 0.85
    assert "a constant delay of a host" in timeline.clocks[0].reason
    ranks = World.make(seed=47, hosts=30, marks=50, rank_bias=0.05)
    inside = [abs(e) <= 1.96 * s for e, s, good in errors(ranks, align(ranks.events)).values() if good]
    assert np.mean(inside) > 0.93  # ranks of one host that differ for good show it, too


def test_ranks_of_an_unnamed_host_may_be_on_two() -> None:
    """One console of the whole job, no host in it: `srun` with its label. The ranks' common lines lie 37 s apart."""
    world = World.make(seed=52, hosts=2, ranks=2, marks=30, skewed=0.0)
    nameless = []
    for e in world.events:
        shift = (37.0 if e.host == "node-0001" else 0.0) - world.truth[e.host or ""].zone
        moved = with_times(e, lambda t, shift=shift: t + shift) if e.kind == "sync" else e
        nameless.append(moved._replace(host=None, clock="naive", time=(e.time or 0.0) + shift))
    timeline = align(nameless)
    first, second = timeline.clocks
    assert first.host is None and second.host is None
    assert second.offset is not None and first.offset is not None and abs(second.offset - first.offset - 37.0) < 0.3
    assert "rank 2, 3" in second.reason
    a, b = [e.at for e in timeline.events if e.kind == "line"]
    assert a == pytest.approx(b, abs=0.3)


@pytest.mark.parametrize("marks_together", [1, 300, 10**9])
def test_the_size_of_a_batch_changes_nothing(marks_together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks are joined in batches of whole clocks:
    each clock's moments, and how late its ranks are, come out the same."""
    world = World.make(seed=17, hosts=9, marks=30, rank_bias=0.02, init=True)
    expected = align(world.events)
    monkeypatch.setattr(marks, "BATCH", marks_together)
    found = align(world.events)
    assert found.frame.equals(expected.frame) and found.clocks == expected.clocks


@pytest.mark.release
@pytest.mark.slow
def test_two_thousand_hosts() -> None:
    """16,000 ranks with 300 lines each, in a process of its own so that its memory can be read."""
    code = (
        "import resource, sys, time\n"
        "sys.path.insert(0, 'tests')\n"
        "from clocks.world import World\n"
        "world = World.make(seed=61, hosts=2000, marks=428)\n"
        "from postmortem.align import align\n"
        "before = time.process_time()\n"
        "timeline = align(world.events)\n"
        "print(time.process_time() - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "
        "len(timeline.clocks))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
    seconds, mib, clocks = map(float, done.stdout.split())
    assert clocks == 2000 and seconds <= 10 and mib <= 512


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.filterwarnings("error")
def test_no_mixture_of_marks_makes_it_raise(seed: int) -> None:
    """Hosts without names, ranks without numbers, wrong columns, years that lack, a line or two in all:
    a state and a reason always."""
    rng = random.Random(seed)
    sizes = {"hosts": rng.randrange(1, 6), "marks": rng.randrange(1, 12), "ranks": rng.randrange(1, 4)}
    world = World.make(seed, **sizes, missing=rng.random(), stepping=0.5)
    events = []
    for e in world.events:
        if rng.random() < 0.2:
            e = e._replace(host=None)
        if rng.random() < 0.2:
            e = e._replace(rank=None)
        if rng.random() < 0.1:
            e = e._replace(time=None if e.time is None else e.time - 1.6e9)
        if rng.random() < 0.1 and e.kind == "sync":
            odd = array("q", [rng.randrange(-5, 5) for _ in range(3 * len(e.fields["times"]))])
            e = e._replace(fields={**e.fields, "columns": 3, "values": odd})
        events.append(e)
    timeline = align(events)
    assert all(c.reason and c.state in ("aligned", "weak", "refused") for c in timeline.clocks)
    assert len(timeline.events) == sum(e.kind != "sync" for e in events)
