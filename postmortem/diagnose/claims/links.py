"""Links between causes and effects, and the symptoms that no link accounts for.

A link needs an edge of the pattern graph whose entities join, or the rule of its role: a symptom of a rank, a launcher
or a scheduler follows from the cause unless it surely came before. A report of the kernel or a tool about another
host, GPU or process needs an edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from postmortem.diagnose.claim import Claim, Link
from postmortem.diagnose.order import before, gap, surely_before
from postmortem.diagnose.same import same_host

SLACK_S = 60.0  # beside an edge's `within_s`: stamps may be inherited from another line


class Account(NamedTuple):
    """The symptoms that the root explains, and those that it does not, each with the fact against a link."""

    links: tuple[Link, ...]
    unexplained: tuple[tuple[Claim, str], ...]


def account(root: Claim, claims: Iterable[Claim]) -> Account:
    """Compare every symptom with the root."""
    others = (c for c in claims if c.event is not root.event or c.pattern.id != root.pattern.id)
    judged = [(c, _against(root, c)) for c in others if c.role == "symptom"]
    links = (Link(root, c, declared(root, c) or _by_role(root, c)) for c, against in judged if not against)
    return Account(tuple(links), tuple((c, against) for c, against in judged if against))


def _against(root: Claim, c: Claim) -> str:
    """The fact that forbids a link; empty where none does."""
    if root.strength == "stated" and surely_before(c, root):
        return "it precedes the cause"
    if not c.by("of_host") or declared(root, c):
        return ""
    # they meet in a rank, a GPU or a process; the host decides where one of them names none
    named = ((root.ranks, c.ranks), (root.gpus, c.gpus), (root.pids, c.pids))
    met = next((bool({*mine} & {*theirs}) for mine, theirs in named if mine and theirs), _on_one_host(root, c))
    return "" if met else "nothing links it to the cause"


def _by_role(root: Claim, c: Claim) -> str:
    if root.ranks and c.ranks:
        return "the same rank" if set(c.ranks) <= set(root.ranks) else "another rank of the job"
    return "the same job"


def declared(a: Claim, b: Claim) -> str:
    """How `b` follows from `a` by an edge of the pattern graph, in words; empty where there is none."""
    for edge in a.pattern.explains:
        words, joins = JOINS[edge.join]
        if edge.id != b.pattern.id or not joins(a, b):
            continue
        apart = gap(a.first, b.first) if a.first and b.first else None
        if edge.within_s is not None and abs(apart or 0.0) > edge.within_s + SLACK_S:
            continue
        if a.strength == "stated" and before(b, a):
            continue
        mutual = any(back.id == a.pattern.id for back in b.pattern.explains)
        if not mutual or (a.event.line, a.event.text) < (b.event.line, b.event.text):
            return words
    return ""


def _on_one_host(a: Claim, b: Claim) -> bool:
    return not a.hosts or not b.hosts or any(same_host(x, y) for x in a.hosts for y in b.hosts)


def _overlap(a: Sequence[object], b: Sequence[object]) -> bool:
    return not a or not b or bool(set(a) & set(b))


# joins in words, and whether the entities of two claims have them; an unknown one forbids none but that of processes
JOINS: Mapping[str, tuple[str, Callable[[Claim, Claim], bool]]] = {
    "same-pid": ("the same process", lambda a, b: bool({*a.pids} & {*b.pids} or {*a.ranks} & {*b.ranks})),
    "same-rank": ("the same rank", lambda a, b: _overlap(a.ranks, b.ranks)),
    "same-host": ("the same host", _on_one_host),
    "same-gpu": ("the same GPU", lambda a, b: _overlap(a.gpus, b.gpus)),
    "any": ("the same job", lambda a, b: True),
}
