"""The ranks that raised an error whose line has no rank: by a copy of it, by GPU numbers, by the launcher's list,
or by elimination.

-- Process 0 terminated with the following error:      the copy in the report of torch.multiprocessing.spawn
CUDA out of memory. … GPU 3 has a total capacity of    one host, several numbers
rank      : 1 (local_rank: 1)   exitcode  : 1          every rank with the same exit code, and the error several times
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive import exits
from postmortem.diagnose.wording import listed, ranks_text
from postmortem.formats.lineform import gist
from postmortem.model import Event
from postmortem.model.digits import number

MOST_ON_A_HOST = 16  # GPUs
Ranks = tuple[int, ...]
Way = Callable[[Case, Claim, Sequence[Claim]], Ranks]


def by_a_copy(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The ranks of the copies of the same line that have one, unless there are more copies without a rank."""
    alike = [c for c in claims if c.pattern.id == root.pattern.id and _same_line(c, root)]
    nameless, named = _lines(c for c in alike if not c.ranks), _lines(c for c in alike if c.ranks)
    ranks = tuple(sorted({r for c in alike for r in c.ranks}))
    if not ranks or len(nameless) > len(named):
        return ()
    case.note(f"{root.event.where} and the report on {ranks_text(ranks)} are copies of one error")
    return ranks


def _same_line(a: Claim, b: Claim) -> bool:
    """Whether two claims rest on copies of one line; a report may break a long message into lines."""
    one, other = gist(a.event.text), gist(b.event.text)
    return one.startswith(other) or other.startswith(one)


def _lines(claims: Iterable[Claim]) -> set[object]:
    return {e.where for e in _events(claims)}


def _events(claims: Iterable[Claim]) -> Iterator[Event]:
    return (e for c in claims for e in c.events)


def by_gpus(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The numbers of the GPUs that the copies of an error name, in a job on one host. A number is an index inside
    CUDA_VISIBLE_DEVICES, so one number alone may be that of any rank, unless the job has only one."""
    alike = [c for c in claims if c.pattern.category == root.pattern.category and c.role == "cause"]
    numbers = sorted({n for e in _events(alike) if (n := number(e.fields.get("gpu"))) is not None})
    if (
        not _are_ranks(case, numbers)
        or len({h for c in alike for h in c.hosts}.union(case.registry.host_of.values())) > 1
    ):
        return ()
    case.note(f"the errors name GPU{'s' if len(numbers) > 1 else ''} {listed(list(map(str, numbers)))} of one host")
    return tuple(numbers)


def _are_ranks(case: Case, numbers: Sequence[int]) -> bool:
    if len(numbers) < 2:
        return case.registry.world == 1 and list(numbers) == [0]
    return numbers[-1] < (case.registry.limit or MOST_ON_A_HOST)


def by_equal_exits(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """All ranks that the launcher saw exit with the same code, where the logs have the error several times without a
    rank, and no other: each of them raised it."""
    ends = case.ends or exits.told_of(claims)
    failed = tuple(sorted(r for r, end in ends.items() if end.kind == "own" and end.code > 0))
    copies = _lines(c for c in claims if c.pattern.id == root.pattern.id and not c.ranks)
    codes = {ends[r].code for r in failed}
    if len(failed) < 2 or len(codes) > 1 or len(copies) < 2 or any(_is_another(c, root) for c in claims):
        return ()
    case.note(f"the error is there several times without a rank, and {ranks_text(failed)} exited with the same code")
    return failed


def _is_another(c: Claim, root: Claim) -> bool:
    """Whether it is a failure of a different kind, or of a rank that has a name."""
    own = c.role in ("cause", "symptom") and c.pattern.entity == "self"
    if not own or c.pattern.derived or c.pattern.generic:
        return False
    return bool(c.ranks) or c.pattern.category != root.pattern.category


def by_elimination(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The one number below the largest rank that no known process has, where the error is that of an unknown one:
    Ray names the pid of each actor, and an actor that crashed printed no rank."""
    known = case.registry.pids
    pids = {pid for e in root.events if (pid := e.pid or number(e.fields.get("pid"))) is not None}
    free = sorted(set(range(max(known, default=0))) - known.keys())
    if len(known) < 2 or len(free) != 1 or len(pids) != 1 or pids & case.registry.by_pid.keys():
        return ()
    case.note(f"pid {min(pids)} is none of the known ranks, and rank {free[0]} is the only one without a pid")
    return tuple(free)


WAYS: list[Way] = [by_a_copy, by_gpus, by_equal_exits, by_elimination]
