"""What follows from what: an edge whose entities join, the rule of a symptom's role, and what is left over."""

from __future__ import annotations

from typing import Any

import pytest

from claims import NOON, claim, event, explains, pattern
from conftest import table
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.explain import account, declared

EFFECT = pattern("effect", "peer-lost", role="symptom")


def cause(join: str = "any", within_s: float | None = None, **more: Any) -> Claim:
    p = pattern("cause", explains=(explains("other"), explains("effect", join, within_s)))
    return claim(p, event(at=more.pop("at", None), host="node-a"), **more)


def effect(at: float | None = None, **more: Any) -> Claim:
    speaker = more.pop("speaker", "rank")
    return claim(EFFECT, event("effect", file="rank9.log", at=at, host="node-a", speaker=speaker), **more)


@pytest.mark.parametrize("join, mine, fields, words", table("explain")["joins"])
def test_an_edge_needs_its_join(join: str, mine: dict[str, Any], fields: dict[str, Any], words: str) -> None:
    assert declared(cause(join, **mine), effect(**fields)) == words


def test_a_stated_cause_never_came_surely_later_than_what_it_explains() -> None:
    assert not declared(cause(at=NOON + 5), effect(NOON))
    assert declared(cause(at=NOON + 0.01), effect(NOON))
    for strength in ("compared", "ended", "silent"):  # who noticed it may have been late
        assert declared(cause(at=NOON + 5, strength=strength), effect(NOON))


# ── the account of a root ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_symptom_follows_by_its_role_where_nothing_contradicts_it() -> None:
    root = claim(pattern(), ranks=(1,))
    same, other, nameless = effect(ranks=(1,)), effect(ranks=(0,)), effect()
    result = account(root, [root, same, other, nameless])
    assert [link.because for link in result.links] == ["the same rank", "another rank of the job", "the same job"]
    assert result.rest == ()


def test_what_surely_came_before_the_cause_is_left_over() -> None:
    root = claim(pattern(), event(at=NOON + 5, host="node-a"), ranks=(1,))
    before = effect(NOON, ranks=(0,))
    result = account(root, [before])
    assert result.links == ()
    assert result.rest == ((before, "it precedes the cause"),)


@pytest.mark.parametrize("speaker", ["kernel", "tool"])
def test_what_the_kernel_states_of_another_host_is_no_symptom(speaker: str) -> None:
    root = claim(pattern(), ranks=(1,), hosts=("node-a",), gpus=("0000:48:00",))
    joining = ({"ranks": (1,)}, {"gpus": ("0000:48:00",)}, {"hosts": ("node-a",)}, {})
    apart = ({"ranks": (2,)}, {"gpus": ("0000:5e:00",)}, {"hosts": ("node-b",)})
    for fields, joined in (*((f, True) for f in joining), *((f, False) for f in apart)):
        result = account(root, [effect(speaker=speaker, **fields)])  # type: ignore[arg-type]
        assert bool(result.links) is joined, fields
        if not joined:
            assert result.rest[0][1] == "nothing links it to the cause"
