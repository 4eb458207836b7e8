"""The root -> the ranks to blame: those that it names, or those that another line, an end or a silence
tells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from postmortem.diagnose import owners
from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive import exits
from postmortem.diagnose.derive.hangs.rank_rows import odd_one_out
from postmortem.diagnose.endings import Ending
from postmortem.diagnose.same import same_host
from postmortem.diagnose.wording import ranks_text
from postmortem.model.digits import number

OF_THE_GROUP = (
    "collective-mismatch",
    "hang",
)  # one rank's line speaks of them, the comparison of all tells who
Ranks = tuple[int, ...]


def culprits(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The ranks to blame; empty where none is or none can be told."""
    compared = _by_the_group(root, claims)
    if compared is not None:
        return compared.ranks
    if root.pattern.category == "numerics" and len(root.ranks) != 1 and (first := _first_nan(claims)):
        return first
    if root.ranks:
        return root.ranks
    if "limit" in root.event.fields and root.pattern.category == "ddp-usage":
        return _other_model(root)
    if root.pattern.category == "host-oom" and root.pattern.entity in ("host", "pid", "job"):
        return _out_of_memory(case, root, claims)
    if root.pattern.entity == "job" and root.pattern.category == "resource-limit":
        return _of_its_kind(root, claims)
    if root.pattern.entity != "self":
        return ()
    return _of_a_nameless_error(case, root, claims)


