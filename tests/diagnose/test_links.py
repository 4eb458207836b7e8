"""What follows from what: an edge whose entities join, the rule of a symptom's role, and what is left over."""

from __future__ import annotations

from typing import Any

import pytest

from claims import NOON, claim, event, explains, pattern
from conftest import table
from postmortem.diagnose import order
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.claims.links import account, declared

EFFECT = pattern("effect", "peer-lost", role="symptom")


def cause(join: str = "any", within_s: float | None = None, **more: Any) -> Claim:
    p = pattern("cause", explains=(explains("other"), explains("effect", join, within_s)))
    return claim(p, event(at=more.pop("at", None), host="node-a"), **more)


def effect(at: float | None = None, **more: Any) -> Claim:
    speaker = more.pop("speaker", "rank")
    return claim(EFFECT, event("effect", file="rank9.log", at=at, host="node-a", speaker=speaker), **more)


@pytest.mark.parametrize("join, mine, fields, words", table("links")["joins"])
def test_an_edge_needs_its_join(join: str, mine: dict[str, Any], fields: dict[str, Any], words: str) -> None:
    assert declared(cause(join, **mine), effect(**fields)) == words


def test_an_edge_may_say_how_long_after_its_effect_may_come() -> None:
    early = pattern("cause", explains=(explains("effect", "any", 10.0),))
    for seconds, linked in ((69.0, True), (71.0, False)):
        assert bool(declared(claim(early, event(at=NOON)), effect(NOON + seconds))) == linked, seconds


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
    assert result.unexplained == ()


def test_what_surely_came_before_the_cause_is_left_over() -> None:
    root = claim(pattern(), event(at=NOON + 5, host="node-a"), ranks=(1,))
    before = effect(NOON, ranks=(0,))
    result = account(root, [before])
    assert result.links == ()
    assert result.unexplained == ((before, "it precedes the cause"),)


@pytest.mark.parametrize("speaker", ["kernel", "tool"])
def test_what_the_kernel_states_of_another_host_is_no_symptom(speaker: str) -> None:
    root = claim(pattern(), ranks=(1,), hosts=("node-a",), gpus=("0000:48:00",))
    joining = ({"ranks": (1,)}, {"gpus": ("0000:48:00",)}, {"hosts": ("node-a",)}, {})
    apart = ({"ranks": (2,)}, {"gpus": ("0000:5e:00",)}, {"hosts": ("node-b",)})
    for fields, joined in (*((f, True) for f in joining), *((f, False) for f in apart)):
        result = account(root, [effect(speaker=speaker, **fields)])  # type: ignore[arg-type]
        assert bool(result.links) is joined, fields
        if not joined:
            assert result.unexplained[0][1] == "nothing links it to the cause"


P = pattern()


def claim_at(at: float | None, file: str = "a.log", line: int | None = 5, **more: Any) -> Claim:
    strength = more.pop("strength", "stated")
    at_ = None if at is None else NOON + at
    return claim(P, event(file=file, line=line, at=at_, **more), strength=strength)


def test_nothing_is_earlier_inside_the_margin() -> None:
    a, b = claim_at(0, host="a", at_sigma=0.1), claim_at(0.2, host="a", at_sigma=0.1)
    assert not order.surely_before(a, b)
    assert order.surely_before(a, claim_at(1.0, host="a", at_sigma=0.1))
    assert not order.surely_before(claim_at(1.0, host="a", at_sigma=0.1), a)


def test_on_one_clock_only_stamps_count() -> None:
    vague = {"at_sigma": 5.0, "sigma": 0.001}
    one = {"host": "a", "clock": "absolute"}
    assert order.surely_before(claim_at(0, **vague, **one), claim_at(1, **vague, **one))
    assert not order.surely_before(claim_at(0, **vague, host="a"), claim_at(1, **vague, host="a"))
    two = {"host": "b", "clock": "absolute"}
    assert not order.surely_before(claim_at(0, **vague, **one), claim_at(1, **vague, **two))


def test_a_moment_known_badly_has_no_place() -> None:
    assert not order.surely_before(claim_at(0, at_sigma=31.0), claim_at(9999))
    assert not order.surely_before(claim_at(0), claim_at(9999, at_sigma=31.0))
    assert not order.surely_before(claim_at(None), claim_at(9999))


def test_in_one_file_the_line_shows_if_the_clocks_do_not_contradict() -> None:
    assert order.before(claim_at(None, line=30), claim_at(None, line=50))
    assert not order.before(claim_at(None, line=50), claim_at(None, line=50))
    assert not order.before(claim_at(None, line=30), claim_at(None, line=31))  # one report of the kernel
    assert not order.before(claim_at(None, line=30), claim_at(None, "b.log", line=50))
    assert not order.before(claim_at(None, line=None), claim_at(None, line=50))
    assert not order.before(claim_at(99, line=30), claim_at(0, line=50))


def test_how_much_later_is_reported_with_its_error() -> None:
    assert order.later(claim_at(0, host="a"), claim_at(2.25, host="a")) == "2.25 s later (± 0.05 s)"
    assert order.later(claim_at(None), claim_at(None)) == "later in the file"
    assert order.later(claim_at(0, host="a"), claim_at(0.01, host="a")) == "later in the file"


def test_a_report_of_another_host_has_both_signs() -> None:
    a, b = claim_at(0, host="a"), claim_at(5, host="b")
    assert order.elsewhere(a, b).startswith("5.00 s later (± ")
    assert order.elsewhere(b, a).startswith("5.00 s earlier (± ")
    near = order.elsewhere(a, claim_at(0.02, host="b"))
    assert near.startswith("which came first is not determined (0.02 s apart, ± ")


def test_of_one_host_or_of_a_comparison_nothing_is_reported() -> None:
    a = claim_at(0, host="a")
    assert order.elsewhere(a, claim_at(5, host="a")) == ""
    assert order.elsewhere(a, claim_at(5)) == ""
    for strength in ("compared", "silent"):
        assert order.elsewhere(claim_at(0, host="a", strength=strength), claim_at(5, host="b")) == ""
