"""Rules: each sees all claims and yields defeats, which reduce the role of a claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import get_args

from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import HEIGHT, Claim
from postmortem.model import Role
from postmortem.model.grouped import grouped


@dataclass(frozen=True, slots=True)
class Defeat:
    """A lesser role for a claim (by its number in the view); `because` names the line or the fact that decides."""

    claim: int
    to: Role
    because: str
    rule: str = ""


@dataclass(frozen=True)
class View:
    """What a rule sees: the case, and all claims with their present roles."""

    case: Case
    claims: tuple[Claim, ...]

    @cached_property
    def by_role(self) -> Mapping[Role, Sequence[tuple[int, Claim]]]:
        return grouped((c.role, (n, c)) for n, c in enumerate(self.claims))

    def numbered(self, *roles: Role) -> Iterable[tuple[int, Claim]]:
        return chain.from_iterable(self.by_role.get(role, ()) for role in roles or ROLES)


ROLES: tuple[Role, ...] = get_args(Role)
Rule = Callable[[View], Iterable[Defeat]]


def settle(case: Case, claims: Sequence[Claim], strata: Sequence[Sequence[Rule]]) -> tuple[Claim, ...]:
    """Apply the rules of one stratum after the other until no role changes. Rules of one stratum see the same
    claims, so their order does not matter."""
    settled = tuple(claims)
    for rules in strata:
        before = None
        while settled != before:
            before = settled
            view = View(case, settled)
            defeats = [replace(d, rule=rule.__name__) for rule in rules for d in rule(view)]
            settled = _reduced(case, settled, defeats)
    return settled


def _reduced(case: Case, claims: tuple[Claim, ...], defeats: Sequence[Defeat]) -> tuple[Claim, ...]:
    """The claims after their defeats; of several for one claim that to the lowest role counts."""
    out = list(claims)
    for d in sorted(defeats, key=lambda d: (d.claim, HEIGHT[d.to], d.rule, d.because)):
        claim = out[d.claim]
        if HEIGHT[d.to] < HEIGHT[claim.role]:
            case.note(f"{claim.pattern.id} at {claim.event.where} counts as {d.to}: {d.because}")
            out[d.claim] = replace(claim, role=d.to, because=d.because, fell_by=d.rule)
    return tuple(out)
