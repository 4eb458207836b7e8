"""Every parser, walker and reader on made inputs; the fuzzer is `tests/fuzz`, and runs longer by itself."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import pytest
from fuzz import campaign, watch
from fuzz.targets import TARGETS, Target

from postmortem import documents

SEED = int(os.environ.get("POSTMORTEM_SEED", "0")) or random.SystemRandom().randrange(1 << 24)
FEW = {"analysed": 2, "read": 4}  # executions in the fast suite, where one takes milliseconds
USUAL = 8
MORE = dict.fromkeys(("peel", "small", "record", "export", "pickled", "error-file", "stack", "cgroup"), 20)
MANY = 100_000


@pytest.mark.parametrize("name", TARGETS)
def test_some_inputs(name: str) -> None:
    count = 4 if name.startswith("parsed-") else FEW.get(name, MORE.get(name, USUAL))
    outcome = campaign.run(TARGETS[name], count, SEED)
    assert not outcome.finds and outcome.tried >= count, str(outcome)


@pytest.mark.release
@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_many_inputs(name: str) -> None:
    """100,000 in all, each target its share."""
    (share,) = (n for target, n in campaign.shares(MANY) if target.name == name)
    outcome = campaign.run(TARGETS[name], share, SEED + 1, seconds=60)
    print(outcome)
    assert not outcome.finds, str(outcome)


def test_every_parser_is_a_target() -> None:
    """A new kind of document is fuzzed without further work."""
    assert set(TARGETS) >= documents.KINDS
    assert {f"parsed-{kind}" for kind in documents.KINDS} <= set(TARGETS)


# ── the fuzzer finds faults ─────────────────────────────────────────────────────────────────────────────────


def _slow(_data: bytes) -> None:
    while True:
        pass


def _large(_data: bytes) -> None:
    held = [bytes(64 << 20) for _ in range(64)]
    assert held


def _swallows(_data: bytes) -> None:
    try:
        subprocess.run(["true"], check=False)
    except BaseException:
        pass


ODD = {
    "an exception": (lambda _: int("x"), "ValueError"),
    "a loop": (_slow, "Slow"),
    "much memory": (_large, "MemoryError"),
    "a file elsewhere": (lambda _: Path("/etc/hostname").read_bytes(), "Escape"),
    "a file written": (lambda _: Path("/tmp/postmortem-escape").write_bytes(b""), "Escape"),
    "a swallowed process": (_swallows, "Escape"),
    "text that is run": (lambda _: eval("1+1"), "Escape"),
}


@pytest.mark.parametrize("fault", ODD)
def test_it_finds(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, kind = ODD[fault]
    monkeypatch.setattr(campaign, "in_time", lambda: watch.in_time(0.2))
    start = time.process_time()
    target = Target("odd", lambda: [b"x"], lambda data: run(data) if data else None, 1)
    monkeypatch.setattr(campaign, "_once", lambda *_: None)
    monkeypatch.setattr(campaign, "CORPUS", Path("/nowhere"))
    (place,) = campaign.run(target, 1, 1).finds
    assert place.startswith(kind) and time.process_time() - start < 30
    assert not Path("/tmp/postmortem-escape").exists()
