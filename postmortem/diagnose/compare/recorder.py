"""Flight-recorder dumps side by side: the ranks that are not in the collective in which the others wait.

    rank 0: last enqueued collective 19 of default_pg (gloo:all_reduce [] Float), 18 completed
    rank 2: last enqueued collective 18 of default_pg (gloo:all_reduce [26122] Float), 18 completed

Numbers that several ranks have are compared; where the ring buffer has overwritten the start, or a rank left no dump,
the rest is compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from postmortem.diagnose.compare.rank_rows import odd_one_out
from postmortem.diagnose.wording import ranks_text
from postmortem.model import Event
from postmortem.model.grouped import grouped

Operation = tuple[str, str]  # name, sizes and types
Numbers = dict[int, set[int]]  # by rank


class Reading(NamedTuple):
    """The odd ranks. `sure` is False where a missing dump is the only evidence."""

    pattern: str
    odd: tuple[int, ...]
    group: tuple[int, ...]  # all ranks with a dump
    because: str
    sure: bool = True
    key: str | None = None  # process group and number of the collective that it is about
    number: int | None = None


class Stuck(NamedTuple):
    """The collective that a hang is about: the ranks that had enqueued it, and those known not to have."""

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
    members: set[int] = field(default_factory=set)  # by pg_config; empty where the dumps lack it
    entries: dict[int, dict[int, Operation]] = field(default_factory=lambda: defaultdict(dict))  # by number and rank
    last: dict[int, int] = field(default_factory=dict)  # rank -> number of the last that it enqueued
    pending: Numbers = field(default_factory=lambda: defaultdict(set))  # those that did not complete
    started: dict[int, int] = field(default_factory=dict)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(self.last))

    @property
    def stuck(self) -> int:
        """The first collective in which a rank waits; without one the last that any rank enqueued, since gloo retires
        collectives that failed."""
        waits = [min(numbers) for numbers in self.pending.values() if numbers]
        return min(waits) if waits else max(self.last.values())

    def name(self, number: int) -> str:
        """`collective 19 of group default_pg (gloo:all_reduce [] Float)`"""
        found = self.entries.get(number)
        operation = " ".join(next(iter(found.values()))).strip() if found else "not recorded"
        return f"collective {number} of group {self.key} ({operation})"

    def reading(self, pattern: str, odd: Iterable[int], because: str, sure: bool = True) -> Reading:
        """A statement about the collective in which the ranks are stuck."""
        return Reading(pattern, tuple(odd), self.ranks, because, sure, self.key, self.stuck)


def stuck_in(dumps: Mapping[int, Event]) -> Stuck | None:
    """The collective that the comparison is about; else the first in which most ranks wait."""
    groups, reading = _groups(dumps), read(dumps)
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
    missing = tuple(r for r in group.ranks if group.last[r] < number)
    entered = tuple(r for r in group.ranks if r not in missing and here.get(r, usual) == usual)
    return Stuck(group.key, number, *usual, tuple(sorted(group.members)), entered, missing)


def completed(dump: Event, key: str) -> int | None:
    """The last collective of a group that this rank had completed."""
    counts = dump.fields.get("status", {}).get(key)
    return counts["completed"] if counts else None


def read(dumps: Mapping[int, Event]) -> Reading | None:
    """Compare the dumps of several ranks."""
    return next(filter(None, _readings(list(_groups(dumps).values()), dumps)), None)


def _readings(groups: list[_Group], dumps: Mapping[int, Event]) -> Iterator[Reading | None]:
    """Best evidence first: a difference in the program, then a rank that is late, last one without a dump."""
    busy = {rank for group in groups for rank, numbers in group.pending.items() if numbers}
    yield from map(_differing, groups)
    yield from (_ahead(group, busy) for group in groups)
    yield _behind(groups)
    yield _empty(dumps, busy)
    for compare in (_left_in, _not_started, _absent):
        yield from map(compare, groups)


# ── dumps to groups ─────────────────────────────────────────────────────────────────────────────────────────


def _groups(dumps: Mapping[int, Event]) -> dict[str, _Group]:
    found: dict[str, _Group] = {}
    for rank, e in sorted(dumps.items()):
        for key, config in e.fields.get("groups", {}).items():
            found.setdefault(key, _Group(key)).members.update(config["ranks"])
        for key, counts in e.fields.get("status", {}).items():
            group = found.setdefault(key, _Group(key))
            for n, numbers in ((counts["enqueued"], group.last), (counts["started"], group.started)):
                if n is not None:
                    numbers[rank] = n
        for key, number, name, detail in e.fields.get("entries", ()):
            found.setdefault(key, _Group(key)).entries[number][rank] = (name, detail)
        for key, number, _name, _detail in e.fields.get("pending", ()):
            found.setdefault(key, _Group(key)).pending[rank].add(number)
    for group in found.values():
        _add_absent_members(group, dumps)
    recorded = any(group.entries for group in found.values())
    # the numbers of a group that only sends and receives differ between the stages of a pipeline
    return {key: g for key, g in sorted(found.items()) if g.last and (g.entries or not recorded)}


def _add_absent_members(group: _Group, dumps: Mapping[int, Event]) -> None:
    """A member with a complete dump without this group never entered its first collective."""
    expected = set(dumps) if group.key == "default_pg" else group.members & set(dumps)
    for rank in expected - set(group.last):
        if dumps[rank].fields.get("whole"):
            group.last[rank] = 0


# ── comparisons ─────────────────────────────────────────────────────────────────────────────────────────────


def _differing(group: _Group) -> Reading | None:
    """The same number is another operation, size or type. A difference that completed, with agreement after it, was
    intended."""
    first = None
    for number, here in sorted(group.entries.items()):
        if len(here) > 1 and len(set(here.values())) < 2:
            first = None
        elif len(here) > 1:
            first = number if first is None else first
            if any(number in group.pending[rank] for rank in here):
                break
    if first is None:
        return None
    same = grouped((operation, rank) for rank, operation in group.entries[first].items())
    places = "; ".join(f"{ranks_text(same[op])} in {' '.join(op)}".rstrip() for op in sorted(same))
    odd, because = sorted(odd_one_out(same)[0]), f"collective {first} of group {group.key} differs: {places}"
    return group.reading("recorder-collectives-differ", odd, because)._replace(number=first)


def _ahead(group: _Group, busy: set[int]) -> Reading | None:
    """A few ranks wait in a collective that most ranks, which wait for nothing, never enqueued: it is one too many."""
    number = group.stuck
    high = [r for r in group.ranks if group.last[r] >= number]
    low = set(group.ranks) - set(high)
    if not busy.intersection(high) or busy & low or 2 * len(high) >= len(group.last):
        return None
    because = f"only {ranks_text(high)} enqueued {group.name(number)}, the others stopped before it"
    return group.reading("recorder-collectives-differ", high, because)


def _behind(groups: list[_Group]) -> Reading | None:
    """Ranks that never enqueued the collective in which the others wait. A rank that itself waits in another group is
    a victim of that group's hang."""
    found = []
    for group in groups:
        low = {r for r, n in group.last.items() if n < group.stuck}
        certain = any(group.pending.values()) or 2 * len(low) < len(group.last) or len(group.last) == 2
        if low and certain:
            waiting = {r for r in low for other in groups if other is not group and other.pending.get(r)}
            found.append((group, low - waiting, low & waiting))
    if not found:
        return None
    group, free, waiting = min(found, key=lambda f: (not f[1], len(f[2])))
    odd = sorted(free or waiting)
    others = ranks_text(set(group.last) - free - waiting)
    because = f"{ranks_text(odd)} last enqueued collective {group.last[odd[0]]}, {others} {group.name(group.stuck)}"
    return group.reading("recorder-rank-behind", odd, because)


