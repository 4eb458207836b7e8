"""What follows from what: links with the join that carries them, and what no link accounts for.

A link needs an edge of the pattern graph whose entities join, or the rule of its role: a symptom of a rank,
a launcher or a scheduler follows from the cause if it did not surely come before it. What the kernel or a
report says of another host, GPU or process is no symptom of this cause without an edge. What is left over is
told as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from postmortem.diagnose.claims import Claim, Link
from postmortem.diagnose.order import before, surely_before
from postmortem.diagnose.same import same_host

SLACK = 60.0  # seconds beside an edge's `within_s`, for stamps that inherit their time from another line
MOMENT = ("stated",)  # claims whose time is the moment of what they tell, and not of who noticed it


class Account(NamedTuple):
    """What the root explains, and the symptoms that it does not."""

    links: tuple[Link, ...]
    rest: tuple[tuple[Claim, str], ...]  # with the fact that stands against a link


def account(root: Claim, claims: Iterable[Claim]) -> Account:
    """Hold every symptom against the root."""
    links, rest = [], []
    for c in claims:
        itself = c.event is root.event and c.pattern.id == root.pattern.id
        if c.role != "symptom" or itself:
            continue
        against = _against(root, c)
        if against:
            rest.append((c, against))
        else:
            links.append(Link(root, c, declared(root, c) or _how(root, c)))
    return Account(tuple(links), tuple(rest))


def _against(root: Claim, c: Claim) -> str:
    """The fact that forbids a link; empty where none does."""
    if root.strength in MOMENT and surely_before(c, root):
        return "it precedes the cause"
    if c.speaker in ("kernel", "tool") and not declared(root, c) and not _meet(root, c):
        return "nothing links it to the cause"
    return ""


def _meet(root: Claim, c: Claim) -> bool:
    """Whether both name the same rank, GPU or process, or neither names any."""
    for mine, theirs in ((root.ranks, c.ranks), (root.gpus, c.gpus), (root.pids, c.pids)):
        if mine and theirs:
            return bool(set(mine) & set(theirs))
    return _same_hosts(root, c)


def _how(root: Claim, c: Claim) -> str:
    """The join behind the rule of a symptom's role."""
    if root.ranks and c.ranks and set(c.ranks) <= set(root.ranks):
        return "the same rank"
    if root.ranks and c.ranks:
        return "another rank of the job"
    return "the same job"


def declared(a: Claim, b: Claim) -> str:
    """How `b` follows from `a` by an edge of the pattern graph: the join in words; empty where there is
    none."""
    for edge in a.pattern.explains:
        if edge.id != b.pattern.id or not JOINED[edge.join](a, b):
            continue
        if edge.within_s is not None and _apart(a, b) > edge.within_s + SLACK:
            continue
        if a.strength in MOMENT and before(b, a):
            continue
        mutual = any(back.id == a.pattern.id for back in b.pattern.explains)
        if not mutual or (a.event.where.line or 0, a.event.text) < (b.event.where.line or 0, b.event.text):
            return WORDS[edge.join]
    return ""


def _apart(a: Claim, b: Claim) -> float:
    return abs(a.at - b.at) if a.at is not None and b.at is not None else 0.0


def _overlap(a: Sequence[object], b: Sequence[object]) -> bool:
    """What is unknown on one side does not forbid a join."""
    return not a or not b or bool(set(a) & set(b))


def _same_hosts(a: Claim, b: Claim) -> bool:
    return not a.hosts or not b.hosts or any(same_host(x, y) for x in a.hosts for y in b.hosts)


def _peers(a: Claim, b: Claim) -> bool:
    return not a.ranks or not b.ranks or not set(b.ranks) <= set(a.ranks)


def _same_process(a: Claim, b: Claim) -> bool:
    return bool(set(a.pids) & set(b.pids)) or bool(set(a.ranks) & set(b.ranks))


JOINED: dict[str, Callable[[Claim, Claim], bool]] = {
    "same-pid": _same_process,
    "same-rank": lambda a, b: _overlap(a.ranks, b.ranks),
    "same-host": _same_hosts,
    "same-gpu": lambda a, b: _overlap(a.gpus, b.gpus),
    "same-group": lambda a, b: True,
    "peer": _peers,
    "any": lambda a, b: True,
}
WORDS = {
    "same-pid": "the same process",
    "same-rank": "the same rank",
    "same-host": "the same host",
    "same-gpu": "the same GPU",
    "same-group": "the same process group",
    "peer": "a peer",
    "any": "the same job",
}
