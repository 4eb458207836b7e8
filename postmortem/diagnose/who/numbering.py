"""Files side by side that are numbered from 0 -> the rank of each: `go.0.log`, `go.1.log`, `go.1.log.2.gz`.

One number proves nothing: runs, nodes, attempts and epochs have numbers, too. Those of ranks are complete, one file
each, and nothing in the files contradicts them. The word before the number, the size of the job, or a line of one of
the files shows that ranks are numbered.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from postmortem.model import Event, Source
from postmortem.model.digits import whole
from postmortem.system import forms

_NUMBER = re.compile(r"(?<!\d)\d{1,5}(?!\d)")
_WORD = re.compile(r"([A-Za-z]{0,40})[ =:#._-]{0,2}$")
_ALONE = re.compile(r"\W*[A-Za-z]+[ =:#._-]{0,2}\d{1,5}\b")  # no pod's name, which has its job's in front
_WORDS = forms.regexes("diagnose/numbering")
_KINDS = frozenset(("console", "json-lines"))
OWN_LINES = frozenset(("identity", "line", "progress", "finished", "exception"))
MOST_NAMES = 65536

Votes = Mapping[str, Counter[int]]


class _Group(NamedTuple):
    """Files whose names differ in one number."""

    word: str  # before the number
    numbers: dict[str, int]  # by stem
    behind_master: bool = False  # workers of a PyTorchJob

    def counts(self, what: str) -> bool:
        """Whether the word before the number is one of these (numbering.yaml)."""
        return _WORDS[what].fullmatch(self.word) is not None


def numbered(
    sources: Iterable[Source],
    stems: Mapping[str, str],
    votes: Votes,
    world: int | None,
    joined: Set[str] = frozenset(),
    dumps: Set[str] = frozenset(),
) -> dict[str, int]:
    """The rank of each stem that its number names. `votes`: the ranks that the lines of a stem name as their own;
    `joined`: stems that complain of a peer, so they are one job's, whatever the word; `dumps`: stems that hold the
    stacks of one process: so are they, and the logs that are numbered like them."""
    taken = [g for g in _groups(sorted(dumps)) if _fits(g, votes, world, joined=True)]
    alike = [set(g.numbers.values()) for g in taken]
    groups = _groups(sorted({stems[s.path] for s in sources if s.kind in _KINDS}))
    of_a_job = [bool(joined & g.numbers.keys()) or set(g.numbers.values()) in alike for g in groups]
    found: dict[str, int] = {}
    for group in [g for g, its in zip(groups, of_a_job, strict=True) if _fits(g, votes, world, its)] + taken:
        if any(found.get(name, number) != number for name, number in group.numbers.items()):
            return {}
        found.update(group.numbers)
    return found


def of_names(votes: Votes, world: int | None, ranks: Set[int] = frozenset()) -> dict[str, int]:
    """The rank of each writer of a common log that its number names: there must be one for each rank of the job, or
    one that states it, for pods of several ranks are numbered, too. `ranks` are those of other lines."""
    found: dict[str, int] = {}
    for group in _groups(sorted(votes)):
        size = world
        only = False
        if world is None and ranks <= set(group.numbers.values()):
            size = len(group.numbers) if len(ranks) > 1 else None  # they write here under both names
            only = group.behind_master or (group.counts("parts") and all(map(_ALONE.match, group.numbers)))
        known = only or size == len(group.numbers) or group.counts("ranks") or any(votes[n] for n in group.numbers)
        if known and _fits(group, votes, size):
            found.update(group.numbers)
    return found


def _groups(names: Sequence[str]) -> list[_Group]:
    """The groups of names that differ in one number. Behind the master of a PyTorchJob its workers are counted from 0
    again: worker 0 is rank 1."""
    found: dict[tuple[str, int], _Group] = {}
    for name in names[:MOST_NAMES]:
        form = _NUMBER.sub("#", name)
        for i, m in enumerate(_NUMBER.finditer(name)):
            word = _WORD.search(name, 0, m.start())
            group = found.setdefault((form, i), _Group(word[1].lower() if word else "", {}))
            group.numbers[name] = whole(m[0])
    for (form, i), group in list(found.items()):
        name = form.replace("worker", "master")
        master = (found.get((name, i)) or found.get((name.rpartition("/")[2], i))) if group.word == "worker" else None
        if master is not None:
            numbers = {name: n + 1 for name, n in group.numbers.items()} | master.numbers
            found[form, i] = _Group(group.word, numbers, behind_master=True)
    return [group for group in found.values() if len(group.numbers) > 1]


def _fits(group: _Group, votes: Votes, world: int | None, joined: bool = False) -> bool:
    """Whether these numbers may be ranks, and something shows that they are."""
    numbers = set(group.numbers.values())
    voted = [(set(votes[name]), n) for name, n in group.numbers.items() if votes.get(name)]
    if any(seen != {n} for seen, n in voted):
        return False
    if len(numbers) < len(group.numbers) or (world is not None and max(numbers) >= world):
        return False
    whole = numbers == set(range(len(numbers)))
    if voted:
        return whole or len(voted) > 1
    return whole and not group.counts("others") and _of_a_job(group, world, joined)


def _of_a_job(group: _Group, world: int | None, joined: bool) -> bool:
    """Whether the word before the numbers, or the size of the job, shows that ranks are numbered."""
    if world is None and (joined or group.counts("parts")):
        return True
    return world == len(group.numbers) or group.counts("ranks")


def votes_of(events: Iterable[Event], stems: Mapping[str, str]) -> dict[str, Counter[int]]:
    """The ranks that the lines of each stem name as their own: by prefix, introduction, `worker 19 of 32 up`."""
    votes: dict[str, Counter[int]] = defaultdict(Counter)
    for e in events:
        name = stems.get(e.where.source)
        if name is not None and e.kind in OWN_LINES and not (e.fields.get("reported_by") or e.fields.get("quoted")):
            rank = e.rank if e.rank is not None else e.fields.get("stated_worker")
            if rank is not None:
                votes[name][rank] += 1
    return votes
