"""What evidence to get next, and how, for the versions at hand."""

from __future__ import annotations

from typing import Any

import pytest

from claims import case, claim, event, exits, pattern, source
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.missing import Open, missing, recorder_settings

DMESG = source("dmesg.txt", "kernel")


def asked(
    category: str | None, *events: Any, claims: Any = (), root: Claim | None = None, **known: Any
) -> list[dict[str, str]]:
    root = root or (claim(pattern("p", category)) if category else None)
    hosts = known.pop("hosts", ["node-a"])
    return missing(Open(case(*events, **known), [*claims, *([root] if root else [])], root, category, hosts))


def wanted(category: str | None, *events: Any, **known: Any) -> list[str]:
    return [item["what"].split(" of ")[0] for item in asked(category, *events, **known)]


@pytest.mark.parametrize(
    "category, what",
    [
        ("external-signal", ["kernel log"]),
        ("peer-lost", ["kernel log"]),
        ("host-oom", ["kernel log"]),
        ("native-crash", ["kernel log"]),
        (None, []),
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
    assert asked("host-oom", hosts=["node-a", "node-b"])[0]["what"] == "kernel log of node-a"
    dead = asked("peer-lost", *exits(r1=-9), ranks=(0, 1), hosts=[])
    assert dead[0]["what"] == "kernel log of the host of rank 1"
    assert asked("peer-lost", hosts=[])[0]["what"] == "kernel log of each host of the job"  # nobody died


def test_the_kernel_log_around_the_moment() -> None:
    root = claim(pattern("p", "external-signal"), event(at=1_795_208_328.0))
    item = asked("external-signal", root=root)[0]
    assert item["what"] == "kernel log of node-a around 20:58 UTC"
    assert "--since '2026-11-20 20:53:48 UTC'" in item["how"]


def test_the_log_of_the_address_that_was_lost() -> None:
    said = event("Connection closed by peer [10.22.0.12]:40412", rank=1)
    lost = claim(pattern("closed", "peer-lost", role="symptom"), said)
    item = asked("peer-lost", claims=[lost, lost], root=claim(pattern("p", "peer-lost")))[0]
    assert item["what"] == "logs of the host at 10.22.0.12" and "2 lines report it" in item["would_tell"]
    own = claim(
        pattern("closed", "peer-lost", role="symptom"), event("Connection closed by peer [127.0.0.1]:40412")
    )
    assert wanted("peer-lost", claims=[own]) == ["kernel log"]


def test_the_schedulers_account_of_a_job_whose_number_is_known() -> None:
    told = claim(pattern("cancelled", "scheduler", role="symptom"), event("STEP 17.0 CANCELLED", job_id="17"))
    assert asked(None, claims=[told])[0]["how"].startswith("sacct -j 17 ")


def test_logs_of_ranks_that_have_none() -> None:
    voice = event(kind="line", rank=0)
    assert [i["what"] for i in asked("", voice, root=claim(pattern()), ranks=(0, 1, 2))] == [
        "logs of ranks 1 and 2"
    ]
    assert asked("", root=claim(pattern()), ranks=(0, 1)) == []
    assert asked("", voice, root=claim(pattern()), ranks=(0,)) == []


def test_the_reason_of_a_rank_that_left() -> None:
    assert wanted("", root=claim(pattern(), strength="ended")) == ["the traceback or reason"]
    assert wanted("", root=claim(pattern("c", "scheduler"), strength="ended")) == []
    assert all(item.keys() == {"what", "would_tell", "how"} for item in asked("hang"))


@pytest.mark.parametrize(
    "version, new", [("2.8.0", False), ("2.9.0", True), ("2.10", True), ("1.13", False), (None, True)]
)
def test_the_recorders_variables_were_renamed_in_torch_2_9(version: str | None, new: bool) -> None:
    assert recorder_settings(version).startswith("TORCH_FR_" if new else "TORCH_NCCL_")
