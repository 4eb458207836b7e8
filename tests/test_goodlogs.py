"""Runs that finished well and print lines that sound like trouble: a verdict other than healthy is a false alarm at 3 a.m.

Each folder of tests/goodlogs/ is a real run (torch 2.13, gloo) with paths changed. docs/false-alarms.md describes how
to add one.
"""

from __future__ import annotations

from pathlib import Path

from conftest import table
from postmortem.analyze import Options, analyze

LOGS = Path(__file__).parent / "goodlogs"
ALARMS = table("goodlogs")["alarms"]


def test_a_good_run_raises_no_alarm() -> None:
    assert sorted(ALARMS) == sorted(p.name for p in LOGS.iterdir())
    for name, alarm in ALARMS.items():
        assert any(alarm in p.read_text() for p in (LOGS / name).rglob("*") if p.is_file()), name
        document = analyze([str(LOGS / name)], Options()).document
        causes = [f["pattern"] for f in document["findings"] if f["role"] == "cause"]
        assert (name, document["verdict"]["outcome"], causes) == (name, "healthy", [])
