"""Methods of benchmarks/peers.py on recorded incidents, and its page."""

from __future__ import annotations

import peers
import yaml

from conftest import ROOT, SAMPLES


def test_methods_on_a_rank_that_the_kernel_killed() -> None:
    case = next(case for case in peers.cases(SAMPLES) if case.name == "host-oom-cache-of-rank-2")
    found = {name: peers.judge(case, method(case)) for name, method in peers.METHODS.items()}
    assert found["postmortem"].exact and found["torchrun"].culprit and not found["exit code"].culprit


def test_the_page_has_todays_samples_and_first_looks() -> None:
    text = (ROOT / "docs" / "accuracy.md").read_text()
    looks = yaml.safe_load((ROOT / "docs" / "accuracy.yaml").read_text())["looks"]
    assert "\n".join(peers.first_looks(looks)) in text
    assert f"The {len(list(peers.cases(SAMPLES)))} recorded runs" in text


def test_wilson_interval() -> None:
    assert peers.share(149, 153) == "149 of 153 · .974 (.935–.990)"
