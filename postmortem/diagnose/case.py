"""One life of one job, ready to be reasoned about: its events by kind, file and rank, how each rank ended,
and when it lived.

In: the aligned events of one attempt, copies merged. Out: `Case`, which the rules and the derivations only
read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from postmortem.diagnose import endings
from postmortem.diagnose.claims import OTHERS
from postmortem.diagnose.endings import Ending
from postmortem.diagnose.identity import Registry
from postmortem.diagnose.wording import BROAD
from postmortem.library import Library
from postmortem.model import Event, Source, Where
from postmortem.model.digits import number

SPOKEN = ("console", "json-lines", "ray")  # kinds of source in which ranks speak
T = TypeVar("T")


@dataclass
class Case:
    """What is known about one attempt. `notes` are sentences on how the verdict came about, each once."""

    events: Sequence[Event]
    registry: Registry
    library: Library
    sources: Mapping[str, Source]
    attempt: int | None = None
    notes: dict[str, None] = field(default_factory=dict)

    def note(self, text: str) -> None:
        self.notes[text] = None

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────────

    def of_kind(self, *kinds: str) -> list[Event]:
        return list(self.by_kind[kinds[0]]) if len(kinds) == 1 else [e for e in self.events if e.kind in kinds]

    def seen(self, *patterns: str) -> list[Event]:
        """Events of these patterns."""
        return [e for p in patterns for e in self.by_pattern.get(p, ())]

    def telling(self, word: str) -> list[Event]:
        """Events of all patterns that tell this (see TELLS in vocabulary.py), in their order."""
        return list(self.by_word.get(word, ()))

    @cached_property
    def by_word(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = defaultdict(list)
        for e in self.by_kind["pattern"]:
            pattern = self.library.get(e.pattern)
            for word in pattern.tells if pattern else ():
                found[word].append(e)
        return found

    @cached_property
    def by_kind(self) -> dict[str, list[Event]]:
        return _grouped(self.events, lambda e: e.kind)

    @cached_property
    def by_pattern(self) -> dict[str, list[Event]]:
        return _grouped(self.by_kind["pattern"], lambda e: e.pattern or "")

    @cached_property
    def kernel_on(self) -> dict[int, list[Event]]:
        """What the kernel says of each process."""
        found: dict[int, list[Event]] = defaultdict(list)
        for e in self.by_kind["pattern"]:
            if e.speaker == "kernel" and (pid := number(e.fields.get("pid"))) is not None:
                found[pid].append(e)
        return found

    @cached_property
    def by_source(self) -> dict[str, list[Event]]:
        return _grouped(self.events, lambda e: e.where.source)

    @cached_property
    def by_rank(self) -> dict[int, list[Event]]:
        found: dict[int, list[Event]] = defaultdict(list)
        for e in self.events:
            rank = self.rank_of(e)
            if rank is not None and e.kind != "pid":  # a launcher introduces it: it has not spoken itself
                found[rank].append(e)
        return found

    def rank_of(self, e: Event) -> int | None:
        """The rank that an event speaks for, where it is known."""
        return self.registry.rank_of(e)

    def ranks_of(self, events: Iterable[Event]) -> set[int]:
        """The ranks that events speak for."""
        return {rank for e in events if (rank := self.rank_of(e)) is not None}

    @cached_property
    def known_benign(self) -> set[Where]:
        """Lines of which a pattern knows that they tell of no trouble."""
        found = set()
        for e in self.by_kind["pattern"]:
            pattern = self.library.get(e.pattern)
            if pattern is not None and pattern.role == "context":
                found.add(e.where)
        return found

    # ── ends ────────────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def finished(self) -> set[int]:
        """Ranks that said goodbye."""
        return self.ranks_of(self.of_kind("finished"))

    @property
    def all_finished(self) -> bool:
        """Whether every rank of the job is known to have said goodbye."""
        return bool(self.finished) and self.finished >= set(self.registry.ranks)

    @cached_property
    def ends(self) -> dict[int, Ending]:
        """How the launcher saw each rank end: by its failure block's entry, else by its one-line report."""
        found: dict[int, Ending] = {}
        for e in self.of_kind("exit"):
            code = number(e.fields.get("exitcode"))
            if e.rank is not None and code is not None and not self._lived_on(e):
                found.setdefault(e.rank, endings.of(code, e))
        for e in self.telling("exit"):
            pid, code = number(e.fields.get("pid")), number(e.fields.get("exitcode"))
            rank = self.registry.rank_of_pid(pid, e.host)
            rank = self.rank_of(e) if rank is None else rank
            if rank is not None and code is not None and rank not in found:
                told = e._replace(kind="exit", rank=rank, pid=pid, fields=dict(e.fields) | {"exitcode": code})
                found[rank] = endings.of(code, told)
        return found

    def _lived_on(self, e: Event) -> bool:
        """Whether a rank speaks below the line in which a script tells of its end: that was another life. A
        script that begins each line with the rank's number may only tell it again."""
        if e.fields.get("told_by") != "script" or e.rank is None:
            return False
        here = [x for x in self.by_rank[e.rank] if x.where.source == e.where.source]
        again = {x.where.line for x in here if x.kind == "exit"}
        own = (x.where.line for x in here if x.kind in ("line", "progress", "finished"))
        return any(line is not None and line > (e.where.line or 0) and line not in again for line in own)

    def ended(self, *kinds: str) -> list[int]:
        """Ranks whose end the launcher saw, of these kinds (see `endings.Ending`)."""
        return [rank for rank, end in self.ends.items() if end.kind in kinds]

    def end_of(self, rank: int | None) -> Ending | None:
        return None if rank is None else self.ends.get(rank)

    def unharmed(self, rank: int | None) -> bool:
        """Whether nobody tells of a bad end of this rank."""
        end = self.end_of(rank)
        return end is None or end.kind == "clean"

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def start(self) -> float | None:
        """The first moment at which this job is known to have lived."""
        return self._life[0]

    @property
    def end(self) -> float | None:
        return self._life[1]

    @cached_property
    def _life(self) -> tuple[float | None, float | None]:
        told = (moment(e) for e in self.events if e.speaker not in OTHERS)
        own = [at for at in told if at is not None]
        return min(own, default=None), max(own, default=None)

    # ── who was handed in ───────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def only_kernel(self) -> bool:
        """Whether nothing but the kernel's lines was handed in: then somebody chose them."""
        return all(e.speaker == "kernel" for e in self.events)

    @property
    def has_kernel_log(self) -> bool:
        return any(s.kind == "kernel" for s in self.sources.values())

    def at_hand(self, what: str) -> bool:
        """Whether evidence of a kind (AT_HAND in vocabulary.py) is among what was handed in."""
        if what == "kernel-log":
            return self.has_kernel_log
        return bool(self.of_kind("stack" if what == "stacks" else what))


def moment(e: Event) -> float | None:
    """When it was, on the job's clock; None where that is not known to half a minute."""
    return e.at if e.at_sigma < BROAD else None


def _grouped(events: Iterable[Event], key: Callable[[Event], T]) -> dict[T, list[Event]]:
    found: dict[T, list[Event]] = defaultdict(list)
    for e in events:
        found[key(e)].append(e)
    return found
