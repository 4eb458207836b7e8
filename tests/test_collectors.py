"""What log collectors put around every line changes no verdict:
real incidents as Kubernetes, Docker and others hand them on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from postmortem.analyze import analyze
from postmortem.parsers.envelope import peel

SAMPLES = Path(__file__).resolve().parent.parent / "sample_logs"
START = datetime(2026, 11, 20, 21, 20, tzinfo=UTC)
WRAPPERS: dict[str, Callable[[str, datetime], str]] = {
    "kubectl logs --timestamps": lambda line, at: f"{at:%Y-%m-%dT%H:%M:%S.%f}123Z {line}",
    "/var/log/pods of containerd": lambda line, at: f"{at:%Y-%m-%dT%H:%M:%S.%f}123Z stderr F {line}",
    "docker's json-file": lambda line, at: json.dumps(
        {"log": line + "\n", "stream": "stderr", "time": f"{at:%Y-%m-%dT%H:%M:%S.%f}123Z"}
    ),
    "docker compose logs": lambda line, at: f"trainer-1  | {line}",
    "journalctl": lambda line, at: f"{at:%b %d %H:%M:%S} node-a train.sh[123]: {line}",
    "ts of moreutils": lambda line, at: f"{at:%b %d %H:%M:%S} {line}",
    "copied through Windows": lambda line, at: f"{line}\r",
}
CASES = (
    "bad-label-one-rank",
    "sigkill-from-outside",
    "exit-three-silently",
    "early-rank-waits-in-barrier",
    "healthy-torchrun",
)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("collector", WRAPPERS)
def test_a_collector_changes_no_verdict(collector: str, case: str, tmp_path: Path) -> None:
    before = analyze([str(SAMPLES / case / "logs")]).document["verdict"]
    copy = tmp_path / "logs"
    shutil.copytree(SAMPLES / case / "logs", copy)
    for path in (p for p in copy.rglob("*") if p.suffix in (".log", ".err", ".out")):
        lines = path.read_text().splitlines()
        wrapped = (
            WRAPPERS[collector](line, START + timedelta(milliseconds=7 * i)) for i, line in enumerate(lines)
        )
        path.write_text("".join(f"{line}\n" for line in wrapped))
    after = analyze([str(copy)]).document["verdict"]
    assert [after["outcome"], after["category"], after["culprit"]["ranks"]] == [
        before["outcome"],
        before["category"],
        before["culprit"]["ranks"],
    ]


def test_a_record_without_a_time_keeps_the_time_of_its_line() -> None:
    printed = peel("2026-11-20 21:02:56,633 INFO [rank1] step 15")
    assert printed.stamp is not None
    assert (
        peel(json.dumps({"log": "2026-11-20 21:02:56,633 INFO [rank1] step 15\n", "stream": "stdout"}))
        == printed
    )
