"""Runs that finished well and print lines that sound like trouble: a verdict other than healthy is a false alarm at 3 a.m.

Each folder of tests/goodlogs/ is a real run (torch 2.13, gloo) with paths changed. docs/false-alarms.md describes how
to add one.
"""

from __future__ import annotations

from pathlib import Path

from postmortem.analyze import Options, analyze

LOGS = Path(__file__).parent / "goodlogs"
ALARMS = {  # the alarming line of each, so that no log without a temptation is here
    "early-stopping": "terminating training loop",
    "frightening-warnings": "CUDA out of memory errors are retried",
    "handled-exceptions": "RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    "hf-trainer": "did not find any unused parameters in the forward pass",
    "lightning": "is available on your system but is not used",
    "metrics-named-error": "val loss nan (empty split)",
    "no-goodbye": "kill_on_oom",
    "plain-processes": "num_timeouts=0",
    "retries-that-succeed": "ConnectionResetError: [Errno 104] Connection reset by peer",
    "spawn-verbose": "resource busy or locked",
    "store-gone-at-exit-barrier": "Error waiting on exit barrier",
    "verbose-c10d": "uv_loop_close failed",
}


def test_a_good_run_raises_no_alarm() -> None:
    assert sorted(ALARMS) == sorted(p.name for p in LOGS.iterdir())
    for name, alarm in ALARMS.items():
        assert any(alarm in p.read_text() for p in (LOGS / name).rglob("*") if p.is_file()), name
        document = analyze([str(LOGS / name)], Options()).document
        causes = [f["pattern"] for f in document["findings"] if f["role"] == "cause"]
        assert (name, document["verdict"]["outcome"], causes) == (name, "healthy", [])
