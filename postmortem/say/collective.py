"""The collective in which the ranks were stuck: which had entered it, which had not, and how far each had come.

    {"op": "ALLREDUCE", "seq": 8120, "group": "default_pg", "size": 4, "numel_in": 1048576, "numel_out": 1048576,
     "dtype": None, "timeout_s": 600.0, "waited_s": 600.03, "entered": [0, 1, 3], "missing": [2], "elsewhere": {},
     "completed": {"2": 8119}}

The best source counts alone (flight recorders, watchdogs, fingerprints, calls in stacks): two sources may number
collectives differently.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from postmortem.diagnose.case import Case
from postmortem.diagnose.compare import library_reports, recorder, watchdogs
from postmortem.diagnose.compare.rank_rows import POINT_TO_POINT
from postmortem.diagnose.compare.watchdogs import DEFAULT, Group, Wait, seconds
from postmortem.diagnose.verdict.solution import Solution
from postmortem.model.contract import verdict as contract
from postmortem.model.digits import number
from postmortem.model.grouped import grouped, usual
from postmortem.model.vocabulary import OF_THE_GROUP
from postmortem.system import forms

NO_COLLECTIVE = (*POINT_TO_POINT, "init")
NAMED = 1024  # ranks that are listed
_REGEXES = forms.regexes("say/lines")
T = TypeVar("T")


@dataclass(frozen=True)
class Collective:
    """One collective of one process group; `group` is None where no line names it."""

    op: str
    seq: int | None = None
    group: str | None = None
    size: int | None = None
    members: tuple[int, ...] = ()  # by the flight recorder; empty where unknown
    numel_in: int | None = None
    numel_out: int | None = None
    dtype: str | None = None
    timeout_s: float | None = None
    waited_s: float | None = None
    entered: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    elsewhere: Mapping[int, str] = field(default_factory=dict)  # rank -> the collective that it was in
    completed: Mapping[int, int] = field(default_factory=dict)  # rank -> the last that it had completed


def stuck_in(solution: Solution) -> contract.Collective | None:
    """The collective in which ranks waited until a timeout, or hung by the verdict."""
    hang = solution.root is not None and solution.root.pattern.category in OF_THE_GROUP
    if not hang and not solution.victims.timed_out:
        return None
    case = solution.case
    found = _recorded(case) or _counted(solution) or _announced(case) or _called(case)
    return _row(_timed(solution, _without_the_absent(solution, found))) if found else None


def last(case: Case) -> dict[int, str]:
    """The last collective that each rank is known to have been in: `ALLREDUCE #808 of group 3(tp)`, `all_reduce`."""
    found = {rank: call for rank, (call, _) in calls(case).items()}
    found |= {rank: _named(op, seq) for rank, (op, seq, *_) in announced(case).items()}
    for group in reversed(watchdogs.groups(case)):
        found |= {r: text for r, w in group.waits.items() if (text := _of_wait(group, w))}
    for rank, e in library_reports.dumps_of(case).items():
        if rows := e.fields.get("pending") or e.fields.get("entries"):
            key, seq, name, _ = rows[-1]
            found[rank] = _named(_REGEXES["backend"].sub("", name), seq, key.partition(" [")[0])
    return found


def _named(op: str, seq: int | None, group: str | None = None) -> str:
    of = f" of group {group}" if group is not None and group not in DEFAULT else ""
    return f"{op or 'collective'}{f' #{seq}' if seq is not None else ''}{of}"


def _of_wait(group: Group, wait: Wait) -> str:
    seq = wait.enqueued if wait.seq is None else wait.seq
    return _named(wait.op, seq, group.key) if wait.op or seq is not None else ""


# ── sources ─────────────────────────────────────────────────────────────────────────────────────────────────


def _recorded(case: Case) -> Collective | None:
    """By flight-recorder dumps."""
    dumps = library_reports.dumps_of(case)
    stuck = recorder.stuck_in(dumps)
    if stuck is None:
        return None
    m = _REGEXES["tensor"].fullmatch(stuck.detail)  # `[64, 512] Float`, and no list of tensors
    numel, dtype = (_elements(m["dims"]), m["dtype"]) if m else (None, None)
    group = "default_pg" if stuck.key in DEFAULT else stuck.key
    size = len(stuck.members) or (case.registry.world if group == "default_pg" else None)
    counts = ((rank, recorder.completed(e, stuck.key)) for rank, e in dumps.items())
    # gloo retires failed collectives as if they had completed
    most = stuck.number if stuck.name.startswith("gloo:") else math.inf
    done = {rank: n for rank, n in counts if n is not None and n < most}
    return Collective(
        _REGEXES["backend"].sub("", stuck.name),
        stuck.number,
        group,
        size,
        stuck.members,
        numel,
        dtype=dtype,
        entered=stuck.entered,
        missing=stuck.missing,
        completed=done,
    )


def _elements(dims: str) -> int:
    return math.prod(number(d.strip()) or 0 for d in dims.split(",") if d.strip())


def _counted(solution: Solution) -> Collective | None:
    """By watchdogs: the group of the verdict's own line, else the one in which most ranks wait."""
    own = solution.root.event.fields.get("pg", "") if solution.root else ""
    groups = [g for g in watchdogs.groups(solution.case) if g.seqs or g.differs]
    found = min(groups, key=lambda g: g.key != own, default=None)
    return None if found is None else _of_group(solution.case, found)


