"""Causes -> the one that the verdict names, and the order of the others.

1. The same failure on several ranks is one candidate.
2. A candidate that another one explains stands behind those that nothing explains.
3. What surely came first stands first: among those that state what a process or host died of, among those
whose proof is of one kind, and an end before what the others see of a rank that is gone. "Surely" means
disjoint intervals on the job's clock, or two lines of one file.
4. The rest is one total key: the kind of proof, severity, how few ranks are accused, the time, and last the
words.

The result is a linear extension of the order of point 3, so it depends on what the logs say alone: not on
the order in which they were read, nor on the names of their files or of the pattern files.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from dataclasses import replace

from postmortem.diagnose import outcome
from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim, in_time, merged
from postmortem.diagnose.explain import declared
from postmortem.diagnose.order import before, first_of
from postmortem.formats.lineform import shape
from postmortem.model.vocabulary import SEVERITIES

DAY = 86400.0
STRONG = 1.0  # the tier up to which a claim states what a process or a host died of
OUTSIDE = ("kernel", "scheduler", "cluster")
TIERS = {  # how near to a cause a kind of proof stands, by category; lower is nearer
    "host-oom": 0.5, "gpu-hardware": 0.5, "scheduler": 0.5,
    "shared-memory": 1.0, "gpu-oom": 1.0, "gpu-fault": 1.0, "native-crash": 1.0, "storage": 1.0, "checkpoint": 1.0,
    "resource-limit": 1.0, "environment": 1.0, "python-exception": 1.0, "ddp-usage": 1.0,
    "collective-mismatch": 2.0, "network": 2.0, "rendezvous": 2.0, "hang": 2.8, "external-signal": 4.0,
    "numerics": 7.0,
}  # fmt: skip
ENDED = {"native-crash": 2.0, "scheduler": 4.5, "external-signal": 5.0, "python-exception": 5.5}
COMPARED = {"rendezvous": 1.8, "hang": 3.0}
SUFFERED = {  # kinds of failure that complaints tell, the most telling first; of a kind the earliest counts
    "host-oom": 0, "gpu-hardware": 0, "gpu-fault": 0, "native-crash": 0, "hang": 1, "ddp-usage": 1,
    "rendezvous": 2, "peer-lost": 2, "network": 2, "environment": 3, "storage": 3,
    "scheduler": 4, "external-signal": 4, "python-exception": 5,
}  # fmt: skip
OWN = ("gpu-hardware", "gpu-fault", "native-crash", "environment", "storage")  # of who complains
ABSENCE = ("rendezvous", "network", "hang")  # what a rank that is gone looks like to the others
_CONNECTING = re.compile(r"[Cc]onnect(?:ion)? (?:time|refused)|connectFullMesh|[Nn]o route")
ACCUSING = ("rank", "missing-ranks", "host", "gpu")  # entities of lines that speak of another than who writes
STOPPED = 4.6  # a launcher that was told to stop: who told it is nearer
NOBODY, WEAKEST = 5.8, 6.0  # a hang of which nobody is named; what only sounds like trouble


def tier(claim: Claim) -> float:
    """How near to a cause this kind of proof stands: what the kernel, the driver or a scheduler states, what
    a process died of, what the ranks' collectives show, how ranks ended, who fell silent."""
    category = claim.pattern.category or ""
    if claim.strength == "silent" and not claim.ranks:
        return NOBODY
    if claim.strength == "ended":
        return ENDED.get(category, WEAKEST)
    if claim.strength in ("compared", "silent") and category in COMPARED:
        return COMPARED[category]
    level = TIERS.get(category, WEAKEST)
    if level < STRONG and (claim.speaker in OUTSIDE or claim.pattern.entity in ("job", "gpu", "host")):
        return 0.0
    return _nearer(claim, category, level)


def candidates(claims: Sequence[Claim]) -> list[Claim]:
    """The causes among the claims, best first."""
    causes = same_failures([c for c in claims if c.role == "cause"])
    behind = [any(declared(a, b) for a in causes if a is not b) for b in causes]
    free = [c for c, late in zip(causes, behind, strict=True) if not late]
    explained = [c for c, late in zip(causes, behind, strict=True) if late]
    return [*_ordered(free), *_ordered(explained)]


def _nearer(claim: Claim, category: str, level: float) -> float:
    """What a line of this kind is worth where it says more, or less, than its kind."""
    if category == "external-signal" and claim.tells("stop"):
        return STOPPED
    if claim.tells("killed"):
        return STRONG
    if category == "rendezvous" and claim.pattern.entity == "self":
        return 1.5
    return 1.0 if category == "numerics" and claim.pattern.severity == "fatal" else level


def complaint(case: Case, claims: Sequence[Claim]) -> Claim | None:
    """Where nothing tells the cause, the failure that the job's own lines complain of, of nobody's doing:
    the most telling kind, and of that the earliest."""
    told = _complaints(case, claims)
    if not told:
        return None
    first = min(told, key=_telling)
    pattern = replace(first.pattern, category=_suffered(first))
    first = replace(first, pattern=pattern, strength="suffered", pids=())
    if first.speaker == "kernel" or pattern.category == "host-oom":
        return replace(first, hosts=first.hosts or tuple(h for h in (first.event.host,) if h))
    own = pattern.entity == "self" and pattern.category in OWN
    return first if own or pattern.entity in ACCUSING else replace(first, ranks=(), hosts=())


