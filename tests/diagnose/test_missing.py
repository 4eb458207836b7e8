"""What evidence to get next, and how, for the versions at hand."""

from __future__ import annotations

from typing import Any

import pytest

from claims import case, claim, event, pattern, source
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.missing import missing, recorder_settings

DMESG = source("dmesg.txt", "kernel")


def wanted(category: str | None, *events: Any, root: Claim | None = None, **known: Any) -> list[str]:
    root = root or (claim(pattern("p", category)) if category else None)
    return [item["what"].split(" of ")[0] for item in missing(case(*events, **known), root, ["node-a"])]


@pytest.mark.parametrize(
    "category, what",
    [
        ("external-signal", ["kernel log"]),
        ("peer-lost", ["kernel log"]),
        ("host-oom", ["kernel log"]),
        ("native-crash", ["kernel log"]),
        (None, ["kernel log", "flight-recorder dumps", "stacks"]),
        ("hang", ["flight-recorder dumps", "stacks"]),
        ("collective-mismatch", ["flight-recorder dumps"]),
        ("python-exception", []),
    ],
)
def test_what_would_settle_it(category: str | None, what: list[str]) -> None:
    assert wanted(category) == what


def test_what_is_at_hand_is_not_asked_for() -> None:
    assert wanted("host-oom", sources=[DMESG]) == []
    assert wanted("hang", event(kind="recorder"), event(kind="stack")) == []


def test_the_kernel_log_of_the_host_in_question() -> None:
    root = claim(pattern("p", "host-oom"))
    assert missing(case(), root, ["node-a", "node-b"])[0]["what"] == "kernel log of node-a"
    assert missing(case(), root, [])[0]["what"] == "kernel log of the host of the rank that died"


def test_logs_of_ranks_that_have_none() -> None:
    voice = event(kind="line", rank=0)
    asked = missing(case(voice, ranks=(0, 1, 2)), claim(pattern()), [])
    assert [item["what"] for item in asked] == ["logs of ranks 1 and 2"]
    assert missing(case(ranks=(0, 1)), claim(pattern()), []) == []
    assert missing(case(voice, ranks=(0,)), claim(pattern()), []) == []


def test_the_reason_of_a_rank_that_left() -> None:
    assert wanted("", root=claim(pattern(), strength="ended")) == ["the rank's traceback or reason"]
    assert wanted("", root=claim(pattern("c", "scheduler"), strength="ended")) == []
    assert all(item.keys() == {"what", "would_tell", "how"} for item in missing(case(), None, []))


@pytest.mark.parametrize(
    "version, new", [("2.8.0", False), ("2.9.0", True), ("2.10", True), ("1.13", False), (None, True)]
)
def test_the_recorders_variables_were_renamed_in_torch_2_9(version: str | None, new: bool) -> None:
    assert recorder_settings(version).startswith("TORCH_FR_" if new else "TORCH_NCCL_")
