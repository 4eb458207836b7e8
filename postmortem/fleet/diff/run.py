"""A path -> one of the two runs: its document, and what was said in its logs where they are here."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postmortem.align import Timeline
from postmortem.analyze import Options, analyze_observed
from postmortem.diagnose import identity
from postmortem.diagnose.wording import iso
from postmortem.errors import PathMissing, UsageError
from postmortem.fleet.diff import settings
from postmortem.fleet.diff.settings import Told, Values
from postmortem.library import load
from postmortem.reading import Progress, distinct
from postmortem.reading.distinct import Pace, RunLines
from postmortem.replay import documents

DOCUMENT = 4096  # bytes of a file in which its schema or its page is known
LEAST = 6  # pairs of steps that make a pace
LONGEST_STEP = 86_400.0


@dataclass(frozen=True)
class Steps:
    """How long a step takes, in seconds: the median, and between what half of them lie."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Run:
    """One of the two. Without `heard`, its document is all that is known."""

    path: str
    document: Mapping[str, Any]
    heard: RunLines | None = None
    versions: Told = field(default_factory=dict)
    settings: Told = field(default_factory=dict)
    steps: Steps | None = None
    names: frozenset[str] = frozenset()
    context: frozenset[tuple[str, int | None]] = frozenset()  # lines of which a pattern knows that they are harmless
    times: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    timeline: Timeline | None = field(default=None, repr=False)
    secrets: Sequence[tuple[str, str, bool]] = field(default=(), repr=False)

    @property
    def outcome(self) -> str:
        return str(self.document["verdict"].get("outcome"))

    def time(self, source: str, line: int) -> float | None:
        """When a line was written: its own time, or that of the last line in front of it that has one."""
        known = self.times.get(source, ())
        place = bisect_right(known, (line, float("inf")))
        return known[place - 1][1] if place else None

    def moment(self, source: str, line: int) -> str | None:
        return iso(self.time(source, line))


def both(a: str, b: str, patterns: tuple[Path, ...], progress: Progress | None = None) -> tuple[Run, Run]:
    """Read two, each once. Raise PostmortemError, of either before any is read."""
    for path in (a, b):
        if path == "-":
            raise UsageError("standard input is not compared", "name a folder or a file")
        if not Path(path).exists() and "://" not in path:
            raise PathMissing(f"{path} does not exist", "name a folder of logs, an archive, or a document")
    return of(a, patterns, _named(progress, "A")), of(b, patterns, _named(progress, "B"))


def _named(progress: Progress | None, name: str) -> Progress | None:
    return None if progress is None else lambda done, total, what: progress(done, total, f"{name}: {what}")


def of(path: str, patterns: tuple[Path, ...] = (), progress: Progress | None = None) -> Run:
    """Read logs, or a document or page that `analyze` wrote. Raise PostmortemError."""
    if _is_document(Path(path)):
        document = documents.read(Path(path))
        return Run(path, document, versions=_stated(document, {}))
    return _of_logs(path, Options(patterns=patterns, progress=progress))


def _is_document(path: Path) -> bool:
    if path.suffix.lower() not in (".json", ".html", ".htm") or not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(DOCUMENT)
    return b"postmortem/incident/" in head or b'content="postmortem"' in head


def _of_logs(path: str, options: Options) -> Run:
    incident, reads = analyze_observed([path], options, distinct.LineObserver)
    if incident.interrupted:
        raise KeyboardInterrupt
    document = incident.document
    library = load(*options.patterns)
    events = [e for r in reads for e in r.events]
    registry = identity.build(events, [s for r in reads for s in r.sources], library)
    names = frozenset({*document["job"]["hosts"], *registry.host_of.values(), *(e.host for e in events if e.host)})
    heard = distinct.run_lines(reads, registry.rank_of, names)
    harmless = {
        (e.where.source, e.where.line)
        for e in events
        if e.pattern and (p := library.get(e.pattern)) is not None and p.role == "context"
    }
    times: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for e in incident.timeline.events:
        if e.at is not None and e.where.line is not None:
            times[e.where.source].append((e.where.line, e.at))
    return Run(
        path,
        document,
        heard,
        _stated(document, settings.versions(heard.once)),
        settings.settings(heard.once),
        pace(heard.paces),
        names,
        frozenset(harmless),
        {source: sorted(told) for source, told in times.items()},
        incident.timeline,
        incident.redactor.memory() if incident.redactor else (),
    )


def _stated(document: Mapping[str, Any], told: Told) -> Told:
    """The versions, and those that the document alone has."""
    job = document.get("job") or {}
    stated: dict[str, Values] = {n: {str(job[n]): {None}} for n in ("torch", "nccl") if job.get(n)}
    return {**stated, **told}


def pace(paces: Sequence[Pace]) -> Steps | None:
    """The time of a step, from pairs of lines of one writer."""
    by_writer: dict[object, list[tuple[int, float]]] = defaultdict(list)
    for told in paces:
        by_writer[told.writer].append((told.step, told.time))
    each = []
    for series in by_writer.values():
        series.sort(key=lambda pair: pair[1])
        for (step, time), (later, then) in zip(series, series[1:], strict=False):
            if later > step and 0 < then - time < LONGEST_STEP:
                each.append((then - time) / (later - step))
    if len(each) < LEAST:
        return None
    low, median, high = statistics.quantiles(each, n=4)
    return Steps(median, low, high)