def _empty(dumps: Mapping[int, Event], busy: set[int]) -> Reading | None:
    """Most ranks wait, and the dumps of all others are empty: these hang outside of any collective, or cannot even
    write entries (the interpreter's lock, a device that hangs)."""
    empty = sorted(r for r, e in dumps.items() if not e.fields.get("entries") and r not in busy)
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
    verb = "was" if len(inside) == 1 else "were"
    others = ranks_text(gone) if len(gone) < 4 else "the others"
    wait = f"{verb} still in collective {number} of group {group.key}"
    because = f"{ranks_text(inside)}, unlike {others}, {wait}"
    return group.reading("recorder-rank-behind", inside, because)


def _not_started(group: _Group) -> Reading | None:
    """All enqueued it, and on some GPUs it did not start: these are busy with earlier work (NCCL only)."""
    number = group.stuck
    if not all(number in group.pending[r] for r in group.last) or set(group.started) != set(group.last):
        return None
    idle = sorted(r for r, n in group.started.items() if n < number)
    if not idle or 2 * len(idle) >= max(3, len(group.last)):
        return None
    because = f"{group.name(number)} started on all ranks except {ranks_text(idle)}"
    return group.reading("recorder-rank-behind", idle, because)


def _absent(group: _Group) -> Reading | None:
    """All ranks with a dump wait in one collective, and a few left none; such a file may just be missing here."""
    number = group.stuck
    missing = sorted(group.members - set(group.last))
    together = all(min(group.pending[r], default=0) == number for r in group.last)
    if not missing or 2 * len(missing) >= len(group.members) or not together:
        return None
    because = f"{ranks_text(group.last)} wait in {group.name(number)}, {ranks_text(missing)} left no dump"
    return group.reading("rank-never-arrived", missing, because, sure=False)
