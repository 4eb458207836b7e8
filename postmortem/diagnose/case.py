"""One life of one job, ready to be reasoned about: its events attributed to ranks, copies merged, and what each guard removed.

In: the aligned events of one attempt. Out: `Case`: observations by rank, in the order of their files and clocks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from postmortem.diagnose.identity import Registry
from postmortem.library import Library
from postmortem.model import Event, Finding, Pattern, Role, Source

_NOISE = re.compile(r"0x[0-9a-f]+|\d+")
_PREFIX = re.compile(
    r"(?:\s*(?:\[[^\]]{1,60}\]:?|\(\w+ pid=[^)]{1,60}\)|\d{1,5}:(?=\s)|<\d{1,3}>|kern +:\w+ *:"
    r"|\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)?|[A-Z][a-z]{2} [ \d]\d [\d:.]{8,15}|[\w.-]{1,64} kernel:)\s*)+"
)
# who speaks beside the job: not all that they say is about it
OTHERS = (
    "kernel",
    "scheduler",
    "kubernetes",
    "gpu-report",
    "process-table",
    "cgroup",
    "core-note",
    "environment",
    "stack",
)
BROAD = 30.0  # seconds: what is known less exactly has no time
LONE = 40  # lines after an exception's decisive line that may still belong to its message


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

    @property
    def trace(self) -> list[str]:
        return list(self.notes)

    def of_kind(self, *kinds: str) -> list[Event]:
        return (
            list(self.by_kind[kinds[0]]) if len(kinds) == 1 else [e for e in self.events if e.kind in kinds]
        )

    @cached_property
    def by_kind(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = defaultdict(list)
        for e in self.events:
            found[e.kind].append(e)
        return found

    def seen(self, *patterns: str) -> list[Event]:
        """Events of these patterns."""
        return [e for p in patterns for e in self.by_pattern.get(p, ())]

    @cached_property
    def by_pattern(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = defaultdict(list)
        for e in self.events:
            if e.kind == "pattern" and e.pattern:
                found[e.pattern].append(e)
        return found

    @cached_property
    def by_source(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = defaultdict(list)
        for e in self.events:
            found[e.where.source].append(e)
        return found

    @cached_property
    def by_rank(self) -> dict[int, list[Event]]:
        found: dict[int, list[Event]] = defaultdict(list)
        for e in self.events:
            rank = self.registry.rank_of(e)
            if rank is not None:
                found[rank].append(e)
        return found

    @cached_property
    def finished(self) -> set[int]:
        """Ranks that said goodbye, and no line of theirs after it is a failure."""
        return {r for e in self.of_kind("finished") if (r := self.registry.rank_of(e)) is not None}

    @cached_property
    def exits(self) -> dict[int, Event]:
        """The exit that the launcher reported for each rank: the block's entry, else its one-line report."""
        found: dict[int, Event] = {}
        for e in self.of_kind("exit"):
            if e.rank is not None:
                found.setdefault(e.rank, e)
        for e in self.seen("launcher-exit-code", "launcher-failure-block-exit"):
            rank = self.registry.rank_of_pid(_int(e.fields.get("pid")), e.host)
            if rank is None:
                rank = self.registry.rank_of(e)
            code = _int(e.fields.get("exitcode"))
            if rank is not None and code is not None and rank not in found:
                pid = _int(e.fields.get("pid"))  # the line's own prefix names the agent's pid
                found[rank] = e._replace(
                    kind="exit", rank=rank, pid=pid, fields=dict(e.fields) | {"exitcode": code}
                )
        return found

    def exit_code(self, rank: int) -> int | None:
        e = self.exits.get(rank)
        return _int(e.fields.get("exitcode")) if e else None

    @property
    def start(self) -> float | None:
        """The first moment at which this job is known to have lived."""
        return self._life[0]

    @property
    def end(self) -> float | None:
        return self._life[1]

    @cached_property
    def _life(self) -> tuple[float | None, float | None]:
        own = (e for e in self.events if e.source_kind not in OTHERS and not e.fields.get("kernel"))
        moments = [e.at for e in own if e.at is not None and e.at_sigma < BROAD]
        return min(moments, default=None), max(moments, default=None)


def _int(value: object) -> int | None:
    if isinstance(value, int):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,12}", value):
        return int(value)
    return None


def as_int(value: object) -> int | None:
    """A captured number, or None."""
    return _int(value)


@lru_cache(maxsize=1 << 17)
def gist(text: str) -> str:
    """A line without prefixes and blanks: what the copies of one event share, however they were carried."""
    prefix = _PREFIX.match(text)
    return " ".join((text[prefix.end() :] if prefix else text).split())[:300]


def shape(text: str) -> str:
    """A line without its numbers: the same failure on another rank or sample."""
    return _NOISE.sub("N", gist(text))


