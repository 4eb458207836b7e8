"""Methods of benchmarks/peers.py on recorded incidents, and its page."""

from __future__ import annotations

import peers
import yaml

from conftest import ROOT, SAMPLES


def test_methods_on_a_rank_that_the_kernel_killed() -> None:
    case = next(case for case in peers.cases(SAMPLES) if case.name == "host-oom-cache-of-rank-2")
    found = {name: peers.judge(case, method(case)) for name, method in peers.METHODS.items()}
    assert found["postmortem"].exact and found["torchrun"].culprit and not found["exit code"].culprit


def test_ctrl_c_blames_no_rank() -> None:
    """Its truth names no rank (`ranks: []`), so a rank in an answer is wrong, and a healthy run is a miss."""
    case = next(case for case in peers.cases(SAMPLES) if case.name == "ctrl-c")
    row = peers.judge(case, peers.postmortem(case))
    assert row.exact and row.culprit
    blamed = peers.judge(case, row.answer._replace(ranks=[1]))
    assert not blamed.exact and blamed.culprit is False
    rows = {"none": [peers.judge(case, peers.Answer())], "blamed": [blamed], "postmortem": [row]}
    assert [line.partition(": ")[0] for line in peers.misses(rows)] == ["none", "blamed"]
    assert "| blamed | 1 | 0 of 1 · " in peers.table(rows)


def test_the_page_has_todays_samples_and_first_looks() -> None:
    text = (ROOT / "docs" / "accuracy.md").read_text()
    looks = yaml.safe_load((ROOT / "docs" / "accuracy.yaml").read_text())["looks"]
    assert "\n".join(peers.first_looks(looks)) in text
    assert f"The {len(list(peers.cases(SAMPLES)))} recorded runs" in text


def test_wilson_interval() -> None:
    assert peers.share(149, 153) == "149 of 153 · .974 (.935–.990)"
