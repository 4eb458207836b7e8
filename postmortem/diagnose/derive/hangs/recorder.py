"""Flight-recorder dumps side by side: which ranks are not in the collective in which the others wait.

    rank 0: last enqueued collective 19 of default_pg (gloo:all_reduce [] Float), 18 completed
    rank 2: last enqueued collective 18 of default_pg (gloo:all_reduce [26122] Float), 18 completed

In: one `recorder` event for each rank that left a dump. Out: the odd ranks with the reason, or None. A
number that all ranks have is compared; where the ring buffer has overwritten the start, or a rank left no
dump, what is there is compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from postmortem.diagnose.wording import ranks_text
from postmortem.model import Event


class Reading(NamedTuple):
    """The odd ranks. `sure` is False where a dump that is not there is the only sign."""

    pattern: str
    odd: tuple[int, ...]
    group: tuple[int, ...]  # all ranks whose dumps were compared
    because: str
    sure: bool = True
    key: str | None = None  # the process group and the number of the collective that it is about
    number: int | None = None


class Stuck(NamedTuple):
    """The collective that a hang is about, as dumps show it: who had enqueued it, who is known not to have."""

    key: str
    number: int
    name: str
    detail: str
    members: tuple[int, ...]
    entered: tuple[int, ...]
    missing: tuple[int, ...]


@dataclass
class _Group:
    """One process group as its ranks recorded it."""

    key: str
    members: set[int] = field(default_factory=set)  # by pg_config; empty where the dumps do not say
    entries: dict[int, dict[int, tuple[str, str]]] = field(
        default_factory=lambda: defaultdict(dict)
    )  # number -> rank -> operation
    last: dict[int, int] = field(default_factory=dict)  # rank -> number of the last one it enqueued
    pending: dict[int, set[int]] = field(
        default_factory=lambda: defaultdict(set)
    )  # rank -> numbers that did not complete
    started: dict[int, int] = field(default_factory=dict)

    @property
    def stuck(self) -> int:
        """The first collective in which a rank waits. gloo retires what failed: where nothing waits, the
        last one anybody enqueued."""
        waits = [min(numbers) for numbers in self.pending.values() if numbers]
        return min(waits) if waits else max(self.last.values(), default=0)

    def name(self, number: int) -> str:
        """`collective 19 of group default_pg (gloo:all_reduce [] Float)`"""
        found = self.entries.get(number)
        what = " ".join(next(iter(found.values()))).strip() if found else "not recorded"
        return f"collective {number} of group {self.key} ({what})"


def stuck_in(dumps: Mapping[int, Event]) -> Stuck | None:
    """The one that the comparison is about; else the first in which most ranks wait."""
    groups = dict(sorted(_groups(dumps).items()))
    reading = _compare(list(groups.values()), dumps)
    if reading is not None and reading.key is not None and reading.number is not None:
        return _at(groups[reading.key], reading.number)
    odd = set(reading.odd) if reading else set()
    waited = [g for g in groups.values() if any(g.pending.values())]
    waited.sort(key=lambda g: (-len(odd & g.members), -sum(map(bool, g.pending.values()))))
    return _at(waited[0], waited[0].stuck) if waited else None


def _at(group: _Group, number: int) -> Stuck:
    here = group.entries.get(number, {})
    operations = list(here.values())
    usual = max(operations, key=operations.count, default=("", ""))
    missing = tuple(sorted(r for r, n in group.last.items() if n < number))
    entered = (r for r, n in group.last.items() if n >= number and here.get(r, usual) == usual)
    return Stuck(group.key, number, *usual, tuple(sorted(group.members)), tuple(sorted(entered)), missing)


def completed(dump: Event, key: str) -> int | None:
    """The last collective of a group that this rank had completed."""
    n = _table(_table(dump.fields.get("status")).get(key)).get("completed")
    return n if isinstance(n, int) and n >= 0 else None


def read(dumps: Mapping[int, Event]) -> Reading | None:
    """Compare the dumps of several ranks. A difference in the program says more than a rank that is late
    or has no dump."""
    return _compare([group for _, group in sorted(_groups(dumps).items())], dumps)


def _compare(groups: list[_Group], dumps: Mapping[int, Event]) -> Reading | None:
    for group in groups:
        if (found := _differing(group)) is not None:
            return found
    busy = {rank for group in groups for rank, numbers in group.pending.items() if numbers}
    for group in groups:
        if (found := _ahead(group, busy)) is not None:
            return found
    if (found := _behind(groups)) is not None:
        return found
    if (found := _empty(dumps, busy)) is not None:
        return found
    for look in (_left_in, _not_started, _absent):
        for group in groups:
            if (found := look(group)) is not None:
                return found
    return None


def _groups(dumps: Mapping[int, Event]) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    operations: dict[tuple[str, str], tuple[str, str]] = {}  # the same few, thousands of times
    for rank, e in sorted(dumps.items()):
        for key, said in _table(e.fields.get("groups")).items():
            ranks = _table(said).get("ranks")
            groups.setdefault(key, _Group(key)).members.update(ranks if isinstance(ranks, tuple) else ())
        for key, counts in _table(e.fields.get("status")).items():
            group = groups.setdefault(key, _Group(key))
            if isinstance(n := _table(counts).get("enqueued"), int):
                group.last[rank] = n
            if isinstance(n := _table(counts).get("started"), int):
                group.started[rank] = n
        for key, number, name, detail in _rows(e.fields.get("entries")):
            groups.setdefault(key, _Group(key)).entries[number][rank] = operations.setdefault(
                (name, detail), (name, detail)
            )
        for key, number, _name, _detail in _rows(e.fields.get("pending")):
            groups.setdefault(key, _Group(key)).pending[rank].add(number)
    for group in groups.values():
        _nothing_recorded(group, dumps)
    recorded = any(group.entries for group in groups.values())
    # the numbers of a group that only sends and receives differ between the stages of a pipeline: they
    # compare nothing
    return {key: group for key, group in groups.items() if group.last and (group.entries or not recorded)}


def _nothing_recorded(group: _Group, dumps: Mapping[int, Event]) -> None:
    """A member whose complete dump has nothing of this group never entered its first collective."""
    expected = set(dumps) if group.key == "default_pg" else group.members & set(dumps)
    for rank in expected - set(group.last):
        if dumps[rank].fields.get("whole"):
            group.last[rank] = 0


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _rows(value: object) -> tuple[tuple[str, int, str, str], ...]:
    return value if isinstance(value, tuple) else ()


def _differing(group: _Group) -> Reading | None:
    """The same number is another operation, size or type. What completed and was followed by agreement
    was meant so."""
    first = None
    for number in sorted(group.entries):
        here = group.entries[number]
        if len(here) < 2:
            continue
        if len(set(here.values())) < 2:
            first = None
            continue
        first = number if first is None else first
        if any(number in group.pending[rank] for rank in here):
            break
    if first is None:
        return None
    same: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank, operation in group.entries[first].items():
        same[operation].append(rank)
    told = "; ".join(
        f"{ranks_text(ranks)} in {name} {detail}".rstrip() for (name, detail), ranks in sorted(same.items())
    )
    return Reading(
        "recorder-collectives-differ",
        _odd(list(same.values())),
        _all(group),
        f"collective {first} of group {group.key} differs: {told}",
        key=group.key,
        number=first,
    )


def _odd(parts: list[list[int]]) -> tuple[int, ...]:
    """The ranks outside the majority; all of them where there is none."""
    ranks = [r for part in parts for r in part]
    largest = max(parts, key=len)
    return tuple(sorted(set(ranks) - set(largest) if 2 * len(largest) > len(ranks) else ranks))


def _ahead(group: _Group, busy: set[int]) -> Reading | None:
    """A few ranks wait in a collective that most ranks of the group, though they wait for nothing, never
    enqueued: it is one too many."""
    number = group.stuck
    high = sorted(r for r, n in group.last.items() if n >= number)
    low = sorted(set(group.last) - set(high))
    if not busy.intersection(high) or busy.intersection(low) or 2 * len(high) >= len(group.last):
        return None
    because = f"only {ranks_text(high)} enqueued {group.name(number)}, the others stopped before it"
    return _reading("recorder-collectives-differ", high, group, because)


def _behind(groups: list[_Group]) -> Reading | None:
    """Ranks that never enqueued what the others wait in. One that itself waits in another group is a
    victim of that one's."""
    found = []
    for group in groups:
        low = {r for r, n in group.last.items() if n < group.stuck}
        certain = any(group.pending.values())
        if low and (certain or 2 * len(low) < len(group.last) or len(group.last) == 2):
            waiting = {r for r in low for other in groups if other is not group and other.pending.get(r)}
            found.append((group, low - waiting, low & waiting))
    found.sort(key=lambda f: (not f[1], len(f[2])))
    if not found:
        return None
    group, free, waiting = found[0]
    odd = sorted(free or waiting)
    others = ranks_text(set(group.last) - free - waiting)
    because = f"{ranks_text(odd)} last enqueued collective {group.last[odd[0]]}, {others} {group.name(group.stuck)}"
    return _reading("recorder-rank-behind", odd, group, because)


