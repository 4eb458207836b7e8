"""How defeats are applied: parts only fall, to a fixed point, and the order of rules inside a stratum changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from claims import case, claim, event, pattern
from postmortem.diagnose.claims import HEIGHT, Claim
from postmortem.diagnose.rules import AFTER, BEFORE
from postmortem.diagnose.rules.view import Defeat, Rule, View, settle
from postmortem.model import Role

ROLES: tuple[Role, ...] = ("cause", "symptom", "confirms", "context")
P = pattern("p")


def claims(roles: Sequence[Role]) -> list[Claim]:
    return [claim(P, event(line=n), role=role) for n, role in enumerate(roles)]


def rule(name: str, body: Callable[[View], Iterator[Defeat]]) -> Rule:
    body.__name__ = name
    return body


def always(at: int, to: Role, name: str = "always", because: str = "so it is") -> Rule:
    return rule(name, lambda view: iter([Defeat(at, to, because)]))


def if_reduced(watched: int, at: int, to: Role, name: str) -> Rule:
    """Builds on what another rule took away."""

    def body(view: View) -> Iterator[Defeat]:
        if view.claims[watched].role != "cause":
            yield Defeat(at, to, f"{watched} fell")

    return rule(name, body)


def roles(found: Sequence[Claim]) -> list[str]:
    return [c.role for c in found]


def test_the_claim_states_why_it_fell_and_so_does_the_trace() -> None:
    seen = case()
    (reduced,) = settle(seen, claims(["cause"]), [[always(0, "context")]])
    assert (reduced.role, reduced.because) == ("context", "so it is")
    assert list(seen.notes) == ["p at rank0.log:0 counts as context: so it is"]


def test_of_several_defeats_the_one_that_takes_most_counts() -> None:
    for rules in ([always(0, "symptom", "a"), always(0, "context", "b", "worst")],
                  [always(0, "context", "a", "worst"), always(0, "symptom", "b")]):  # fmt: skip
        (reduced,) = settle(case(), claims(["cause"]), [rules])
        assert (reduced.role, reduced.because) == ("context", "worst")


@st.composite
def strata(draw: st.DrawFn) -> tuple[list[Role], list[Rule]]:
    given = draw(st.lists(st.sampled_from(ROLES), min_size=1, max_size=5))
    at = st.integers(0, len(given) - 1)
    to = st.sampled_from(ROLES)
    rules: list[Rule] = []
    for n in range(draw(st.integers(0, 5))):
        if draw(st.booleans()):
            rules.append(always(draw(at), draw(to), f"rule{n}", f"because {n}"))
        else:
            rules.append(if_reduced(draw(at), draw(at), draw(to), f"rule{n}"))
    return given, rules


@given(strata(), st.randoms())
@settings(deadline=None, max_examples=40)
def test_the_order_of_rules_in_a_stratum_changes_nothing_and_parts_only_fall(
    made: tuple[list[Role], list[Rule]], random: object
) -> None:
    given, rules = made
    shuffled = list(rules)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = (settle(case(), claims(given), [order]) for order in (rules, shuffled))
    assert first == second
    assert all(HEIGHT[c.role] <= HEIGHT[role] for c, role in zip(first, given, strict=True))
    assert settle(case(), first, [rules]) == first


def test_every_rule_has_a_name_of_its_own() -> None:
    names = [r.__name__ for stratum in (*BEFORE, *AFTER) for r in stratum]
    assert len(names) == len(set(names))
