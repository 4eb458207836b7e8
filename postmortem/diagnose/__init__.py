"""Timeline -> Incident document: joins, guards, hangs, exits, the root, and an account of every rank.

The steps stand in `solve`, in their order. Nothing here opens a file or knows a log format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from postmortem.align import Timeline
from postmortem.diagnose import (
    document,
    exits,
    foreign,
    guards,
    hangs,
    jobs,
    joining,
    lastwords,
    novelty,
    order,
    outcome,
    standstill,
    verdict,
)
from postmortem.diagnose.case import Case, Observation, as_int, finding, merge_copies
from postmortem.diagnose.entities import observe
from postmortem.diagnose.identity import build, same_host
from postmortem.diagnose.novelty import shapes as shapes  # what `usual` is made of
from postmortem.diagnose.views import minority
from postmortem.library import Library
from postmortem.model import Event, Finding, Source

UNRANKED = ("collective-mismatch", "hang")


@dataclass(frozen=True)
class Solution:
    """The outcome for one job: what the document is written from."""

    case: Case
    outcome: str
    root: Finding | None
    ranks: tuple[int, ...]
    findings: tuple[Finding, ...]
    alternatives: tuple[Finding, ...]
    job: str | None = None
    attempts: int = 1
    leads: tuple[Event, ...] = ()


def diagnose(
    timeline: Timeline,
    sources: Sequence[Source],
    library: Library,
    ledger: Mapping[str, object],
    job: str | None = None,
    usual: Set[str] = frozenset(),
) -> dict[str, object]:
    """The incident document of the latest failed job among these sources, or of `job`. `usual` are line shapes of a healthy run."""
    by_path = {s.path: s for s in sources}
    solutions = []
    for name, paths in jobs.split(timeline.events, sources).items():
        wanted = set(paths)
        own = [e for e in timeline.events if e.where.source in wanted]
        solutions.append(solve_job(own, {p: by_path[p] for p in paths}, library, name))
    chosen = _choose(solutions, job)
    if chosen.outcome == "undetermined":
        known = {(e.where.source, e.where.line) for f in chosen.findings for e in f.events}
        chosen = replace(chosen, leads=tuple(novelty.leads(chosen.case, known, usual)))
    return document.write(
        chosen, [s for s in solutions if s.case is not chosen.case], timeline, sources, ledger
    )


def _choose(solutions: Sequence[Solution], job: str | None) -> Solution:
    named = [s for s in solutions if s.job == job] if job else []
    failed = [s for s in solutions if s.outcome in ("incident", "undetermined")]
    recovered = [s for s in solutions if s.outcome == "recovered"]
    return (named or failed or recovered or list(solutions))[-1]


def solve_job(
    events: Sequence[Event], sources: Mapping[str, Source], library: Library, name: str | None = None
) -> Solution:
    """Solve each attempt; the first failing one has the cause, and a good last one makes it a recovery."""
    events = jobs.infer_attempts(events)
    numbers = jobs.attempts(events)
    if len(numbers) < 2:
        return replace(solve(events, sources, library, numbers[0] if numbers else None), job=name)
    each = [solve(jobs.of_attempt(events, n), sources, library, n) for n in numbers]
    failing = [s for s in each if s.outcome not in ("healthy",)]
    if not failing:
        return replace(each[-1], job=name, attempts=len(numbers))
    chosen = next((s for s in failing if s.outcome == "incident"), failing[0])
    recovered = each[-1].outcome == "healthy" and (
        _finished(each[-1].case) or _unreported([s.case for s in each])
    )
    if recovered:
        chosen.case.note(
            f"attempt {numbers[-1]} finished normally, so the job recovered from attempt {chosen.case.attempt}"
        )
    return replace(
        chosen, outcome="recovered" if recovered else chosen.outcome, job=name, attempts=len(numbers)
    )


def _finished(case: Case) -> bool:
    return bool(case.of_kind("finished", "progress"))


def _unreported(lives: Sequence[Case]) -> bool:
    """Whether the launcher told of the end of each life but the last, in which all ranks spoke: what they said need not be known words."""
    *failed, last = lives
    spoke = {r for e in last.of_kind("line") if (r := last.registry.rank_of(e)) is not None}
    return (
        all(case.exits for case in failed)
        and not last.exits
        and bool(spoke)
        and spoke >= set(last.registry.ranks)
    )


def solve(
    events: Sequence[Event], sources: Mapping[str, Source], library: Library, attempt: int | None
) -> Solution:
    """One attempt of one job, from events to the root."""
    registry = build(events, sources.values())
    case = Case(merge_copies(events, sources, registry), registry, library, sources, attempt)
    observations = guards.apply(case, observations_of(case))
    observations = _numeric(case, observations)
    findings = group(observations)
    findings += exits.derive(case, observations)
    findings += joining.derive(case, observations)
    doubtful = foreign.doubtful(case, findings)
    still = standstill.derive(case, observations)
    findings += still
    strong = [f for f in findings if f.role == "cause" and verdict.tier(f) <= 1.0 and f not in doubtful]
    if all(any(verdict.explains(s, f) for s in still) for f in strong):
        findings += hangs.derive(case, observations)
    findings = _doubted(case, findings, doubtful)
    if not any(f.role == "cause" for f in findings):
        findings += lastwords.derive(case, observations)
    ordered = verdict.candidates(case, findings)
    ordered = _scheduler_last(case, ordered)
    root = ordered[0] if ordered else None
    ranks = culprits(case, root, findings) if root else ()
    root = _told_by_the_group(root, ranks, findings)
    end = outcome.of(
        case,
        root,
        findings,
        doubted=root is not None and root.derived_confidence == "hypothesis" and not root.pattern.derived,
    )
    if end == "healthy":
        root, ranks = None, ()
    return Solution(case, end, root, ranks, tuple(findings), tuple(ordered[1:6]))


def _doubted(case: Case, findings: list[Finding], doubtful: Sequence[Finding]) -> list[Finding]:
    """What others said and nothing binds to this job gives way to any other cause; where there is none, it may be no more than a guess."""
    others = any(
        f.role == "cause" and f not in doubtful and f.pattern.id != "rank-vanished" for f in findings
    )
    out = []
    for f in findings:
        if f in doubtful:
            case.note(
                f"{f.pattern.id} at {f.event.where}: nothing binds it to this job, and the ranks' own words do not bear it out"
            )
            if others:
                f = replace(f, role="context")
            elif foreign.guessed(case, f):
                f = replace(f, derived_confidence="hypothesis")
        out.append(f)
    return out


def observations_of(case: Case) -> list[Observation]:
    """All pattern events with the entity they speak of."""
    out = []
    for e in case.events:
        if e.kind == "pattern" and (pattern := case.library.get(e.pattern)) is not None:
            out.append(observe(case, e, pattern))
    return out


def group(observations: Sequence[Observation]) -> list[Finding]:
    """Observations of one pattern on one entity in one role are one finding."""
    groups: dict[tuple[object, ...], list[Observation]] = {}
    for o in observations:
        alone = (
            o.event.where
            if not o.ranks and not o.gpus and o.pattern.entity in ("self", "rank", "pid")
            else None
        )
        groups.setdefault(
            (o.pattern.id, o.role, o.ranks, o.gpus, o.hosts if o.pattern.entity == "host" else None, alone),
            [],
        ).append(o)
    return [finding(members) for members in groups.values()]


def _numeric(case: Case, observations: list[Observation]) -> list[Observation]:
    """NaN spreads to all ranks with the next all-reduce: the rank that showed it first has it. One NaN that goes away is no failure."""
    nans = [o for o in observations if o.pattern.id == "loss-is-nan" and o.role == "cause"]
    if not nans:
        return observations
    per_rank: dict[object, int] = {}
    for o in nans:
        per_rank[o.ranks] = per_rank.get(o.ranks, 0) + 1
    if max(per_rank.values()) < 2 and len(per_rank) < 2:
        return [
            guards.demote(case, o, "context", "a single NaN that did not come back") if o in nans else o
            for o in observations
        ]
    steps = [(s, o) for o in nans if (s := as_int(o.event.fields.get("step"))) is not None]
    if steps:
        first = min(s for s, _ in steps)
        kept = {id(o) for s, o in steps if s == first}
    else:
        moments = [o.event.at for o in nans if o.event.at is not None]
        kept = {
            id(o)
            for o in nans
            if not moments or (o.event.at is not None and o.event.at <= min(moments) + 0.2)
        }
    return [
        o
        if o not in nans or id(o) in kept
        else replace(o, role="symptom", because="NaN spreads with the gradients")
        for o in observations
    ]


def _scheduler_last(case: Case, ordered: list[Finding]) -> list[Finding]:
    """A scheduler or a launcher that stops the job after something else had failed is the broom, not the dirt."""
    if len(ordered) < 2 or not (
        ordered[0].pattern.category == "scheduler" or ordered[0].pattern.id == "launcher-received-signal"
    ):
        return ordered
    broom = ordered[0]
    proven = [
        f
        for f in ordered[1:]
        if verdict.tier(f) <= 1.0 or f.pattern.id in ("rank-exit-sigkill", "rank-exit-crash-signal")
    ]
    earlier = [f for f in proven if f.pattern.severity == "fatal" and order.earlier(f, broom) < 0]
    return [*earlier, *(f for f in ordered if f not in earlier)]


def culprits(case: Case, root: Finding, findings: Sequence[Finding]) -> tuple[int, ...]:
    """The ranks to blame. A mismatch seen by one rank speaks of the group: then the odd one of the hang analysis is meant."""
    if (
        root.pattern.category in UNRANKED
        and not root.pattern.derived
        and root.pattern.entity != "missing-ranks"
    ):
        derived = next(
            (
                f
                for f in findings
                if f.pattern.derived and f.ranks and f.pattern.category in (*UNRANKED, None)
            ),
            None,
        )
        if derived is not None:
            return derived.ranks
    if root.ranks:
        return root.ranks
    if root.pattern.id == "ddp-model-mismatch":
        return _other_model(root)
    if root.pattern.entity in ("host", "pid", "job") and root.pattern.category == "host-oom":
        others = {
            r
            for f in findings
            if f is not root and f.pattern.category == "host-oom" and f.role in ("cause", "confirms")
            for r in f.ranks
        }
        told = {
            r for f in findings if f.pattern.id == "slurm-task-out-of-memory" for r in f.ranks
        }  # srun names the tasks, however many
        if told and root.pattern.id == "slurm-oom-kill-event":
            return tuple(sorted(told))
        others = (
            others
            or {r for r in case.exits if case.exit_code(r) in exits.KILL}
            or exits.told_killed(findings)
        )
        others = others or _speechless(case, findings)
        if len(others) == 1:
            case.note(f"the kill is joined to rank {min(others)}: the only rank that ended this way")
            return tuple(others)
    if root.pattern.entity == "self":
        world = case.registry.world
        absent = [r for r in case.registry.ranks if r not in case.by_rank]
        if world is not None and len(absent) == 1:
            case.note(
                f"the failing process does not say its rank; rank {absent[0]} is the only one without a voice"
            )
            return (absent[0],)
        nameless = [
            f
            for f in findings
            if f.role == "cause" and not f.ranks and f.pattern.entity == "self"
            for _ in f.events
        ]
        failed = [
            r for r in case.exits if (case.exit_code(r) or 0) > 0 and case.exit_code(r) not in (129, 130, 143)
        ]
        if root.pattern.category == "native-crash":
            failed = [r for r in case.exits if case.exit_code(r) in exits.CRASH]
        if len(nameless) == 1 and len(failed) == 1 and _may_be_on(case, failed[0], root.event.host):
            case.note(
                f"the failing process does not say its rank; the launcher saw rank {failed[0]} end by itself, and only that one"
            )
            return (failed[0],)
    return ()


def _other_model(root: Finding) -> tuple[int, ...]:
    """Each rank says how many parameters it has, and how many the first that differs: the minority has another model."""
    said: dict[int, int] = {}
    for e in root.events:
        for rank, parameters in (("rank", "detail"), ("ranks", "limit")):
            if (r := as_int(e.fields.get(rank))) is not None and (
                n := as_int(e.fields.get(parameters))
            ) is not None:
                said.setdefault(r, n)
    groups: dict[int, list[int]] = {}
    for r, n in said.items():
        groups.setdefault(n, []).append(r)
    odd, majority = minority(groups)
    return tuple(sorted(odd)) if majority else ()


def _may_be_on(case: Case, rank: int, host: str | None) -> bool:
    """Whether a rank may live on this host; what is unknown forbids nothing."""
    known = case.exits[rank].host or case.registry.host_of.get(rank)
    return host is None or known is None or same_host(known, host)


def _told_by_the_group(
    root: Finding | None, ranks: tuple[int, ...], findings: Sequence[Finding]
) -> Finding | None:
    """A mismatch is stated by one rank's line, but who is out of step only the comparison of all ranks tells: then it says why."""
    if root is None or root.pattern.derived or root.pattern.category not in UNRANKED or not ranks:
        return root
    told = next((f for f in findings if f.pattern.derived and f.ranks == ranks), None)
    if told is None:
        return root
    events = (*root.events[:1], *told.events[:2], *root.events[1:])
    return replace(root, because=told.because, events=events, derived_confidence="supported")


def _speechless(case: Case, findings: Sequence[Finding]) -> set[int]:
    """Ranks that neither complained nor finished: what a process does that is killed from outside."""
    told = {r for f in findings if f.role in ("cause", "symptom") for r in f.ranks} | case.finished
    told |= {r for f in findings if f.role == "symptom" and (r := case.registry.rank_of(f.event)) is not None}
    return set(case.registry.ranks) - told