def address_quality(e: Event, sources: Mapping[str, Source]) -> tuple[int, int, str, int]:
    """Order of addresses for one event's copies: a rank's own file, consoles, the launcher's words, documents without lines."""
    source = sources.get(e.where.source)
    own = source is not None and (source.rank is not None or source.local_rank is not None)
    if e.where.line is None:
        quality = 3
    elif e.fields.get("reported_by") or e.fields.get("block"):
        quality = 2
    else:
        quality = 0 if own else 1
    plain = 0 if "dmesg_" not in e.where.source and "journal" not in e.where.source else 1
    return (quality, plain, e.where.source, e.where.line or 0)


def merge_copies(
    events: Sequence[Event], case_sources: Mapping[str, Source], registry: Registry
) -> list[Event]:
    """One event of several files (a tee, five formats of one dmesg) becomes one, at its best address, with its best time.

    Two events are copies if they say the same and come from different files. A line that stands twice in one file happened twice.
    """
    ranks = [e.rank if e.rank is not None else registry.rank_of(e) for e in events]
    home: dict[int | None, str] = {}
    # all that is known of a rank mostly stands in one file: then there is nothing to merge
    several = {
        rank
        for rank, e in zip(ranks, events, strict=True)
        if home.setdefault(rank, e.where.source) != e.where.source or e.fields.get("reported_by")
    }
    out = [e for rank, e in zip(ranks, events, strict=True) if rank not in several]
    shared = [(rank, e) for rank, e in zip(ranks, events, strict=True) if rank in several] if several else []
    out += [e for group in _alike(shared) for e in _merged(group, case_sources)]
    by_source: dict[str, list[Event]] = defaultdict(list)
    for e in out:
        by_source[e.where.source].append(e)
    return [
        e for source in sorted(by_source) for e in sorted(by_source[source], key=lambda e: e.where.line or 0)
    ]


def _alike(ranked: Iterable[tuple[int | None, Event]]) -> Iterable[list[Event]]:
    """Events that say the same of the same rank in the same life."""
    groups: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    lives: dict[tuple[object, ...], set[int]] = defaultdict(set)
    keyed = [
        ((e.kind, e.pattern, gist(_copied_text(e)), rank, e.kind == "stack" and e.where), e)
        for rank, e in ranked
    ]
    for key, e in keyed:
        if e.attempt is not None:
            lives[key].add(e.attempt)
    for key, e in keyed:
        attempt = e.attempt if e.attempt is not None or len(lives[key]) != 1 else next(iter(lives[key]))
        groups[(*key, attempt)].append(e)
    return groups.values()


def _merged(group: list[Event], case_sources: Mapping[str, Source]) -> list[Event]:
    """The first of each file are one event, the second of each, and so on."""
    if len(group) == 1:
        return group
    per_source: dict[object, list[Event]] = defaultdict(list)
    for e in group:
        # a launcher log holds a rank's line twice, as tee and as quotation in its summary: that is one event
        per_source[(e.where.source, bool(e.fields.get("reported_by")))].append(e)
    rows = [sorted(copies, key=lambda e: e.where.line or 0) for copies in per_source.values()]
    out = []
    for i in range(max(map(len, rows))):
        copies = sorted(
            (row[i] for row in rows if i < len(row)), key=lambda e: address_quality(e, case_sources)
        )
        timed = [e for e in copies if e.at is not None]
        best = next(
            (e for e in copies if e.kind == "recorder" and e.fields.get("code")), copies[0]
        )  # JSON dumps have no frames
        if timed and (best.at is None or min(e.at_sigma for e in timed) < best.at_sigma):
            timing = min(timed, key=lambda e: e.at_sigma)
            best = best._replace(at=timing.at, at_sigma=timing.at_sigma)
        out.append(best)
    return out


def _copied_text(e: Event) -> str:
    return str(e.fields.get("line") or e.text)


@dataclass(frozen=True)
class Observation:
    """One pattern event with the entity it speaks of, before findings are grouped."""

    event: Event
    pattern: Pattern
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    role: Role = "context"
    because: str = ""


def finding(observations: Sequence[Observation], because: str = "") -> Finding:
    """Group observations of one pattern into a finding. The first event is the earliest where times tell, else the first in the file."""
    ordered = sorted(
        observations,
        key=lambda o: (o.event.at is None, o.event.at or 0.0, o.event.where.source, o.event.where.line or 0),
    )
    first = ordered[0]
    return Finding(
        pattern=first.pattern,
        role=first.role,
        events=tuple(o.event for o in ordered),
        ranks=tuple(sorted({r for o in ordered for r in o.ranks})),
        hosts=tuple(sorted({h for o in ordered for h in o.hosts})),
        gpus=tuple(sorted({g for o in ordered for g in o.gpus})),
        pids=tuple(sorted({p for o in ordered for p in o.pids})),
        attempt=first.event.attempt,
        because=because or first.because,
    )
