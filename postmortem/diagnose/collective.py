"""Which collective the ranks were stuck in: who had entered it, who had not, and how far each had come.

    {"op": "ALLREDUCE", "seq": 8120, "group": "default_pg", "size": 4, "numel_in": 1048576, "numel_out": 1048576, "dtype": None,
     "timeout_s": 600.0, "waited_s": 600.03, "entered": [0, 1, 3], "missing": [2], "elsewhere": {}, "completed": {"2": 8119}}

In: what watchdogs count, what flight recorders and fingerprints hold, and the calls in which stacks and
tracebacks stand. Out: a row with what these tell and nothing else. The best witness is heard, not all of them:
numbers of two accounts need not count the same works.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from postmortem.diagnose.case import Case
from postmortem.diagnose.derive.hangs import library_reports, recorder, watchdogs
from postmortem.diagnose.derive.hangs.rank_rows import POINT_TO_POINT
from postmortem.diagnose.derive.hangs.watchdogs import DEFAULT, Group, Wait, seconds
from postmortem.diagnose.solution import Solution
from postmortem.model.contract import verdict as contract
from postmortem.model.digits import number

WAITED = ("hang", "collective-mismatch")
NO_COLLECTIVE = (*POINT_TO_POINT, "init")
NAMED = 1024  # ranks that are listed
_TENSOR = re.compile(r"\[(?P<dims>[\d, ]{0,200})\](?: (?P<dtype>\w{1,20}))?")
_T = TypeVar("_T")
_BACKEND = re.compile(r"^\w+:")


@dataclass(frozen=True)
class Collective:
    """One collective of one process group. `group` is None where no line names it."""

    op: str
    seq: int | None = None
    group: str | None = None
    size: int | None = None
    members: tuple[int, ...] = ()  # by the flight recorder; empty where nothing tells
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
    """The collective in which ranks waited until a time-out, or in which the verdict says that they hung."""
    hang = solution.root is not None and solution.root.pattern.category in WAITED
    if not hang and not solution.victims.timed_out:
        return None
    case = solution.case
    found = _recorded(case) or _counted(solution) or _announced(case) or _called(case)
    return _row(_timed(solution, _without_the_absent(solution, found))) if found else None


def last(case: Case) -> dict[int, str]:
    """The last collective that each rank is known to have been in: `ALLREDUCE #808 of group 3(tp)`, `all_reduce`."""
    found = {rank: call for rank, (call, _) in _calls(case).items()}
    found |= {rank: _named(op, seq) for rank, (op, seq, *_) in announced(case).items()}
    for group in reversed(watchdogs.groups(case)):
        found |= {r: text for r, w in group.waits.items() if (text := _of_wait(group, w))}
    for rank, e in library_reports.dumps_of(case).items():
        if rows := e.fields.get("pending") or e.fields.get("entries"):
            key, seq, name, _ = rows[-1]  # type: ignore[index]
            found[rank] = _named(_BACKEND.sub("", name), seq, key.partition(" [")[0])
    return found


def _named(op: str, seq: int | None, group: str | None = None) -> str:
    of = f" of group {group}" if group is not None and group not in DEFAULT else ""
    return f"{op or 'collective'}{f' #{seq}' if seq is not None else ''}{of}"


def _of_wait(group: Group, wait: Wait) -> str:
    seq = wait.enqueued if wait.seq is None else wait.seq
    return _named(wait.op, seq, group.key) if wait.op or seq is not None else ""


# ── who tells of it ─────────────────────────────────────────────────────────────────────────────────────────


def _recorded(case: Case) -> Collective | None:
    """What the flight recorders' dumps show."""
    dumps = library_reports.dumps_of(case)
    stuck = recorder.stuck_in(dumps)
    if stuck is None:
        return None
    numel, dtype = _tensor(stuck.detail)
    group = "default_pg" if stuck.key in DEFAULT else stuck.key
    size = len(stuck.members) or (case.registry.world if group == "default_pg" else None)
    done = {rank: recorder.completed(e, stuck.key) for rank, e in dumps.items()}
    if stuck.name.startswith("gloo:"):  # which retires what failed, as if it had completed
        done = {rank: n for rank, n in done.items() if n is not None and n < stuck.number}
    return Collective(
        _BACKEND.sub("", stuck.name),
        stuck.number,
        group,
        size,
        stuck.members,
        numel,
        dtype=dtype,
        entered=stuck.entered,
        missing=stuck.missing,
        completed={rank: n for rank, n in done.items() if n is not None},
    )