def _of_a_nameless_error(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The ranks that raised an error whose line has no rank; a complaint accuses only those that its line names."""
    ways: list[owners.Way] = [_whole_nodes, lambda _, root, claims: _who_follows(root, claims), _nameless]
    if root.strength != "suffered":
        ways += owners.WAYS
    return next((ranks for way in ways if (ranks := way(case, root, claims))), ())


def _first_nan(claims: Sequence[Claim]) -> Ranks:
    """The ranks whose own loss was NaN first, where all raise in the end: it spreads with the gradients."""
    nans = [c for c in claims if c.pattern.spreads and c.ranks]
    steps = [step for c in nans if (step := number(c.event.fields.get("step"))) is not None]
    first = [c for c in nans if not steps or number(c.event.fields.get("step")) == min(steps)]
    return tuple(sorted(_ranks(first)))


def _by_the_group(root: Claim, claims: Sequence[Claim]) -> Claim | None:
    """The comparison of the ranks that tells whom a line about the whole group means."""
    if root.strength != "stated" or root.pattern.category not in OF_THE_GROUP or root.pattern.entity == "missing-ranks":
        return None
    stated = next((c for c in claims if c.pattern.names_ranks_of == root.pattern.category), None)
    if stated is not None:
        return stated
    named = root.ranks and root.pattern.category == "collective-mismatch"  # the line itself names who differ
    categories = ("collective-mismatch",) if named else (*OF_THE_GROUP, None)
    for c in claims:
        if c.pattern.derived and c.ranks and c.pattern.category in categories:
            return c
    return None


def told_by_the_group(root: Claim, ranks: Ranks, claims: Sequence[Claim]) -> Claim:
    """A mismatch is stated by one rank's line, but who is out of step only the comparison of all ranks
    tells: then it says why."""
    if root.strength != "stated" or root.pattern.category not in OF_THE_GROUP or not ranks:
        return root
    if root.pattern.says_why:
        return root
    same = [c for c in claims if c.pattern.derived and c.ranks == ranks]
    told = min(same, key=lambda c: c.pattern.category not in OF_THE_GROUP, default=None)  # no mere exit code
    if told is None:
        return root
    events = (*root.events[:1], *told.events[:2], *root.events[1:])
    return replace(root, because=told.because, events=events, strength="compared")


def _other_model(root: Claim) -> Ranks:
    """Each rank says how many parameters it has, and how many the first that differs: the minority has
    another model."""
    said: dict[int, int] = {}
    for e in root.events:
        for rank, parameters in (("rank", "detail"), ("ranks", "limit")):
            r, n = number(e.fields.get(rank)), number(e.fields.get(parameters))
            if r is not None and n is not None:
                said.setdefault(r, n)
    groups: dict[int, list[int]] = {}
    for r, n in said.items():
        groups.setdefault(n, []).append(r)
    odd, majority = odd_one_out(groups)
    return tuple(sorted(odd)) if majority else ()


def _out_of_memory(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """Whose memory ran out, where the line names a host or a job: what srun names, else the one rank that
    ended this way."""
    named = _ranks(c for c in claims if c.pattern.names_ranks_of == "host-oom")
    if named and root.pattern.entity == "host" and root.speaker != "kernel" and not root.pids:
        return tuple(sorted(named))
    others = [
        c for c in claims if c is not root and c.pattern.category == "host-oom" and c.role in ("cause", "confirms")
    ]
    ways: tuple[Callable[[], set[int]], ...] = (
        lambda: _ranks(others),
        lambda: set(case.ended("kill")),
        lambda: exits.told_killed(claims),
        lambda: _speechless(case, claims),
    )
    found = next((ranks for way in ways if (ranks := way())), set())
    if len(found) != 1:
        return ()
    case.note(f"the kill is attributed to rank {min(found)}, the only rank that ended this way")
    return tuple(found)


def _of_its_kind(root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The ranks whose ends tell of the same limit."""
    ended = [c for c in claims if c.pattern.derived and c.pattern.category == root.pattern.category]
    return tuple(sorted(_ranks(ended)))


def _ranks(claims: Iterable[Claim]) -> set[int]:
    return {r for c in claims for r in c.ranks}


def _speechless(case: Case, claims: Sequence[Claim]) -> set[int]:
    """Ranks that neither complained nor finished: what a process does that is killed from outside."""
    told = _ranks(c for c in claims if c.accuses) | case.finished
    told |= case.ranks_of(c.event for c in claims if c.role == "symptom")
    return set(case.registry.ranks) - told


def _nameless(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The failing process does not say its rank: the only one without a voice, or the only one that a
    launcher saw end so."""
    absent = _without_a_line(case)
    if case.registry.world is not None and len(absent) == 1:
        case.note(f"the failing process does not print its rank; rank {absent[0]} is the only one without a line")
        return (absent[0],)
    ends = case.ends or exits.told_of(claims)
    failed = [r for r, end in ends.items() if end.kind == "crash"]
    if root.pattern.category != "native-crash":
        failed = [r for r, end in ends.items() if end.kind in ("own", "crash", "kill") and end.code > 0]
    if (
        len(failed) != 1
        or _events_without_rank(claims) != 1
        or not _may_be_on(case, failed[0], ends[failed[0]], root.event.host)
    ):
        return ()
    case.note(f"the failing process does not print its rank; rank {failed[0]} is the only one that exited by itself")
    return (failed[0],)


def _without_a_line(case: Case) -> list[int]:
    """A script's word for the end of a rank is no line of the rank's own."""
    told = {id(e) for e in case.of_kind("exit") if e.fields.get("told_by") == "script"}
    return [r for r in case.registry.ranks if all(id(e) in told for e in case.by_rank.get(r, ()))]


def _who_follows(root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The one rank that says, with its name, what a process says next that died of this."""
    own = {edge.id for edge in root.pattern.explains if edge.join == "same-rank"}
    told = _ranks(c for c in claims if c.pattern.id in own and c.accuses)
    return tuple(told) if len(told) == 1 else ()


def _whole_nodes(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """All ranks of each node whose log has the same complaint once for each rank that its launcher lists,
    where other nodes have none."""
    alike = [c for c in claims if c.role == "cause" and c.pattern.id == root.pattern.id]
    said: dict[str, set[int | None]] = {}
    for e in (e for c in alike for e in c.events):
        said.setdefault(e.where.source, set()).add(e.where.line)
    listed: dict[str, set[int]] = {}
    for rank, end in case.ends.items():
        if end.told_by is not None:
            listed.setdefault(end.told_by.where.source, set()).add(rank)
    if any(len(listed.get(source, ())) != len(lines) for source, lines in said.items()):
        return ()
    found = tuple(sorted({rank for source in said for rank in listed[source]}))
    if len(found) < 2 or set(found) >= set(case.registry.ranks):
        return ()
    case.note(f"the launcher's log has the error once for each rank of its node, {ranks_text(found)}")
    return found


def _events_without_rank(claims: Sequence[Claim]) -> int:
    """How many events are causes of a process that does not say its rank."""
    nameless = [c for c in claims if c.role == "cause" and not c.ranks and c.pattern.entity == "self"]
    return sum(len(c.events) for c in nameless)


def _may_be_on(case: Case, rank: int, end: Ending, host: str | None) -> bool:
    """Whether a rank may live on this host; what is unknown forbids nothing."""
    known = (end.told_by.host if end.told_by is not None else None) or case.registry.host_of.get(rank)
    return host is None or known is None or same_host(known, host)


def hosts(case: Case, root: Claim, ranks: Ranks, claims: Sequence[Claim]) -> list[str]:
    """Where it happened: what the cause says, where its ranks live, or what another line on the same trouble
    says of these ranks."""
    if root.pattern.entity == "job" and not ranks:
        return []
    if root.hosts:
        return list(root.hosts)
    at_home = {h for r in ranks if (h := case.registry.host_of.get(r))}
    alike = [c for c in claims if c.ranks and c.role == "cause" and c.pattern.category == root.pattern.category]
    return sorted(at_home or {h for c in alike if set(c.ranks) <= set(ranks) for h in c.hosts})
