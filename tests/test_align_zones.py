"""Time zones and skews of hosts: from their own logs, from each other, and from real runs of two hosts. Kernel lines on
the job's clock: copies in other formats, and the interval in which a kill must lie."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import pytest
from clocks.folder import write
from clocks.world import BASE, World

from claims import event
from conftest import ROOT
from postmortem import Options, analyze
from postmortem.align import Timeline, align
from postmortem.align.kernel import body
from postmortem.model import ClockKind, Event

T = 1_795_209_228.0
HOUR = 3600.0
EAST = {"UTC": 0, "Asia/Tokyo": 9, "Asia/Kolkata": 5.5, "America/New_York": -5, "Europe/Berlin": 1}  # in November
TWO_HOSTS = [
    p.parent
    for p in sorted((ROOT / "sample_logs").glob("*/truth.json"))
    if len(json.loads(p.read_text()).get("clock_offset_s") or {}) > 1
]


@pytest.mark.parametrize("case", TWO_HOSTS, ids=lambda p: p.name)
def test_zones_and_offsets_of_real_runs_on_two_hosts(case: Path) -> None:
    """Two network namespaces with different time zones. What the document states about them has to be so."""
    truth = json.loads((case / "truth.json").read_text())
    east = {
        host: EAST[zone] * HOUR
        for host, zone in (truth["timezone"] or dict.fromkeys(truth["clock_offset_s"], "UTC")).items()
    }
    document = analyze([str(case / "logs")], Options(redact=False)).document
    own = [c for c in document["clocks"] if c["kind"] == "naive"]
    assert own
    offsets = {}
    for c in own:
        if c["zone_s"] is not None:
            assert c["zone_s"] == east[c["host"]], c
        if c["offset_s"] is not None and (c["zone_s"] is not None or not any(o["zone_s"] for o in own)):
            offsets[c["host"]] = c["offset_s"]
        assert c["reason"] and c["state"] in ("aligned", "weak")
    assert set(offsets) == set(east), "a clock is found, not left out"
    for a in offsets:
        for b in offsets:
            assert offsets[a] - offsets[b] == pytest.approx(
                truth["clock_offset_s"][a] - truth["clock_offset_s"][b], abs=1.0
            )
    if len(set(east.values())) > 1:
        assert {c["zone_s"] for c in own} == set(east.values())


def block_and_file(apart: float) -> Timeline:
    """A rank's failure in torchrun's block, in local time, and in the error file, in seconds since 1970."""
    usual: dict[str, Any] = {"sigma": 0.6, "rank": 1, "local_rank": 1}
    end = event("exitcode", "agent.err", 60, "exit", time=T + apart, clock="naive", **usual)
    usual |= {"time": T, "clock": "absolute", "reported_by": "error-file"}
    return align([end, event("x", "1/error.json", None, "exception", **usual)])


def test_the_launchers_block_and_the_error_file_name_the_zone() -> None:
    """Half-hour zones included; seven minutes apart are another failure of the same rank."""
    timeline = block_and_file(5.5 * HOUR)
    assert next(c for c in timeline.clocks if c.kind == "naive").zone == 5.5 * HOUR
    assert {e.at for e in timeline.events} == {T}
    assert next(e for e in block_and_file(420).events if e.kind == "exit").at == T + 420


@pytest.mark.parametrize("scenario", ["oom", "exception"])
def test_a_whole_folder_with_known_clocks(tmp_path: Path, scenario: str) -> None:
    """Four hosts in four zones, three formats, one dying rank: clocks, kill and verdict."""
    truth = write(tmp_path / "logs", seed=81 if scenario == "oom" else 82, hosts=4, scenario=scenario)
    document = analyze([str(tmp_path / "logs")], Options(redact=False)).document
    rows = {c["host"]: c for c in document["clocks"] if c["events"] >= 40}
    assert set(rows) == {h.name for h in truth.hosts}
    at = truth.death
    apart = {}
    for h in truth.hosts:
        assert rows[h.name]["zone_s"] == h.zone and rows[h.name]["state"] == "aligned", rows[h.name]
        apart[h.name] = rows[h.name]["offset_s"] - (h.shown(at) - at)
    assert max(apart.values()) - min(apart.values()) < 0.02, "offsets agree but for what all share"
    shared = sorted(apart.values())[1]
    assert document["verdict"]["culprit"]["ranks"] == [truth.rank]
    if scenario == "oom":
        boot = next(c for c in document["clocks"] if c["kind"] == "boot" and c["host"] == truth.victim.name)
        assert abs(-boot["offset_s"] - truth.victim.boot + shared) < 3 * boot["uncertainty_s"]


KILL = "Memory cgroup out of memory: Killed process 29502 (python3) total-vm:1kB"


def kernel(text: str, time: float, clock: ClockKind, file: str, host: str = "node-b", pid: int | None = 29502) -> Event:
    stamp: dict[str, Any] = {"time": time, "clock": clock, "sigma": 1e-6, "host": host}
    fields = {"pid": pid} if pid else {}
    return event(text, file, source_kind="kernel", speaker="kernel", fields=fields, **stamp)


def job(last: float, noticed: float, clock: ClockKind = "naive", host: str = "node-b", **more: Any) -> list[Event]:
    """The rank's last line, and the agent's report of its end."""
    usual: dict[str, Any] = {"clock": clock, "sigma": 0.0003, "rank": 3, "host": host} | more
    return [
        event("step 10", "rank3.log", 9, "line", time=last, source_kind="console", **usual),
        event("exitcode: -9", "agent.err", 50, "exit", time=noticed, source_kind="agent", **{"pid": 29502} | usual),
    ]


def killed(events: list[Event], source: str) -> Event:
    return next(e for e in align(events).events if e.where.source == source)


def test_the_same_line_in_every_format() -> None:
    for stamp in (
        "[ 2240.704416]", "<3>[ 2240.704416]", "kern  :err   : [ 2240.704416]", "[Fri Nov 20 21:13:48 2026]",
        "2026-11-20T21:13:48,704416+00:00", "Nov 20 21:13:48 node-b kernel:",
        "Nov 20 21:13:48 node-b kernel: [ 2240.704416]",
    ):  # fmt: skip
        assert body(f"{stamp} {KILL}") == KILL


def test_boot_time_from_the_same_line_in_wall_time() -> None:
    events = [*job(T, T + 0.9), kernel(f"[ 2240.704416] {KILL}", 2240.704416, "boot", "dmesg.txt")]
    events.append(kernel(f"2026-11-20T21:13:48,704416+00:00 {KILL}", T + 0.704416, "absolute", "dmesg_iso.txt"))
    found = killed(events, "dmesg.txt")
    assert found.at == pytest.approx(T + 0.704, abs=0.01) and found.at_sigma <= 0.6
    boot = next(c for c in align(events).clocks if c.kind == "boot")
    assert set(boot.sources) == {"dmesg.txt", "dmesg_iso.txt"}
    assert found.time == 2240.704416, "the raw stamp stays"


def test_boot_time_from_the_kill_alone() -> None:
    """It lies behind the rank's last line and before the agent's report of that pid: an interval, and weak."""
    timeline = align([*job(T, T + 1.2), kernel(f"[ 2240.7] {KILL}", 2240.7, "boot", "dmesg.txt")])
    found = next(e for e in timeline.events if e.where.source == "dmesg.txt")
    assert found.at is not None and T <= found.at <= T + 1.2
    assert abs(found.at - T - 0.6) < 2 * found.at_sigma
    clock = next(c for c in timeline.clocks if c.kind == "boot")
    assert clock.state == "weak" and "last line" in clock.reason


def test_a_host_known_by_its_zone_alone_does_not_make_its_kernel_surer() -> None:
    """The kill lies behind the last line and before the report on that host's own clock;
    how far that clock is off adds to both."""
    other = job(T, T + 3, host="node-a", rank=0, pid=1)
    late = job(T + 9 * 3600, T + 9 * 3600 + 1.2)
    timeline = align([*other, *late, kernel(f"[ 2240.7] {KILL}", 2240.7, "boot", "dmesg.txt")])
    found = next(e for e in timeline.events if e.where.source == "dmesg.txt")
    own = next(c for c in timeline.clocks if c.host == "node-b" and c.kind == "naive")
    assert own.uncertainty is not None and found.at_sigma > own.uncertainty > 1
    last, noticed = [e.at for e in timeline.events if e.host == "node-b" and e.clock == "naive"]
    assert last is not None and noticed is not None and found.at is not None and last <= found.at <= noticed


def test_a_boot_clock_that_nothing_joins_is_refused() -> None:
    xid = kernel("[ 99.5] NVRM: Xid (PCI:0000:17:00): 79", 99.5, "boot", "dmesg.txt", pid=None)
    timeline = align([*job(T, T + 1), xid])
    clock = next(c for c in timeline.clocks if c.kind == "boot")
    assert (clock.state, clock.offset, clock.events) == ("refused", None, 0) and clock.reason
    assert next(e for e in timeline.events if e.where.source == "dmesg.txt").at is None


def test_dmesg_T_of_a_host_in_another_zone_than_its_job() -> None:
    """A container runs in local time, `dmesg -T` is asked for in UTC:
    the kill shows which zone the kernel's wall time is in."""
    local = T - 5 * 3600
    wall = kernel(f"[Fri Nov 20 21:13:48 2026] {KILL}", T + 0.5, "naive", "dmesg_T.txt")
    known: dict[str, Any] = {"sigma": 0.6, "rank": 0, "host": "node-b", "local_rank": 0}
    error = event(
        "x", "0/error.json", None, "exception", time=T + 2, clock="absolute", reported_by="error-file", **known
    )
    end = event("e", "agent.err", 60, "exit", time=local + 2, clock="naive", pid=29500, **known)
    events = [*job(local, local + 1.0), wall, error, end]
    timeline = align(events)
    assert next(c for c in timeline.clocks if c.kind == "naive" and "rank3.log" in c.sources).zone == -18000
    found = next(e for e in timeline.events if e.where.source == "dmesg_T.txt")
    assert found.at == pytest.approx(T + 0.5, abs=0.1)


