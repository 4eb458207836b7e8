"""The prefixes and records of log collectors change no verdict: real incidents in every envelope."""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from envelopes import ENVELOPES, arrived

from conftest import solved
from postmortem.analyze import analyze

SAMPLES = Path(__file__).resolve().parent.parent / "sample_logs"
CASES = ("bad-label-one-rank", "sigkill-from-outside", "early-rank-waits-in-barrier", "healthy-torchrun")
# each envelope with one case, and two more envelopes of each kind with the first case
PAIRS = sorted(
    {(CASES[i % len(CASES)], name) for i, name in enumerate(ENVELOPES)} | set(product(CASES[:1], list(ENVELOPES)[::4]))
)
# envelopes that name a host, so the verdict may name it
WITH_HOST = {"kubectl logs --prefix", "docker compose logs", "journalctl", "journalctl -o json-pretty"}
WITH_HOST |= {"syslog of RFC 5424", "structlog", "Loki, lines newest first"}


def verdict(document: dict[str, Any], hosts: bool) -> list[object]:
    v = document["verdict"]
    return [v["outcome"], v["category"], v["pattern"], v["culprit"]["ranks"], v["culprit"]["hosts"] if hosts else []]


@pytest.mark.parametrize(("case", "name"), PAIRS)
def test_a_collector_changes_no_verdict(case: str, name: str, tmp_path: Path) -> None:
    copy = tmp_path / "logs"
    shutil.copytree(SAMPLES / case / "logs", copy)
    for path in (p for p in copy.rglob("*") if p.is_file() and p.suffix in (".log", ".err", ".out")):
        first = path.relative_to(copy).parts[0]
        host = first if (copy / first).is_dir() and first != "torchelastic" else "node-a"
        if text := path.read_text(errors="replace"):
            path.write_text(ENVELOPES[name](arrived(text.splitlines(), host)))
    hosts = name not in WITH_HOST
    assert verdict(analyze([str(copy)]).document, hosts) == verdict(solved(SAMPLES / case).document, hosts)
