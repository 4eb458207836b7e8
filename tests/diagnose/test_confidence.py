"""How sure a verdict is, by one rule; and that the documentation names its words."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest

from claims import case, claim, event, pattern, source
from conftest import ROOT
from postmortem.diagnose import confidence
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.rules import AFTER, BEFORE
from postmortem.model import Confidence
from postmortem.model.vocabulary import STRENGTHS

RAISED = pattern()


def sure(root: Claim, ranks: tuple[int, ...] = (1,), **known: Any) -> str:
    return confidence.of(case(**known), root, ranks)


@pytest.mark.parametrize(
    "root, ranks",
    [
        (claim(RAISED, ranks=(1,), because="no pid matches"), (1,)),
        (claim(pattern(status="draft"), ranks=(1,)), (1,)),
        (claim(pattern(derived=True), ranks=(1,)), (1,)),
        (claim(RAISED, ranks=(1,), strength="compared"), (1,)),
        (claim(RAISED), (1,)),  # the rank is a deduction
        (claim(RAISED), ()),  # it names nobody
        (claim(RAISED, event(fields={"signal": "Aborted"}), ranks=(1,)), (1,)),  # the reason is another line
        (claim(pattern("h", "hang"), ranks=(1,)), (1,)),  # what a rank missed, and not what happened
    ],
)
def test_a_deduction_between_line_and_verdict_only_supports_it(root: Claim, ranks: tuple[int, ...]) -> None:
    assert sure(root, ranks) == "supported"


@pytest.mark.parametrize(
    "root",
    [
        claim(pattern("x", "gpu-hardware", entity="gpu"), gpus=("0000:48:00",)),
        claim(pattern(entity="peer"), hosts=("node-a",)),
        claim(pattern(entity="host")),
        claim(pattern(entity="job")),
    ],
)
def test_a_gpu_a_host_or_the_whole_job_needs_no_rank(root: Claim) -> None:
    assert sure(root, ()) == "established"


def ended(code: int | None, category: str = "native-crash") -> Claim:
    fields = {} if code is None else {"exitcode": code}
    return claim(pattern("end", category), event(fields=fields), ranks=(1,), strength="ended")


def test_a_crash_states_what_it_is_a_code_of_its_own_nothing() -> None:
    assert sure(ended(-11)) == "supported"
    assert sure(ended(None)) == "supported"
    assert sure(ended(3, "python-exception")) == "hypothesis"


def test_a_sigkill_is_supported_only_where_a_kernel_log_would_show_the_oom_killer() -> None:
    killed = ended(-9, "external-signal")
    assert sure(killed) == "hypothesis"
    assert sure(killed, sources=[source("dmesg.txt", "kernel")]) == "supported"


@pytest.mark.parametrize("code, sureness", [(-9, "supported"), (1, "established")])
def test_an_exception_of_a_rank_that_a_sigkill_ended_may_be_that_of_a_forked_child(code: int, sureness: str) -> None:
    end = event(kind="exit", rank=1, exitcode=code, speaker="launcher")
    root = claim(RAISED, event(rank=1, file="rank1.log"), ranks=(1,))
    assert confidence.of(case(end, root.event, ranks=(0, 1)), root, (1,)) == sureness


# ── what docs/confidence.md says ─────────────────────────────────────────────────────────────────────────────────────


def named(heading: str) -> list[str]:
    """The words in the first column of the table with this heading."""
    text = (ROOT / "docs" / "confidence.md").read_text()
    rows = text.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [row.split("|")[1].strip(" `") for row in rows]


def test_the_documentation_names_every_confidence_strength_and_rule() -> None:
    assert named("confidence") == list(get_args(Confidence))
    assert named("strength") == list(STRENGTHS)
    assert sorted(named("rule")) == sorted(r.__name__ for stratum in (*BEFORE, *AFTER) for r in stratum)


def test_the_documentation_states_of_each_confidence_what_the_code_states() -> None:
    text = (ROOT / "docs" / "confidence.md").read_text()
    for word in get_args(Confidence):
        (stated,) = re.findall(rf"^{word} +(.+)$", confidence.__doc__ or "", re.MULTILINE)
        assert f"| `{word}` | {stated} |" in text