def test_dmesg_T_is_read_off_its_hosts_clock() -> None:
    wall = kernel(f"[Fri Nov 20 21:13:48 2026] {KILL}", T + 0.5, "naive", "dmesg_T.txt")
    (clock,) = align([*job(T, T + 1), wall]).clocks
    assert clock.host == "node-b" and set(clock.sources) == {"rank3.log", "agent.err", "dmesg_T.txt"}


def test_a_pid_of_last_week_moves_no_clock() -> None:
    """Pids come again. A wall time that is days off is another process's line, not a clock that is days off."""
    old = kernel(f"[Fri Nov 13 21:13:48 2026] {KILL}", T - 7 * 86400, "naive", "dmesg_T.txt")
    found = killed([*job(T, T + 1), old], "dmesg_T.txt")
    assert found.at == pytest.approx(T - 7 * 86400, abs=1)


def test_a_skewed_host_has_a_skewed_kernel() -> None:
    """Wall time in a kernel log is the host's clock: 37 s fast like the rest of it."""
    world = World.make(seed=71, hosts=4, marks=40, skewed=0.0, outliers=0.0, absolute=1.0)
    events = []
    for e in world.events:
        if e.host == "node-0002":
            times = array("d", [t + 37 for t in e.fields.get("times", ())])
            e = e._replace(time=(e.time or 0) + 37, fields={**e.fields, **({"times": times} if times else {})})
        events.append(e)
    events += job(BASE + 37, BASE + 38.5, "absolute", "node-0002", rank=16)
    kill = kernel(f"2026-11-20T18:40:37,9+00:00 {KILL}", BASE + 37.9, "absolute", "dmesg_iso.txt", host="node-0002")
    found = killed([*events, kill], "dmesg_iso.txt")
    assert found.at == pytest.approx(BASE + 0.9, abs=0.7)
