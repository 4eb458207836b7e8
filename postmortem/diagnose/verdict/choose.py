"""Choice of the cause that the verdict names, and the order of the others.

1. The same failure on several ranks is one candidate.
2. A candidate that another one explains comes behind those that nothing explains.
3. Of two that a row of PRECEDENCE compares, the one that surely came first comes first: an end and the complaints of others
   about a rank that is gone, a failure and a stop of the job, a stop and the interrupts of its processes, deaths of
   processes or hosts, and claims with one kind of proof.
4. The rest is one total key: kind of proof, severity, number of accused ranks, time, and last the words.

The result depends on the logs alone, not on the order in which they were read or on the names of files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from postmortem.diagnose import topics
from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import CATEGORIES, Claim, in_time, merged
from postmortem.diagnose.claims.links import declared
from postmortem.diagnose.order import before, gap, surely_before
from postmortem.diagnose.verdict import outcome
from postmortem.formats.lineform import shape
from postmortem.model.grouped import grouped
from postmortem.model.vocabulary import SEVERITIES

DAY_S = 86400.0  # a kernel's log covers weeks: a failure of another day is unrelated
STRONG = 1.0  # the highest tier of claims about the death of a process or a host
OWN_RENDEZVOUS = 1.5  # a rank that could not join for a reason of its own
STOPPED = 4.6  # a launcher that was stopped: a report on who stopped it is nearer
NO_RANK, WEAKEST = 5.8, 6.0  # a hang without a suspect; a claim that is hardly evidence
COMPARED_MOST = 100  # causes whose order in time is compared with that of all others
NOT_BY_STOP = ("native-crash", "external-signal")  # ends that a stop does not account for
REACTION_S = 10.0  # a signal to the whole job reaches ranks and launcher within seconds of each other


def tier(claim: Claim) -> float:
    """How near to a cause the proof is: statements of the kernel, driver or scheduler, then the death of a process,
    then comparisons of collectives, ends of ranks, and silence."""
    category = claim.pattern.category or ""
    if claim.strength == "silent" and not claim.ranks:
        return NO_RANK
    tiers = CATEGORIES.get(category, {})
    if claim.strength == "ended":
        return float(tiers.get("ended", WEAKEST))
    if claim.strength in ("compared", "silent") and "compared" in tiers:
        return float(tiers["compared"])
    return _stated_tier(claim, category, float(tiers.get("stated", WEAKEST)))


def _stated_tier(claim: Claim, category: str, level: float) -> float:
    if category == "external-signal" and claim.tells("stop"):
        return STOPPED
    killed = category == "external-signal" and claim.pattern.entity == "pid"
    if killed or (category == "numerics" and claim.pattern.severity == "fatal"):
        return STRONG
    if category == "rendezvous" and claim.pattern.entity == "self":
        return OWN_RENDEZVOUS
    whole_host = claim.by("whole") or claim.pattern.entity in ("job", "gpu", "host")
    return 0.0 if level < STRONG and whole_host else level


def strong(claim: Claim) -> bool:
    return tier(claim) <= STRONG and claim.pattern.severity == "fatal"


def candidates(claims: Sequence[Claim]) -> list[Claim]:
    """The causes among the claims, best first."""
    causes = same_failures([c for c in claims if c.role == "cause"])
    free = _unexplained(causes)
    taken = set(map(id, free))
    return [*_ordered(free), *_ordered([c for c in causes if id(c) not in taken])]


def _ordered(claims: Sequence[Claim]) -> list[Claim]:
    """A linear extension of `_has_priority`, by the total key. Stamps that contradict the lines of a file could form a
    cycle: then the key decides."""
    ranked, out = sorted(claims, key=_key), []
    left, rest = ranked[:COMPARED_MOST], ranked[COMPARED_MOST:]
    while left:
        free = (n for n, c in enumerate(left) if not any(_has_priority(x, c) for x in left if x is not c))
        out.append(left.pop(next(free, 0)))
    return out + rest


def _has_priority(a: Claim, b: Claim) -> bool:
    """Whether `a` has to come before `b`, since it happened before (see PRECEDENCE)."""
    if _is_stop(b) and (_is_sampled(a) or _complained_before(a, b)):
        return True
    # the lines of a launcher's table of ends are in the order of ranks
    came_first = surely_before if a.strength == b.strength == "ended" else before
    return any(row(a, b) for row in PRECEDENCE) and came_first(a, b)


def _is_stop(c: Claim) -> bool:
    return c.pattern.category == "scheduler" or c.tells("stop")


def _is_sampled(c: Claim) -> bool:
    """Whether it is a comparison of stacks that a tool took: nobody samples a job that makes progress."""
    stacks = [e for e in c.events if e.kind == "stack" and e.speaker == "tool"]
    return c.pattern.derived and c.event in stacks and any(e.fields.get("collective") for e in stacks)


def _complained_before(a: Claim, stop: Claim) -> bool:
    """Whether ranks had complained of the hang or the loss `a` well before the job was stopped from outside."""
    first = stop.first if stop.tells("stop") and a.strength in ("compared", "silent") else None
    gaps = [gap(e, first) for e in a.events if e.kind == "pattern"] if first else []
    return min((apart for apart in gaps if apart is not None), default=0.0) > REACTION_S


def _comparable(a: Claim, b: Claim) -> bool:
    """Whether time decides between two claims: both are about a death on one day, or have one kind of proof."""
    if "compared" in (a.strength, b.strength) and a.strength != b.strength:
        return False  # the lines of a comparison are its proof, and not the time of the failure
    if (tier(a), a.pattern.severity) == (tier(b), b.pattern.severity):
        return a.preference == b.preference  # comparisons are ordered by their evidence, not by the time of their lines
    return strong(a) and strong(b) and (a.at is None or b.at is None or abs(a.at - b.at) < DAY_S)


PRECEDENCE: tuple[Callable[[Claim, Claim], bool], ...] = (
    # the end of a rank, and the complaints of others about one that is gone
    lambda a, b: a.strength == "ended" and b.of("others") and not set(a.ranks) & set(b.ranks),
    # a strong sign of a failure, or an end that no stop accounts for, and a stop of the whole job
    lambda a, b: _is_stop(b) and (strong(a) or (a.strength == "ended" and a.pattern.category in NOT_BY_STOP)),
    # a stop of the whole job, and the interrupts of its processes
    lambda a, b: _is_stop(a) and b.pattern.category == "external-signal" and not b.tells("stop"),
    _comparable,
)


def _key(c: Claim) -> tuple[object, ...]:
    """Total: the file's name decides only between two equal lines."""
    e = c.first or c.event
    silent = c.strength == "ended" and c.event is c.events[-1]  # no line above its end is an error
    proof = (tier(c), SEVERITIES.index(c.pattern.severity), c.preference, silent, len(c.ranks) or 1_000_000)
    place = (e.at is None, e.at or 0.0, e.line)
    return (*proof, *place, shape(e.text), e.text, c.pattern.title, c.ranks, c.hosts, c.gpus, e.where.source)