def _empty(dumps: Mapping[int, Event], busy: set[int]) -> Reading | None:
    """Most ranks wait, and a few recorded nothing that still runs: these stand outside of any
    collective. A rank that is stuck so that it cannot even write its entries (the interpreter's lock, a
    device that hangs) leaves such a dump."""
    empty = sorted(r for r, e in dumps.items() if not _rows(e.fields.get("entries")) and r not in busy)
    if not empty or 2 * len(busy) <= len(dumps) or len(empty) + len(busy) < len(dumps):
        return None
    because = f"the dumps of {ranks_text(empty)} contain no collective; {ranks_text(busy)} wait in one"
    return Reading("recorder-rank-behind", tuple(empty), tuple(sorted(dumps)), because)


def _left_in(group: _Group) -> Reading | None:
    """A few ranks still wait in a collective from which the others went on to later ones."""
    number = group.stuck
    inside = sorted(r for r, numbers in group.pending.items() if number in numbers)
    gone = [r for r, n in group.last.items() if r not in inside and n > number]
    if not inside or 2 * len(inside) > len(group.last) or len(inside) + len(gone) < len(group.last):
        return None
    because = f"{ranks_text(inside)} {'was' if len(inside) == 1 else 'were'} still in {group.name(number)}; the others went on"
    return _reading("recorder-rank-behind", inside, group, because)


