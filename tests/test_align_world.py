"""Clocks with a known truth: how far the aligned time is off, and whether it states so; and what comparing clocks cannot
do, one test each: the stated error takes it in, or the clock is refused, and the reason is reported.

The noise laws are ours (see `clocks/world.py`); `benchmarks/clock_alignment.py` prints the same figures for many seeds.
Folders of logs with known clocks come from `clocks/folder.py`.
"""

from __future__ import annotations

import random
import re
from array import array
from calendar import timegm
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clocks.folder import START, Host, write
from clocks.world import BASE, HOUR, World

from claims import event
from conftest import python, typed_rows
from postmortem import Options, analyze
from postmortem.align import Timeline, align, marks
from postmortem.diagnose import order
from postmortem.model import Clock, Event, Where


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


@pytest.mark.parametrize(("hours", "stated"), [(0.01, False), (1.0, True)])
def test_a_rate_takes_more_than_a_minute_of_common_lines(hours: float, stated: bool) -> None:
    timeline = align(World.make(seed=5, hosts=3, marks=20, hours=hours, outliers=0.0).events)
    assert [clock.drift_ppm is not None for clock in timeline.clocks] == [stated] * 3


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
    done = python("-c", code, check=True)
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


def own_clocks(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Host -> the entry of the clock its ranks write by."""
    found: dict[str, dict[str, Any]] = {}
    for clock in document["clocks"]:
        if clock["kind"] != "boot" and any("rank" in source for source in clock["sources"]):
            found.setdefault(clock["host"], clock)
    return found


def without_init(folder: Path) -> None:
    """Leave out the one line that all ranks of a folder print once."""
    for path in folder.rglob("rank*.log"):
        path.write_text("\n".join(line for line in path.read_text().splitlines() if "process group" not in line) + "\n")


def document_of(folder: Path) -> dict[str, Any]:
    return analyze([str(folder)], Options(redact=False)).document


def test_a_constant_delay_of_a_host_is_not_visible_and_orders_allow_for_it() -> None:
    """No number of step lines shows that a pipeline's last stage prints 50 ms late.
    Two hosts are not put in order within that."""
    world = World.make(seed=91, hosts=40, marks=50, bias=0.05)
    timeline = align(world.events)
    found = errors(world, timeline)
    assert "a constant delay of a host is not visible below 50 ms" in timeline.clocks[0].reason
    crash = {e.host: e for e in timeline.events}
    hosts = sorted(h for h, (_, _, good) in found.items() if good)
    wrong = ordered = 0
    for a in hosts:
        for b in hosts:
            apart = (crash[b].at or 0.0) + 0.02 - (crash[a].at or 0.0)  # b's line is 20 ms behind a's
            sure = a != b and abs(apart) > order.margin(crash[a], crash[b])
            ordered += sure
            wrong += sure and apart < 0
    assert wrong <= 0.025 * len(hosts) ** 2 and ordered < 0.3 * len(hosts) ** 2


def test_one_line_behind_a_step_is_no_proof_of_it() -> None:
    """An outlier, or the clock was set: what is written behind the line before it may be off by that much."""
    world = World.make(seed=92, hosts=20, marks=30, missing=0.0, outliers=0.0)
    host = "node-0005"
    sync = next(e for e in world.events if e.host == host and e.kind == "sync")
    marks = sorted(sync.fields["times"])  # type: ignore[call-overload]
    events = [set_at(e, (marks[-2] + marks[-1]) / 2, 25.0) if e.host == host else e for e in world.events]
    timeline = align(events)
    (row,) = clocks_of(timeline)[host]
    crash = next(e for e in timeline.events if e.host == host)
    assert "is 25.0" in row.reason and "may have been set" in row.reason
    assert crash.at is not None and abs(crash.at - world.crash) < 2 * crash.at_sigma + 1 and crash.at_sigma > 10


def test_utc_is_as_exact_as_the_clocks_agree() -> None:
    """Half of the hosts 30 s fast, the rest right: between them all is known to milliseconds, UTC is not."""
    world = World.make(seed=93, hosts=10, marks=50, skewed=0.0, absolute=1.0, outliers=0.0)
    fast = {f"node-{i:04d}" for i in range(6)}
    events = [set_at(e, 0.0, 30.0) if e.host in fast else e for e in world.events]
    timeline = align(events)
    crash = [e.at for e in timeline.events if e.at is not None]
    assert max(crash) - min(crash) < 0.1 and abs(min(crash) - world.crash) > 25
    assert all(re.search("differ by up to 3[01] s, so UTC is no more exact", c.reason) for c in timeline.clocks)


def test_lines_stamped_by_a_collector_are_refused_and_all_that_depends_on_them() -> None:
    """The host's other stamps and its kernel log are joined to the job by those lines: they inherit the doubt."""
    world = World.make(seed=94, hosts=20, marks=60)
    host = next(h for h, t in world.truth.items() if t.kind == "naive" and h != "node-0000")
    zone = world.truth[host].zone
    rng = np.random.default_rng(1)
    shipped = {id(e) for e in world.events if e.host == host and e.kind == "sync"}
    events = [with_times(e, lambda t: t + rng.uniform(0, 60)) if id(e) in shipped else e for e in world.events]
    crash = next(e for e in world.events if e.host == host and e.kind == "line")
    assert crash.time is not None
    gone = {"pid": 77, "kernel": True}
    utc = crash._replace(where=Where(f"{host}/error.json", 1), time=crash.time - zone, clock="absolute")
    kill = crash._replace(where=Where(f"{host}/dmesg", 1), kind="pattern", time=99.0, clock="boot", fields=gone)
    ended = crash._replace(where=Where(f"{host}/agent.err", 9), kind="exit", pid=77)
    events += [utc, utc._replace(time=crash.time - zone - 6 * HOUR), ended, kill]
    rows = clocks_of(align(events))[host]
    assert {c.kind for c in rows} == {"naive", "absolute", "boot"}
    assert all(c.state == "refused" for c in rows), [(c.kind, c.state, c.reason) for c in rows]
    assert all((c.uncertainty or 99) > 5 for c in rows)
    assert any("collector" in c.reason for c in rows) and any("comes from a rejected clock" in c.reason for c in rows)


@pytest.mark.parametrize(("start", "note"), [
    (timegm((2026, 12, 31, 23, 40, 0)), "2026 before New Year, 2027 after it"),
    (timegm((2028, 2, 29, 12, 0, 0)), "2028, the nearest year with a 29 February"),
], ids=["new-year", "29-february"])  # fmt: skip
def test_years_that_no_line_names(tmp_path: Path, start: float, note: str) -> None:
    """Host 1 logs like glog, without a year. A fixed year would put half of its lines 365 days off."""
    forms = ("zoned", "glog", "logging")
    changed: Any = {"start": start, "change": lambda i, h: replace(h, zone=0.0, form=forms[i])}
    truth = write(tmp_path / "logs", seed=95, hosts=3, **changed)
    incident = analyze([str(tmp_path / "logs")], Options(redact=False))
    rows = own_clocks(incident.document)
    assert note in rows["node-1"]["reason"], rows["node-1"]["reason"]
    assert {row["state"] for row in rows.values()} == {"aligned"}
    lines = [e for e in typed_rows(incident) if e.host == "node-1" and e.at is not None and e.clock == "naive"]
    assert lines and all(
        start - 60 < (e.at or 0) - truth.hosts[1].skew < truth.end + 300 or e.at_sigma > 60 for e in lines
    )
    assert incident.document["verdict"]["culprit"]["ranks"] == [truth.rank]


def test_hosts_with_nothing_but_an_init_in_common(tmp_path: Path) -> None:
    """No step lines: one common line is a hint, not an alignment."""
    skews = (0.0, 40.0, -15.0)
    write(tmp_path / "logs", 96, change=lambda i, h: replace(h, words="", skew=skews[i], drift=0.0))
    rows = own_clocks(document_of(tmp_path / "logs"))
    few = "only 1 common line: too few to check them against each other"
    assert all(row["state"] == "weak" and few in row["reason"] for row in rows.values()), rows
    assert rows["node-1"]["offset_s"] - rows["node-0"]["offset_s"] == pytest.approx(40.0, abs=0.2)
    assert all(row["uncertainty_s"] > 0.3 for row in rows.values())


def test_two_groups_of_hosts_with_nothing_in_common(tmp_path: Path) -> None:
    """Two jobs' worth of lines: inside each group milliseconds, between them zones and spans."""
    write(tmp_path / "logs", seed=98, hosts=6, change=lambda i, h: h if i < 4 else replace(h, words="batch"))
    without_init(tmp_path / "logs")
    rows = own_clocks(document_of(tmp_path / "logs"))
    assert [rows[f"node-{i}"]["state"] for i in range(6)] == ["aligned"] * 4 + ["weak"] * 2
    for i in (4, 5):
        assert "compared with 1 other; no line in common with the other 4 clocks" in rows[f"node-{i}"]["reason"]
        assert rows[f"node-{i}"]["uncertainty_s"] >= 1.0


def test_the_same_second_on_two_hosts_is_no_order() -> None:
    """Stamps of whole seconds, 0 s apart: open. In one file the lines' order is the order."""
    one = event("x", "a/rank0.log", 7, "line", host="a", at=BASE, at_sigma=0.3)
    other = one._replace(where=Where("b/rank1.log", 3), host="b")
    assert order.in_words(one, other) == "which came first is not determined (0.00 s apart, ± 0.86 s)"
    assert order.in_words(one, other._replace(at=BASE + 2)) == "2.00 s later (± 0.86 s)"
    assert order.in_words(other._replace(at=BASE + 2), one) == "2.00 s earlier (± 0.86 s)"


def test_daylight_saving_time_in_a_folder_of_logs(tmp_path: Path) -> None:
    """25 October 2026, 01:00 UTC: Berlin's clocks go back, the hour from two to three comes twice,
    and file order shows which is which."""
    start = timegm((2026, 10, 25, 0, 40, 0))

    def berlin(i: int, host: Host) -> Host:
        summer = (start + 20 * 60.0, -3600.0)
        return replace(host, zone=7200.0, form="logging", step=summer) if i == 1 else replace(host, zone=0.0)

    write(tmp_path / "logs", seed=99, hosts=3, start=start, change=berlin)
    document = document_of(tmp_path / "logs")
    first, second = [c for c in document["clocks"] if c["host"] == "node-1" and c["kind"] == "naive"]
    assert (first["zone_s"], second["zone_s"]) == (7200.0, 3600.0)
    assert "daylight saving time" in second["reason"]
    assert first["offset_s"] == pytest.approx(second["offset_s"], abs=0.1), "the zone changed, not the clock"


def test_a_drift_that_changes_over_three_days() -> None:
    """One rate for 72 hours would be 0.7 s wrong at the end; followed every six hours it is milliseconds.
    Steps are still found."""
    world = World.make(seed=100, hosts=40, marks=300, hours=72, wander=5e-6, stepping=0.1)
    timeline = align(world.events)
    rows = clocks_of(timeline)
    size = np.array([abs(e) for e, _, good in errors(world, timeline).values() if good])
    inside = [abs(e) <= 1.96 * s for e, s, good in errors(world, timeline).values() if good]
    assert len(size) >= 0.95 * len(rows) and size.max() <= 0.05 and np.mean(inside) >= 0.9
    assert {h for h, pieces in rows.items() if len(pieces) > 1} == {h for h, t in world.truth.items() if t.steps}
    assert sum("its rate changed by" in pieces[0].reason for pieces in rows.values()) > 30


def test_a_timeout_shows_when_the_waiting_began(tmp_path: Path) -> None:
    """NCCL's complaints alone: ranks give up a minute apart, yet all began to wait together.
    It shows a clock that is 40 s fast."""
    changed: Any = {"change": lambda i, h: replace(h, words="", skew=40.0 * (i == 1), zone=0.0)}
    write(tmp_path / "logs", seed=102, scenario="hang", **changed)
    without_init(tmp_path / "logs")
    rows = own_clocks(document_of(tmp_path / "logs"))
    assert rows["node-1"]["offset_s"] - rows["node-0"]["offset_s"] == pytest.approx(40.0, abs=2.0)
    assert all("accurate only to seconds" in row["reason"] and row["state"] == "weak" for row in rows.values())
    assert all(row["uncertainty_s"] > 0.5 for row in rows.values())


def test_stamps_in_seconds_since_1970_and_time_outs_half_an_hour_behind(tmp_path: Path) -> None:
    """A third of the hosts writes `ts %.s` or nanoseconds; their watchdogs write glog's local time, half an hour
    behind the last step that all hosts print. 49 of 68 clocks were aligned."""
    states: list[str] = []
    off: list[float] = []  # seconds, against the job's time
    stated: list[float] = []
    for seed in range(71, 75):
        hang: Any = {"hosts": 12, "steps": 90, "scenario": "hang", "patience": 1800.0}
        truth = write(tmp_path / str(seed), seed, _third_in_epochs, **hang)
        document = document_of(tmp_path / str(seed))
        rows = [c for c in document["clocks"] if not any("dmesg" in source for source in c["sources"])]
        by = {host.name: host for host in truth.hosts}
        late = 0.0  # of the job's time, against the true one, which no log has
        for _ in range(3):
            errors = [_error(by[c["host"]], c, late) for c in rows]
            late -= float(np.median(errors))
        states += [c["state"] for c in rows]
        off += [_error(by[c["host"]], c, late) for c in rows]
        stated += [c["uncertainty_s"] for c in rows]
    assert states.count("aligned") >= 0.95 * len(states)
    assert np.quantile(np.abs(off), 0.95) <= 0.005
    assert np.mean(np.abs(off) <= 1.96 * np.array(stated)) >= 0.93


def _error(host: Host, row: dict[str, Any], late: float) -> float:
    """The stated error of a host's clock, less its true one, where the job's time is `late` by so much."""
    moment = datetime.fromisoformat(row["at"]).timestamp() - late
    return float(row["offset_s"] + late - host.skew - host.drift * (moment - host.start))


def _third_in_epochs(i: int, host: Host) -> Host:
    return replace(host, form="epoch" if i % 6 == 1 else "nanos") if i % 3 == 1 else host


def test_a_kernel_log_without_a_kill_has_the_time_of_its_boot(tmp_path: Path) -> None:
    """`setting system clock to` is the one wall time in a plain dmesg: good for seconds after days."""
    truth = write(tmp_path / "logs", seed=103, hosts=3, scenario="exception")
    host = truth.hosts[2]
    boot = host.boot + host.skew
    line = f"[    0.647614] rtc_cmos rtc_cmos: setting system clock to 2026-11-20T10:45:53 UTC ({int(boot + 0.647614)})"
    xid = f"[{START + 600 - host.boot:12.6f}] NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus."
    (tmp_path / "logs" / host.name / "dmesg.txt").write_text(f"{line}\n{xid}\n")
    incident = analyze([str(tmp_path / "logs")], Options(redact=False))
    row = next(c for c in incident.document["clocks"] if c["kind"] == "boot" and c["host"] == host.name)
    assert row["state"] == "weak" and "hardware clock at boot" in row["reason"], row
    lost = next(e for e in typed_rows(incident) if "fallen off" in e.text)
    assert lost.at is not None and abs(lost.at - START - 600) < 2 * lost.at_sigma < 200
