"""What rules see and give: a view of all claims, and defeats, which take a claim's part away; and how they
are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import HEIGHT, Claim
from postmortem.model import Role


@dataclass(frozen=True, slots=True)
class Defeat:
    """A claim (by its number in the view) plays a lesser part; `because` names the line or the fact that
    decides."""

    claim: int
    to: Role
    because: str
    rule: str = ""


@dataclass(frozen=True)
class View:
    """What a rule sees: the case, and all claims with the part that each plays by now."""

    case: Case
    claims: tuple[Claim, ...]

    def numbered(self, *roles: Role) -> Iterable[tuple[int, Claim]]:
        for number, claim in enumerate(self.claims):
            if not roles or claim.role in roles:
                yield number, claim


Rule = Callable[[View], Iterable[Defeat]]


def settle(case: Case, claims: Sequence[Claim], strata: Sequence[Sequence[Rule]]) -> tuple[Claim, ...]:
    """Apply rules until nothing falls any more, one stratum after the other. Inside a stratum all rules see
    the same claims, so their order does not matter; a later stratum builds on what an earlier one took
    away."""
    settled = tuple(claims)
    for rules in strata:
        before = None
        while settled != before:
            before = settled
            view = View(case, settled)
            settled = _fallen(case, settled, [d for rule in rules for d in _by(rule, view)])
    return settled


def _by(rule: Rule, view: View) -> Iterable[Defeat]:
    name = rule.__name__
    return (replace(d, rule=name) for d in rule(view))


def _fallen(case: Case, claims: tuple[Claim, ...], defeats: Sequence[Defeat]) -> tuple[Claim, ...]:
    """The claims after their defeats: of several for one claim the one that takes most."""
    out = list(claims)
    for d in sorted(defeats, key=lambda d: (d.claim, HEIGHT[d.to], d.rule, d.because)):
        claim = out[d.claim]
        if HEIGHT[d.to] < HEIGHT[claim.role]:
            case.note(f"{claim.pattern.id} at {claim.event.where} counts as {d.to}: {d.because}")
            out[d.claim] = replace(claim, role=d.to, because=d.because, fell_by=d.rule)
    return tuple(out)