def _tensor(detail: str) -> tuple[int | None, str | None]:
    """Elements and type of `[64, 512] Float`; nothing of a list of tensors."""
    m = _TENSOR.fullmatch(detail)
    return (_elements(m["dims"]), m["dtype"]) if m else (None, None)


def _elements(dims: str) -> int:
    return math.prod(number(d.strip()) or 0 for d in dims.split(",") if d.strip())


def _counted(solution: Solution) -> Collective | None:
    """What the watchdogs count: the group of the verdict's own line, else the one in which most ranks wait."""
    groups = [g for g in watchdogs.groups(solution.case) if g.seqs or _launched(g)]
    own = str(solution.root.event.fields.get("pg") or "") if solution.root else ""
    groups.sort(key=lambda g: g.key != own)
    return _of_group(solution.case, groups[0]) if groups else None


def _launched(group: Group) -> bool:
    """Whether numbers of what was enqueued differ: then somebody did not come."""
    return len({w.enqueued for w in group.waits.values()} - {None}) > 1


def _of_group(case: Case, group: Group) -> Collective:
    seq = _stuck(group)
    inside = [w for w in group.waits.values() if w.seq == seq]
    op = _usual(w.op for w in inside)
    name = "default_pg" if group.key in DEFAULT else group.key
    known = Collective(op, seq, name, case.registry.world if name == "default_pg" else None)
    known = replace(
        known,
        entered=_who(group, lambda w: _entered(w, seq, op)),
        missing=_who(group, lambda w: _behind(w, seq)),
        elsewhere={r: _of_wait(group, group.waits[r]) for r in _who(group, lambda w: _at_odds(w, seq, op))},
        completed={r: n for r, w in group.waits.items() if (n := w.completed) is not None and n >= 0},
    )
    return _measured(known, inside)


def _measured(known: Collective, inside: Sequence[Wait]) -> Collective:
    """With its size and its times, as the ranks that wait in it tell them."""
    return replace(
        known,
        numel_in=number(_usual(w.numel for w in inside)),
        numel_out=number(_usual(w.numel_out for w in inside)),
        timeout_s=next((w.timeout_s for w in inside if w.timeout_s), None),
        waited_s=max((w.waited_s for w in inside if w.waited_s), default=None),
    )


def _stuck(group: Group) -> int | None:
    """The number in which most ranks wait; where only what they enqueued is told, the last of them."""
    seqs = Counter(n for w in group.waits.values() if (n := w.seq) is not None)
    last = max((n for w in group.waits.values() if (n := w.enqueued) is not None), default=None)
    return max(seqs, key=lambda n: (seqs[n], n), default=last)


def _who(group: Group, fits: Callable[[Wait], bool]) -> tuple[int, ...]:
    return tuple(rank for rank in group.ranks if fits(group.waits[rank]))


def _usual(values: Iterable[str]) -> str:
    found = Counter(v for v in values if v)
    return found.most_common(1)[0][0] if found else ""


def _entered(wait: Wait, seq: int | None, op: str) -> bool:
    if seq is None:
        return False
    if wait.seq is None:
        return wait.enqueued is not None and wait.enqueued >= seq
    return wait.seq > seq or (wait.seq == seq and wait.op in ("", op))


def _at_odds(wait: Wait, seq: int | None, op: str) -> bool:
    return seq is not None and wait.seq == seq and wait.op not in ("", op)


def _behind(wait: Wait, seq: int | None) -> bool:
    told = wait.enqueued if wait.seq is None else wait.seq
    return seq is not None and told is not None and told < seq


Print = tuple[str, int | None, int | None, str | None]  # operation, number, elements, type