def _of_group(case: Case, group: Group) -> Collective:
    waits = group.waits
    seq = _stuck(group)
    inside = [w for w in waits.values() if w.seq == seq]
    op = usual(w.op for w in inside) or ""
    by_position = grouped((_position(waits[r], seq, op), r) for r in group.ranks)
    name = "default_pg" if group.key in DEFAULT else group.key
    return Collective(
        op,
        seq,
        name,
        case.registry.world if name == "default_pg" else None,
        numel_in=number(usual(w.numel for w in inside)),
        numel_out=number(usual(w.numel_out for w in inside)),
        timeout_s=next((w.timeout_s for w in inside if w.timeout_s), None),
        waited_s=max((w.waited_s for w in inside if w.waited_s), default=None),
        entered=tuple(by_position["entered"]),
        missing=tuple(by_position["behind"]),
        elsewhere={r: _of_wait(group, waits[r]) for r in by_position["elsewhere"]},
        completed=group.completed,
    )


def _stuck(group: Group) -> int | None:
    """The number in which most ranks wait; without any the last that was enqueued."""
    seqs = Counter(w.seq for w in group.waits.values() if w.seq is not None)
    last = max((w.enqueued for w in group.waits.values() if w.enqueued is not None), default=None)
    return max(seqs, key=lambda n: (seqs[n], n), default=last)


def _position(wait: Wait, seq: int | None, op: str) -> str:
    """Whether a rank had `entered` a work, was `behind` it, or was `elsewhere`; empty where unknown."""
    reached = wait.enqueued if wait.seq is None else wait.seq
    if seq is None or reached is None:
        return ""
    if reached < seq:
        return "behind"
    return "elsewhere" if wait.seq == seq and wait.op not in ("", op) else "entered"


Print = tuple[str, int | None, int | None, str | None]  # operation, number, elements, type


def announced(case: Case) -> dict[int, Print]:
    """The fingerprint of each rank's own collective (TORCH_DISTRIBUTED_DEBUG=DETAIL)."""
    found: dict[int, Print] = {}
    for of in (e.fields for e in case.telling("announces")):
        if "rank" in of and of.get("op"):
            numel = _elements(of["shape"]) if "shape" in of else None
            found.setdefault(of["rank"], (of["op"], of.get("seq"), numel, of.get("dtype") or None))
    return found


def _announced(case: Case) -> Collective | None:
    prints = announced(case)
    if not prints:
        return None
    (op, seq, numel, dtype), entered = _usual(prints)
    others = {}
    for rank, (other, n, elements, of_type) in prints.items():
        details = ", ".join(filter(None, (f"{elements:,} elements" if elements is not None else "", of_type)))
        if rank not in entered:
            others[rank] = _named(other, n) + (f" ({details})" if details else "")
    return Collective(op, seq, numel_in=numel, dtype=dtype, entered=entered, elsewhere=others)


def _usual(column: Mapping[int, T]) -> tuple[T, tuple[int, ...]]:
    """The most frequent value, and its ranks."""
    value = Counter(column.values()).most_common(1)[0][0]
    return value, tuple(sorted(r for r, own in column.items() if own == value))


def calls(case: Case) -> dict[int, tuple[str, str]]:
    """The call in each rank's stack or traceback, and the line of the user's code that made it."""
    found = {rank: [e.fields for e in events if e.fields.get("collective")] for rank, events in case.by_rank.items()}
    return {rank: (first[0]["collective"] or "", first[0].get("code") or "") for rank, first in found.items() if first}


def _called(case: Case) -> Collective | None:
    found = {rank: call for rank, call in sorted(calls(case).items()) if call[0] not in NO_COLLECTIVE}
    if not found:
        return None
    (op, _), entered = _usual(found)
    others = {r: call if call != op else f"{call} at {at}" for r, (call, at) in found.items() if r not in entered}
    return Collective(op, entered=entered, elsewhere=others)


# ── additions of the verdict ────────────────────────────────────────────────────────────────────────────────


def _without_the_absent(solution: Solution, found: Collective) -> Collective:
    """Ranks that the verdict found absent are missing; without a number the call of a rank may be one that it entered
    too late."""
    missed = [c for c in solution.claims if c.pattern.entity == "missing-ranks"]
    named = {r for c in missed if c.pattern.category in (*OF_THE_GROUP, None) for r in c.ranks}
    absent = {r for r in named.intersection(solution.ranks).difference(found.elsewhere) if r in (found.members or (r,))}
    entered = found.entered if found.seq is not None else tuple(r for r in found.entered if r not in absent)
    missing = tuple(sorted({*found.missing, *absent} - set(entered)))
    return replace(found, entered=entered, missing=missing)


def _timed(solution: Solution, found: Collective) -> Collective:
    """The collective with the timeout in a line of the ranks that waited."""
    if found.timeout_s is not None:
        return found
    waits = [*solution.case.telling("wait"), *(solution.root.events if solution.root else ())]
    timeout = next(filter(None, (seconds(e.fields.get("timeout_ms")) for e in waits)), None)
    waited = max(filter(None, (seconds(e.fields.get("ran_ms")) for e in waits)), default=None)
    return replace(found, timeout_s=timeout, waited_s=found.waited_s or waited)


def _row(c: Collective) -> contract.Collective:
    row = {
        **vars(c),
        "op": c.op or None,
        "entered": list(c.entered[:NAMED]),
        "missing": list(c.missing[:NAMED]),
        "elsewhere": {str(r): call for r, call in sorted(c.elsewhere.items())[:NAMED]},
        "completed": {str(r): n for r, n in sorted(c.completed.items())[:NAMED] if n >= 0},
    }
    del row["members"]
    return cast(contract.Collective, row)
