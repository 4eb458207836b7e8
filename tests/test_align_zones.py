"""Time zones and skews of hosts: from their own logs, from each other, and from real runs of two hosts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from clocks.folder import write

from conftest import ROOT
from postmortem import Options, analyze
from postmortem.align import align, zones
from postmortem.align.owners import ClockId
from postmortem.model import Event, Where

T = 1_795_209_228.0
HOUR = 3600.0
EAST = {"UTC": 0, "Asia/Tokyo": 9, "Asia/Kolkata": 5.5, "America/New_York": -5, "Europe/Berlin": 1}  # in November
TWO_HOSTS = [
    p.parent
    for p in sorted((ROOT / "sample_logs").glob("*/truth.json"))
    if len(json.loads(p.read_text()).get("clock_offset_s") or {}) > 1
]


def clock(host: str, kind: str = "naive") -> ClockId:
    return ClockId(host, 0, kind, False)


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
    for a in offsets:
        for b in offsets:
            assert offsets[a] - offsets[b] == pytest.approx(
                truth["clock_offset_s"][a] - truth["clock_offset_s"][b], abs=1.0
            )
    if any(truth["clock_offset_s"].values()):
        assert set(offsets) == set(east), "a clock that was set wrong is found, not left out"
    if len(set(east.values())) > 1:
        assert {c["zone_s"] for c in own} == set(east.values())


def test_the_launchers_block_and_the_error_file_name_the_zone() -> None:
    """torchrun formats the error file's epoch seconds as local time, half-hour zones included. Two moments that are
    not quarters of an hour apart (seven minutes) are two failures of the rank."""
    reported = {"reported_by": "error-file", "local_rank": 1}
    error = Event("exception", Where("1/error.json", None), "x", time=T, clock="absolute", sigma=0.6, fields=reported)
    for apart, zone, at in ((5.5 * HOUR, 5.5 * HOUR, T), (420, 0.0, T + 420)):
        end = Event("exit", Where("agent.err", 60), "exitcode", time=T + apart, clock="naive", sigma=0.6, rank=1)
        timeline = align([end._replace(fields={"local_rank": 1}), error])
        assert (next(c for c in timeline.clocks if c.kind == "naive").zone or 0.0) == zone
        assert next(e for e in timeline.events if e.kind == "exit").at == at


def test_what_names_a_zone_comes_before_what_is_likely() -> None:
    totals = {clock("a"): 9 * HOUR + 0.2, clock("b"): 0.1, clock("c", "absolute"): 9 * HOUR + 0.15}
    assert zones.gauge(totals, {clock("c", "absolute"): 0.0}) == (9 * HOUR + 0.15, "named")


def test_two_hosts_without_a_zone_are_read_as_people_set_them_up() -> None:
    for city, apart in {"Tokyo": 9, "Kolkata": 5.5, "New York": -5, "Berlin": 1, "Kathmandu": 5.75}.items():
        base, how = zones.gauge({clock("a"): 0.0, clock("b"): apart * HOUR}, {})
        assert how == "likely", city
        assert (zones.snapped(-base) / HOUR, zones.snapped(apart * HOUR - base) / HOUR) == (0, apart), city


def test_where_several_readings_are_as_likely_none_is_reported() -> None:
    """Eight hours: California and UTC, or UTC and Singapore."""
    assert zones.gauge({clock("a"): 0.0, clock("b"): 8 * HOUR}, {})[1] == "open"
    assert zones.gauge({clock("a"): 0.02, clock("b"): 0.0}, {})[1] == "alone"


def test_a_watchdogs_ten_minutes_are_no_zone() -> None:
    """A host whose log ends 600 s behind the error file of its rank is in the same zone."""
    spans = {clock("a"): (T - HOUR, T + 600), clock("a", "absolute"): (T - 30, T)}
    assert zones.named_by_span(spans) == {clock("a"): 0.0}


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


def test_a_folder_with_a_stepped_clock(tmp_path: Path) -> None:
    truth = write(tmp_path / "logs", seed=83, hosts=4, stepping=True)
    document = analyze([str(tmp_path / "logs")], Options(redact=False)).document
    pieces = [c for c in document["clocks"] if c["host"] == "node-1" and c["events"]]
    jump = truth.hosts[1].step[1] if truth.hosts[1].step else 0.0
    assert [f"set by {jump:+.1f}"[:9] in c["reason"] for c in pieces if c["kind"] != "boot"] == [False, True]
    assert document["verdict"]["culprit"]["ranks"] == [truth.rank]
