"""What comparing clocks cannot do, one test each: the stated error takes it in, or the clock is refused,
and the reason is reported.

Folders of logs with known clocks come from `clocks/folder.py`, events from `clocks/world.py`.
"""

from __future__ import annotations

import re
from calendar import timegm
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clocks.folder import START, Host, write
from clocks.world import BASE, HOUR, World
from test_align_world import clocks_of, errors, set_at, with_times

from claims import event
from postmortem import Options, analyze
from postmortem.align import align
from postmortem.diagnose import order
from postmortem.model import Where
from postmortem.model.frame import to_events


def own(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
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


@pytest.mark.parametrize(
    ("start", "note"),
    [
        (timegm((2026, 12, 31, 23, 40, 0)), "2026 before New Year, 2027 after it"),
        (timegm((2028, 2, 29, 12, 0, 0)), "2028, the nearest year with a 29 February"),
    ],
    ids=["new-year", "29-february"],
)
def test_years_that_no_line_names(tmp_path: Path, start: float, note: str) -> None:
    """Host 1 logs like glog, without a year. A fixed year would put half of its lines 365 days off."""
    forms = ("zoned", "glog", "logging")
    changed: Any = {"start": start, "change": lambda i, h: replace(h, zone=0.0, form=forms[i])}
    truth = write(tmp_path / "logs", seed=95, hosts=3, **changed)
    incident = analyze([str(tmp_path / "logs")], Options(redact=False))
    rows = own(incident.document)
    assert note in rows["node-1"]["reason"], rows["node-1"]["reason"]
    assert {row["state"] for row in rows.values()} == {"aligned"}
    lines = [
        e for e in to_events(incident.timeline, {}) if e.host == "node-1" and e.at is not None and e.clock == "naive"
    ]
    assert lines and all(
        start - 60 < (e.at or 0) - truth.hosts[1].skew < truth.end + 300 or e.at_sigma > 60 for e in lines
    )
    assert incident.document["verdict"]["culprit"]["ranks"] == [truth.rank]


def test_hosts_with_nothing_but_an_init_in_common(tmp_path: Path) -> None:
    """No step lines: one common line is a hint, not an alignment."""
    skews = (0.0, 40.0, -15.0)
    write(tmp_path / "logs", 96, change=lambda i, h: replace(h, words="", skew=skews[i], drift=0.0))
    rows = own(document_of(tmp_path / "logs"))
    few = "only 1 common line: too few to check them against each other"
    assert all(row["state"] == "weak" and few in row["reason"] for row in rows.values()), rows
    assert rows["node-1"]["offset_s"] - rows["node-0"]["offset_s"] == pytest.approx(40.0, abs=0.2)
    assert all(row["uncertainty_s"] > 0.3 for row in rows.values())


def test_two_groups_of_hosts_with_nothing_in_common(tmp_path: Path) -> None:
    """Two jobs' worth of lines: inside each group milliseconds, between them zones and spans."""
    write(tmp_path / "logs", seed=98, hosts=6, change=lambda i, h: h if i < 4 else replace(h, words="batch"))
    without_init(tmp_path / "logs")
    rows = own(document_of(tmp_path / "logs"))
    assert [rows[f"node-{i}"]["state"] for i in range(6)] == ["aligned"] * 4 + ["weak"] * 2
    for i in (4, 5):
        assert "compared with 1 other; no line in common with the other 4 clocks" in rows[f"node-{i}"]["reason"]
        assert rows[f"node-{i}"]["uncertainty_s"] >= 1.0


def test_the_same_second_on_two_hosts_is_no_order() -> None:
    """Stamps of whole seconds, 0 s apart: open. In one file the lines' order is the order."""
    one = event("x", "a/rank0.log", 7, "line", host="a", at=BASE, at_sigma=0.3)
    other = one._replace(where=Where("b/rank1.log", 3), host="b")
    assert order.told(one, other) == "which came first is not determined (0.00 s apart, ± 0.86 s)"
    assert order.told(one, other._replace(at=BASE + 2)) == "2.00 s later (± 0.86 s)"
    assert order.told(other._replace(at=BASE + 2), one) == "2.00 s earlier (± 0.86 s)"


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
    rows = own(document_of(tmp_path / "logs"))
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
    lost = next(e for e in to_events(incident.timeline, {}) if "fallen off" in e.text)
    assert lost.at is not None and abs(lost.at - START - 600) < 2 * lost.at_sigma < 200
