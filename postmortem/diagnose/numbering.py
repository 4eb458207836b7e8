"""Files side by side that are numbered from 0 -> whose rank each is: `go.0.log`, `go.1.log`, `go.1.log.2.gz`.

A number in one name says nothing: a run, a node, an attempt and an epoch have numbers too. Those of ranks
are all there, one file each, and nothing in the files says otherwise. That it is ranks that are numbered is
told by the word before the number, by the size of the job, or by one of the files in its own words.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from postmortem.model import Event, Source
from postmortem.model.digits import whole

_NUMBER = re.compile(r"(?<!\d)\d{1,5}(?!\d)")
_WORD = re.compile(r"([A-Za-z]*)[ =:#._-]{0,2}$")
_ALONE = re.compile(r"\W*[A-Za-z]+[ =:#._-]{0,2}\d{1,5}\b")  # no pod's name, which has its job's in front
_RANKS = frozenset(("r", "rk", "rank", "global", "proc", "process", "p"))
_PARTS = frozenset(
    ("worker", "w", "trainer", "task", "gpu", "t", "replica", "pe", "learner", "actor")
)  # of a node, too
_OTHERS = frozenset(
    (
        "attempt",
        "run",
        "try",
        "restart",
        "retry",
        "epoch",
        "step",
        "part",
        "chunk",
        "seed",
        "fold",
        "job",
        "node",
        "host",
    )
    + ("trial", "exp", "version", "v", "iter", "day", "stage", "shard")
)
_KINDS = frozenset(("console", "json-lines"))
MOST = 65536
NAMELESS = "writer"  # what the numbers of writers are called that no word stands beside (see parsers/envelope)

Votes = Mapping[str, Counter[int]]


class _Group(NamedTuple):
    """Files whose names differ in one number: which file has which, and the word before it."""

    word: str
    numbers: dict[str, int]  # by stem


def numbered(
    sources: Iterable[Source],
    stems: Mapping[str, str],
    votes: Votes,
    world: int | None,
    joined: Set[str] = frozenset(),
    dumps: Set[str] = frozenset(),
) -> dict[str, int]:
    """The rank of each stem that its number names. `votes` are what the lines of a stem say of their rank;
    `joined` the stems that complain of a peer: then they are one job's, whatever word stands there; `dumps`
    those that hold the stacks of one process: so are they, and the logs that are numbered like them."""
    names = {stems[s.path] for s in sources if s.kind in _KINDS}
    groups = _groups(sorted(names))
    taken = [g for g in _groups(sorted(dumps)) if _fits(g, votes, world, joined=True)]
    alike = [set(g.numbers.values()) for g in taken]
    of_a_job = [bool(joined & g.numbers.keys()) or set(g.numbers.values()) in alike for g in groups]
    fitting = [g for g, its in zip(groups, of_a_job, strict=True) if _fits(g, votes, world, its)] + taken
    found: dict[str, int] = {}
    for group in fitting:
        if any(found.get(name, number) != number for name, number in group.numbers.items()):
            return {}
        found.update(group.numbers)
    return found


def of_names(votes: Votes, world: int | None, ranks: Set[int] = frozenset()) -> dict[str, int]:
    """The rank of each writer of a common log that its number names: there must be one for each rank of
    the job, or one that says so, for pods of several ranks are numbered too. `ranks` are those that speak
    in other lines."""
    found: dict[str, int] = {}
    for group in _groups(sorted(votes)):
        same = len(ranks) > 1 and ranks <= set(group.numbers.values())  # they speak here under both names
        size = len(group.numbers) if world is None and same else world
        only = world is None and ranks <= set(group.numbers.values()) and _of_one_console(group)
        told = size == len(group.numbers) or group.word in _RANKS or any(votes[n] for n in group.numbers)
        told = told or only
        if told and _fits(group, votes, size):
            found.update(group.numbers)
    return found


def _of_one_console(group: _Group) -> bool:
    """Whether processes of one log are numbered, and no pods, whose names have their job's in front."""
    named = group.word in _PARTS or group.word == NAMELESS
    return named and all(map(_ALONE.match, group.numbers))


def _groups(names: Sequence[str]) -> list[_Group]:
    found: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    words: dict[tuple[str, int], str] = {}
    for name in names[:MOST]:
        form = _NUMBER.sub("#", name)
        for i, m in enumerate(_NUMBER.finditer(name)):
            found[form, i][name] = whole(m[0])
            word = _WORD.search(name, 0, m.start())
            words[form, i] = word[1].lower() if word else ""
    return [_Group(words[key], numbers) for key, numbers in found.items() if len(numbers) > 1]


def _fits(group: _Group, votes: Votes, world: int | None, joined: bool = False) -> bool:
    numbers = group.numbers
    agreed = 0
    for name, number in numbers.items():
        said = votes.get(name)
        if said:
            if set(said) != {number}:
                return False
            agreed += 1
    if len(set(numbers.values())) < len(numbers) or (world is not None and max(numbers.values()) >= world):
        return False
    whole = set(numbers.values()) == set(range(len(numbers)))
    if agreed:
        return whole or agreed > 1
    return whole and group.word not in _OTHERS and _of_a_job(group, world, joined)


def _of_a_job(group: _Group, world: int | None, joined: bool) -> bool:
    """Whether the word before the numbers, or the size of the job, says that ranks are numbered."""
    if world is None and (joined or group.word in _PARTS or group.word == NAMELESS):
        return True
    return world == len(group.numbers) or group.word in _RANKS


def votes_of(events: Iterable[Event], stems: Mapping[str, str]) -> dict[str, Counter[int]]:
    """What the lines of each stem say of their own rank: prefixes, introductions, `worker 19 of 32 up`."""
    votes: dict[str, Counter[int]] = defaultdict(Counter)
    for e in events:
        name = stems.get(e.where.source)
        if name is None or e.fields.get("reported_by") or e.fields.get("quoted"):
            continue
        said = e.rank if e.rank is not None else e.fields.get("said_worker")
        if isinstance(said, int) and e.kind in ("identity", "line", "progress", "finished", "exception"):
            votes[name][said] += 1
    return votes