def announced(case: Case) -> dict[int, Print]:
    """What each rank announced of its own collective (TORCH_DISTRIBUTED_DEBUG=DETAIL)."""
    found: dict[int, Print] = {}
    for e in case.telling("announces"):
        rank, op = number(e.fields.get("rank")), str(e.fields.get("op") or "")
        if rank is not None and op:
            shape = e.fields.get("shape")
            numel = _elements(shape) if isinstance(shape, str) else None
            dtype = str(e.fields.get("dtype") or "") or None
            found.setdefault(rank, (op, number(e.fields.get("seq")), numel, dtype))
    return found


def _announced(case: Case) -> Collective | None:
    prints = announced(case)
    if not prints:
        return None
    ((op, seq, numel, dtype), _) = Counter(prints.values()).most_common(1)[0]
    entered = tuple(sorted(r for r, said in prints.items() if said == (op, seq, numel, dtype)))
    others = {r: _shaped(*said) for r, said in prints.items() if r not in entered}
    return Collective(op, seq, numel_in=numel, dtype=dtype, entered=entered, elsewhere=others)


def _shaped(op: str, seq: int | None, numel: int | None, dtype: str | None) -> str:
    size = f"{numel:,} elements" if numel is not None else ""
    told = ", ".join(part for part in (size, dtype) if part)
    return _named(op, seq) + (f" ({told})" if told else "")


def _calls(case: Case) -> dict[int, tuple[str, str]]:
    """The call that each rank's stack or traceback stands in, and the line of the user's code that made it."""
    found: dict[int, tuple[str, str]] = {}
    for rank, events in case.by_rank.items():
        e = next((e for e in events if e.fields.get("collective")), None)
        if e is not None:
            found[rank] = str(e.fields["collective"]), str(e.fields.get("code") or "")
    return found


def _called(case: Case) -> Collective | None:
    calls = {rank: call for rank, call in sorted(_calls(case).items()) if call[0] not in NO_COLLECTIVE}
    if not calls:
        return None
    (op, code), _ = Counter(calls.values()).most_common(1)[0]
    return Collective(
        op,
        entered=tuple(r for r, call in calls.items() if call == (op, code)),
        elsewhere={
            r: call if call != op else f"{call} at {at}" for r, (call, at) in calls.items() if (call, at) != (op, code)
        },
    )


# ── what the verdict adds ───────────────────────────────────────────────────────────────────────────────────


def _without_the_absent(solution: Solution, found: Collective) -> Collective:
    """Whom the verdict found absent is missing. Where no number says that a rank had entered, a call in which
    it stood at last may be one that it came to too late."""
    absent = {
        rank
        for c in solution.claims
        if c.pattern.entity == "missing-ranks" and c.pattern.category in (*WAITED, None)
        for rank in c.ranks
        if rank in solution.ranks and rank not in found.elsewhere and rank in (found.members or (rank,))
    }
    entered = found.entered if found.seq is not None else tuple(r for r in found.entered if r not in absent)
    missing = tuple(sorted({*found.missing, *absent} - set(entered)))
    return replace(found, entered=entered, missing=missing)


def _timed(solution: Solution, found: Collective) -> Collective:
    """With the time-out that a line of the ranks that waited tells."""
    if found.timeout_s is not None:
        return found
    waits = [*solution.case.telling("wait"), *(solution.root.events if solution.root else ())]
    told = (seconds(e, "timeout_ms") for e in waits)
    ran = (seconds(e, "ran_ms") for e in waits)
    return replace(
        found,
        timeout_s=next(filter(None, told), None),
        waited_s=found.waited_s or max(filter(None, ran), default=None),
    )


def _row(c: Collective) -> contract.Collective:
    return {
        "op": c.op or None,
        "seq": c.seq,
        "group": c.group,
        "size": c.size,
        "numel_in": c.numel_in,
        "numel_out": c.numel_out,
        "dtype": c.dtype,
        "timeout_s": c.timeout_s,
        "waited_s": c.waited_s,
        "entered": list(c.entered[:NAMED]),
        "missing": list(c.missing[:NAMED]),
        "elsewhere": dict(_by_rank(c.elsewhere)),
        "completed": dict(_by_rank(c.completed)),
    }


def _by_rank(told: Mapping[int, _T]) -> Iterator[tuple[str, _T]]:
    yield from ((str(rank), told[rank]) for rank in sorted(told)[:NAMED])