def same_failures(causes: Sequence[Claim]) -> list[Claim]:
    """The causes, with the same exception on several ranks as one."""
    ordered = sorted(
        causes, key=lambda c: (c.preference, in_time(c.event), c.ranks, c.hosts, c.gpus, c.pids, c.because)
    )
    texts = (shape(c.event.fields.get("line") or c.event.text) if c.pattern.entity == "self" else "" for c in ordered)
    failures = ((c.pattern.id, text, c.attempt, c.preference) for c, text in zip(ordered, texts, strict=True))
    return [_one(same) for same in grouped(zip(failures, ordered, strict=True)).values()]


def _one(members: Sequence[Claim]) -> Claim:
    first = min(members, key=lambda c: in_time(c.event))
    if first.strength == "compared" and len(members) > 1:  # the order of its events is the order of the proof
        return replace(merged(members), events=tuple(e for c in members for e in c.events))
    return replace(merged(members), because=first.because)


# ── without a cause: the most specific complaint ────────────────────────────────────────────────────────────


def complaint(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """At most one failure that the job's own lines complain of, where no cause is known: the most specific category, and
    of that the earliest. It accuses a rank only of a failure of its own."""
    if not outcome.failed(case, claims):
        return []
    complaints = [c for c in claims if outcome.complains(case, c) and _counts(c)]
    first = min(_unexplained(complaints), key=_specificity, default=None)
    if first is None or outcome.while_exiting(case, first):
        return []
    pattern = replace(first.pattern, category=first.kind)
    first = topics.named(case, replace(first, pattern=pattern, strength="suffered", pids=()))
    pattern = first.pattern
    if first.speaker == "kernel" or pattern.category == "host-oom":
        return [replace(first, hosts=first.hosts or tuple(h for h in (first.event.host,) if h))]
    own = pattern.entity == "self" and first.of("own")
    return [first if own else replace(first, ranks=(), hosts=())]


def _unexplained(claims: Sequence[Claim]) -> list[Claim]:
    return [c for c in claims if not any(declared(a, c) for a in claims if a is not c)]


def _specificity(c: Claim) -> tuple[object, ...]:
    report = 2 - bool(c.ranks) if c.pattern.stands_for else 0  # best one that names a rank
    return c.tells("stop"), CATEGORIES[c.kind]["suffered"], report, in_time(c.event)


def _counts(c: Claim) -> bool:
    """Whether its category is known, and no rule explained it away."""
    known = c.pattern.severity != "info" and "suffered" in CATEGORIES.get(c.kind, {})
    return known and (not c.fell_by or c.pattern.category == "external-signal")
