"""What log collectors put around every line changes no verdict:
real incidents as Kubernetes, Docker and others hand them on."""

from __future__ import annotations

import json
import shutil
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from envelopes import ENVELOPES, arrived

from postmortem.analyze import analyze
from postmortem.formats.envelope import peel

SAMPLES = Path(__file__).resolve().parent.parent / "sample_logs"
FEW = (
    "bad-label-one-rank",
    "sigkill-from-outside",
    "exit-three-silently",
    "early-rank-waits-in-barrier",
    "healthy-torchrun",
)
OWN_CLOCKS = (
    "firewall-before-master",
    "healthy-clock-ahead",
)  # their hosts' clocks are wrong, a collector's is not
ALL = sorted(p.parent.name for p in SAMPLES.glob("*/truth.json") if p.parent.name not in OWN_CLOCKS)
SHARE = 5  # of the other incidents every fifth envelope
OWN_HOST = frozenset(  # envelopes that name a host, so the verdict may name it, too
    (
        "kubectl logs --prefix",
        "docker compose logs",
        "journalctl",
        "journalctl -o export",
        "journalctl -o verbose",
        "journalctl -o json-pretty",
        "syslog of RFC 5424",
        "structlog",
        "Loki, lines newest first",
    )
)
FAST = {  # one of each kind for each of two cases
    (case, name)
    for case in FEW[:2]
    for name in (
        "containerd, lines cut",
        "docker's json-file",
        "Cloud Logging, newest first",
        "a table",
        "logfmt",
        "colours of a paste",
        "a code block",
    )
}


def told(document: dict[str, Any], hosts: bool) -> list[object]:
    v = document["verdict"]
    named = v["culprit"]["hosts"] if hosts else []
    return [v["outcome"], v["category"], v["pattern"], v["culprit"]["ranks"], named]


def host_of(path: Path, logs: Path) -> str:
    """The folder of a host, as these samples have them."""
    first = path.relative_to(logs).parts[0]
    return first if (logs / first).is_dir() and first != "torchelastic" else "node-a"


@cache
def before(case: str) -> dict[str, Any]:
    return analyze([str(SAMPLES / case / "logs")]).document


def pairs() -> list[Any]:
    slow = pytest.mark.slow
    return [
        pytest.param(case, name, id=f"{case}: {name}", marks=() if (case, name) in FAST else slow)
        for case in ALL
        for name in ENVELOPES
        if case in FEW or zlib.crc32(f"{case} {name}".encode()) % SHARE == 0
    ]


@pytest.mark.parametrize(("case", "name"), pairs())
def test_a_collector_changes_no_verdict(case: str, name: str, tmp_path: Path) -> None:
    copy = tmp_path / "logs"
    shutil.copytree(SAMPLES / case / "logs", copy)
    for path in (p for p in copy.rglob("*") if p.is_file() and p.suffix in (".log", ".err", ".out")):
        if text := path.read_text(errors="replace"):
            lines = arrived(text.splitlines(), host_of(path, copy))
            path.write_text(ENVELOPES[name](lines))
    hosts = name not in OWN_HOST
    assert told(analyze([str(copy)]).document, hosts) == told(before(case), hosts)


def test_a_record_without_a_time_keeps_the_time_of_its_line() -> None:
    printed = peel("2026-11-20 21:02:56,633 INFO [rank1] step 15")
    assert printed.stamp is not None
    assert peel(json.dumps({"log": "2026-11-20 21:02:56,633 INFO [rank1] step 15\n", "stream": "stdout"})) == printed