def _not_started(group: _Group) -> Reading | None:
    """All enqueued it, on some GPUs it did not start: these are still busy with what was queued before
    (NCCL only)."""
    number = group.stuck
    if not all(number in group.pending[r] for r in group.last) or set(group.started) != set(group.last):
        return None
    idle = sorted(r for r, n in group.started.items() if n < number)
    if not idle or 2 * len(idle) >= max(3, len(group.last)):
        return None
    because = f"{group.name(number)} started on all ranks except {ranks_text(idle)}"
    return _reading("recorder-rank-behind", idle, group, because)


def _absent(group: _Group) -> Reading | None:
    """All that left a dump wait in one collective; a few ranks of the group left none. A file may also
    just not have been kept."""
    number = group.stuck
    missing = sorted(group.members - set(group.last))
    if (
        not missing
        or 2 * len(missing) >= len(group.members)
        or not all(min(group.pending[r], default=0) == number for r in group.last)
    ):
        return None
    because = f"{ranks_text(group.last)} wait in {group.name(number)}, {ranks_text(missing)} left no dump"
    return _reading("recorder-rank-behind", missing, group, because)._replace(sure=False)


def _reading(pattern: str, odd: Sequence[int], group: _Group, because: str) -> Reading:
    """What is said of the collective in which the ranks of a group are stuck."""
    return Reading(pattern, tuple(odd), _all(group), because, key=group.key, number=group.stuck)


def _all(group: _Group) -> tuple[int, ...]:
    return tuple(sorted(group.last))