def _complaints(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """What the job's lines complain of, but for what follows from another complaint."""
    told = [c for c in claims if outcome.complains(case, c) and _counts(c)]
    return [c for c in told if not any(_names(x, c) for x in told if x is not c)]


def _names(a: Claim, b: Claim) -> bool:
    """Whether one complaint tells what the other follows from."""
    return any(edge.id == b.pattern.id for edge in a.pattern.explains) and not any(
        edge.id == a.pattern.id for edge in b.pattern.explains
    )


def _telling(c: Claim) -> tuple[object, ...]:
    """Of two lines of one kind the one that says the kind itself goes first, then the earlier."""
    return c.tells("stop"), SUFFERED[_suffered(c)], bool(c.pattern.stands_for), in_time(c.event)


def _counts(c: Claim) -> bool:
    """Whether its kind of failure is known, and no rule explained it away but one that says what it is."""
    if c.pattern.severity == "info" or _suffered(c) not in SUFFERED:
        return False
    return c.fell_by in ("", "transport") or c.pattern.category == "external-signal"


def _suffered(c: Claim) -> str:
    """The kind of failure that a complaint tells."""
    if c.fell_by == "transport":  # an exception that says that a peer did not answer
        return "rendezvous" if _CONNECTING.search(c.event.text) else "peer-lost"
    return c.pattern.stands_for or c.pattern.category or ""


def _ordered(claims: Sequence[Claim]) -> list[Claim]:
    """A linear extension of `_first`, by the total key. Stamps that contradict the lines of a file could
    close a circle: then the key decides."""
    claims = sorted(claims, key=_key)
    waiting = [sum(_first(a, b) for a in claims if a is not b) for b in claims]
    ready = [i for i, n in enumerate(waiting) if n == 0]
    out: list[int] = []
    left = set(range(len(claims)))
    while left:
        i = heapq.heappop(ready) if ready else min(left)
        if i not in left:
            continue
        left.remove(i)
        out.append(i)
        for j in left:
            if _first(claims[i], claims[j]):
                waiting[j] -= 1
                if waiting[j] == 0:
                    heapq.heappush(ready, j)
    return [claims[i] for i in out]


def _first(a: Claim, b: Claim) -> bool:
    """Whether `a` has to stand before `b` because it came before it."""
    return (_comparable(a, b) or _missed(a, b)) and before(a, b)


def _missed(a: Claim, b: Claim) -> bool:
    """Whether `a` tells how a rank ended, and `b` what the others see where one is gone: the store of rank 0
    that nobody can reach."""
    return a.strength == "ended" and b.pattern.category in ABSENCE and not set(a.ranks) & set(b.ranks)


def _comparable(a: Claim, b: Claim) -> bool:
    """Whether time decides between two claims: both state what somebody died of on the same day (a kernel's
    log goes back weeks, and what failed then is another story), or their proof is of one kind."""
    if "compared" in (a.strength, b.strength) and a.strength != b.strength:
        return False  # the lines of a comparison are its proof, and not the moment of the failure
    if (tier(a), a.pattern.severity) == (tier(b), b.pattern.severity):
        return a.step == b.step  # of comparisons their reasons decide, and not when their lines were printed
    return strong(a) and strong(b) and _same_day(a, b)


def strong(claim: Claim) -> bool:
    return tier(claim) <= STRONG and claim.pattern.severity == "fatal"


def _same_day(a: Claim, b: Claim) -> bool:
    ea, eb = first_of(a), first_of(b)
    return ea is None or eb is None or abs((ea.at or 0.0) - (eb.at or 0.0)) < DAY


def _key(c: Claim) -> tuple[object, ...]:
    """Total, and made of what the logs say; the address decides only between two lines that say the same."""
    e = first_of(c) or c.event
    proof = (tier(c), SEVERITIES.index(c.pattern.severity), c.step, len(c.ranks) or 1_000_000)
    place = (e.at is None, e.at or 0.0, e.where.line or 0)
    return (*proof, *place, shape(e.text), e.text, c.pattern.title, c.ranks, c.hosts, c.gpus, e.where.source)


def same_failures(causes: Sequence[Claim]) -> list[Claim]:
    """The same exception on several ranks is one failure; different ones are several."""
    groups: dict[tuple[str, str, int | None, int], list[Claim]] = {}
    for c in sorted(causes, key=_place):
        said = shape(str(c.event.fields.get("line") or c.event.text)) if c.pattern.entity == "self" else ""
        groups.setdefault((c.pattern.id, said, c.attempt, c.step), []).append(c)
    return [_one(members) for members in groups.values()]


def _place(c: Claim) -> tuple[object, ...]:
    return c.step, in_time(c.event), c.ranks, c.hosts, c.gpus, c.pids, c.because


def _one(members: Sequence[Claim]) -> Claim:
    first = min(members, key=lambda c: in_time(c.event))
    whole = merged(members)
    if first.strength == "compared" and len(members) > 1:  # its events stand in the order of what they prove
        return replace(whole, events=tuple(e for c in members for e in c.events))
    return replace(whole, because=first.because)
