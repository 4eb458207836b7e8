"""Findings -> the root: which finding nothing explains and which explains most.

Candidates are ordered by the kind of proof (the kernel's, the scheduler's and the driver's word, then what a process died
of, then what the ranks' collectives show, then exit codes, then complaints), inside one kind by time where the clocks allow
it. Nothing here knows a pattern by name that could say the same in its file.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key

from postmortem.diagnose.case import Case, shape
from postmortem.diagnose.identity import same_host
from postmortem.diagnose.order import earlier, first_of
from postmortem.model import Event, Finding

FACTS = {"host-oom", "gpu-hardware", "scheduler"}
PROCESS = {
    "shared-memory",
    "gpu-oom",
    "gpu-fault",
    "native-crash",
    "storage",
    "checkpoint",
    "resource-limit",
    "environment",
    "python-exception",
    "ddp-usage",
}
GROUP = {"collective-mismatch", "network", "rendezvous"}
SEVERITY = {"fatal": 0, "error": 1, "warning": 2, "info": 3}
JOINING = {  # see `joining`
    "rank-never-joined",
    "rank-started-twice",
    "rank-joined-late",
    "rank-found-no-store",
    "rank-stuck-before-init",
    "world-sizes-differ",
}
EXIT_TIER = {
    "rank-exit-sigkill": 5.0,
    "rank-exit-signalled": 5.0,
    "rank-exit-crash-signal": 2.0,
    "rank-exit-without-reason": 5.5,
    "rank-exit-cpu-limit": 1.0,
    "rank-vanished": 6.0,
    "slurm-cancelled": 4.5,  # by a person who saw a hang, maybe
}


def tier(f: Finding) -> float:
    """How near to a cause this kind of proof stands; lower is nearer."""
    category = f.pattern.category
    if f.pattern.id in EXIT_TIER:
        return EXIT_TIER[f.pattern.id]
    if f.pattern.id in JOINING:
        return 1.8
    if category in FACTS:
        return (
            0.0
            if f.event.fields.get("kernel")
            or f.event.source_kind in ("kernel", "scheduler", "kubernetes")
            or f.pattern.entity in ("job", "gpu", "host")
            else 0.5
        )
    if category in PROCESS:
        return 1.0
    if category in GROUP:
        return 1.5 if f.pattern.entity == "self" and category == "rendezvous" else 2.0
    if category == "hang":
        return 3.0 if f.pattern.derived else 2.8
    if category == "external-signal":
        return 4.0
    if category == "numerics":
        return 1.0 if f.pattern.severity == "fatal" else 7.0
    return 6.0


def candidates(case: Case, findings: Sequence[Finding]) -> list[Finding]:
    """Causes, best first."""
    merged = _join_same_failure([f for f in findings if f.role == "cause"])
    explained = {id(b): a for a in merged for b in merged if a is not b and explains(a, b)}
    for b in merged:
        if id(b) in explained:
            a = explained[id(b)]
            case.note(f"{a.pattern.id} at {a.event.where} explains {b.pattern.id} at {b.event.where}")

    def order(a: Finding, b: Finding) -> int:
        return (id(a) in explained) - (id(b) in explained) or _compare(a, b)

    return sorted(merged, key=cmp_to_key(order))


def explains(a: Finding, b: Finding) -> bool:
    """Whether the library has an edge from a to b, their entities join, and the time order allows it."""
    for edge in a.pattern.explains:
        if edge.id == b.pattern.id and joined(a, b, edge.join):
            if (
                edge.within_s is not None
                and a.at is not None
                and b.at is not None
                and abs(a.at - b.at) > edge.within_s + 60
            ):
                continue
            return (
                not any(back.id == a.pattern.id for back in b.pattern.explains)
                or a.event.where < b.event.where
            )
    return False


def joined(a: Finding, b: Finding, how: str) -> bool:
    """Whether two findings speak of the same entity. What is unknown on one side does not forbid the join."""
    match how:
        case "same-pid":
            return bool(set(a.pids) & set(b.pids)) or bool(set(a.ranks) & set(b.ranks))
        case "same-rank":
            return not a.ranks or not b.ranks or bool(set(a.ranks) & set(b.ranks))
        case "same-host":
            return not a.hosts or not b.hosts or any(same_host(x, y) for x in a.hosts for y in b.hosts)
        case "same-gpu":
            return not a.gpus or not b.gpus or bool(set(a.gpus) & set(b.gpus))
        case "peer":
            return not a.ranks or not b.ranks or not set(b.ranks) <= set(a.ranks)
    return True


def _compare(a: Finding, b: Finding) -> int:
    ta, tb = tier(a), tier(b)
    sa, sb = SEVERITY[a.pattern.severity], SEVERITY[b.pattern.severity]
    both_strong = ta <= 1.0 and tb <= 1.0 and sa == sb == 0
    if both_strong and _same_day(a, b) and (order := earlier(a, b)):
        return order
    if (ta, sa) != (tb, sb):
        return -1 if (ta, sa) < (tb, sb) else 1
    if order := earlier(a, b):
        return order
    ka = (len(a.ranks) or 1_000_000, a.event.where.source, a.event.where.line or 0)
    kb = (len(b.ranks) or 1_000_000, b.event.where.source, b.event.where.line or 0)
    return -1 if ka < kb else int(ka > kb)


def _same_day(a: Finding, b: Finding) -> bool:
    """Whether one can have led to the other. A kernel's log goes back weeks, and what failed then is another story."""
    ea, eb = first_of(a), first_of(b)
    return ea is None or eb is None or abs((ea.at or 0.0) - (eb.at or 0.0)) < 86400


def _join_same_failure(causes: Sequence[Finding]) -> list[Finding]:
    """The same exception on several ranks is one failure; different ones are several."""
    from dataclasses import replace

    groups: dict[tuple[str, str, int | None], list[Finding]] = {}
    for f in causes:
        key = (
            f.pattern.id,
            shape(str(f.event.fields.get("line") or f.event.text))
            if f.pattern.entity == "self"
            else f.pattern.id,
            f.attempt,
        )
        groups.setdefault(key, []).append(f)
    out = []
    for members in groups.values():
        first = members[0]
        if len(members) > 1:
            events = (
                tuple(e for f in members for e in f.events) if first.pattern.derived else _by_time(members)
            )  # derived: best proof first
            first = replace(
                first,
                events=events,
                ranks=tuple(sorted({r for f in members for r in f.ranks})),
                hosts=tuple(sorted({h for f in members for h in f.hosts})),
                gpus=tuple(sorted({g for f in members for g in f.gpus})),
                pids=tuple(sorted({p for f in members for p in f.pids})),
            )
        out.append(first)
    return out


def _by_time(members: Sequence[Finding]) -> tuple[Event, ...]:
    events = (e for f in members for e in f.events)
    return tuple(sorted(events, key=lambda e: (e.at is None, e.at or 0.0, e.where.source, e.where.line or 0)))
