"""Kernel lines on the job's clock: copies in other formats, and the interval in which a kill must lie."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from clocks.world import BASE, World

from claims import event
from postmortem.align import align
from postmortem.align.kernel import body
from postmortem.model import ClockKind, Event

T = 1_795_209_228.0
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
    assert (clock.state, clock.offset) == ("refused", None) and clock.reason
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
