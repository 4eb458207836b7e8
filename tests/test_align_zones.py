"""Time zones and skews of hosts: from their own logs, from each other, and from real runs of two hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from clocks.folder import write

from claims import event
from conftest import ROOT
from postmortem import Options, analyze
from postmortem.align import Timeline, align

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
    for a in offsets:
        for b in offsets:
            assert offsets[a] - offsets[b] == pytest.approx(
                truth["clock_offset_s"][a] - truth["clock_offset_s"][b], abs=1.0
            )
    if any(truth["clock_offset_s"].values()):
        assert set(offsets) == set(east), "a clock that was set wrong is found, not left out"
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
