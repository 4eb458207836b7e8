"""Paths -> Incident: the pipeline in one place. collect, scan, parse, align, diagnose; the document leaves redacted.

    incident = analyze(["./logs"])
    incident.document["verdict"]["headline"]

One worker reads in this process. More read containers side by side, here or on a cluster (`pool`); the result does not depend
on their number, because results are put in the order of the paths, and how much of each is read depends on the paths alone.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from postmortem import collect, parsers, patterns, pool, scan
from postmortem.collect import Container
from postmortem.errors import NothingReadable, PatternError, UsageError
from postmortem.model import Event, Scanned, Skip, Source

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from postmortem.align import Timeline

Progress = Callable[[int, int, str], None]
LINES = 64_000  # ordinary lines that are read of all logs together, in equal shares; those with hits come on top
LINES_EACH = (12, 1000)  # the smallest and the largest share


@dataclass(frozen=True)
class Options:
    """What the caller may choose. Times are epoch seconds; `workers` 0 means: as many as pay off."""

    job: str | None = None
    since: float | None = None
    until: float | None = None
    patterns: tuple[Path, ...] = ()
    baseline: Path | None = None
    workers: int = 0
    redact: bool = True
    verbose: bool = False
    progress: Progress | None = None
    executor: Executor | None = None  # an engine of the caller's, in place of processes on this machine


@dataclass(frozen=True)
class Incident:
    """The incident document (schema postmortem/incident/1) and the timeline behind it."""

    document: dict[str, Any]
    timeline: Timeline = field(repr=False)
    interrupted: bool = False

    def _repr_html_(self) -> str:
        from postmortem import report

        return report.card(self.document)


@dataclass(frozen=True)
class Read:
    """What one container gave: small values only, so that they travel between processes."""

    sources: tuple[Source, ...]
    events: tuple[Event, ...]
    scanned: tuple[Scanned, ...]  # without hits and contents: what the ledger needs
    skips: tuple[Skip, ...] = ()


def analyze(paths: Sequence[str], options: Options = Options()) -> Incident:
    """Read everything under `paths` and diagnose it. Raises PathMissing, NothingReadable, PatternError."""
    library = patterns.load(*options.patterns)
    found = collect.collect(paths)
    if not found.containers and not found.skipped:
        raise NothingReadable(
            f"{', '.join(paths)}: nothing to read here", "give the folder that holds the job's logs, or the files themselves"
        )
    reads = _read_all(found.containers, options)
    interrupted = any(_INTERRUPTED in (s.reason for s in r.skips) for r in reads)
    sources = [s for r in reads for s in r.sources]
    readable = [s for s in sources if s.kind != "binary"]
    skips = [*found.skipped, *(s for r in reads for s in r.skips)]
    if interrupted and not readable:
        raise KeyboardInterrupt
    if not readable or not any(x.bytes for r in reads for x in r.scanned if x.source.kind != "binary"):
        raise NothingReadable(
            _nothing(paths, skips, sources), "give logs as text, .gz, .zst, .xz, .bz2, tar or zip; see `postmortem analyze --help`"
        )
    ledger = collect.build(found.containers, [x for r in reads for x in r.scanned], skips)
    events = [e for r in reads for e in r.events]
    usual = _usual(options.baseline, options)
    timeline, document = _diagnose(events, sources, library, ledger.to_json(), options, usual)
    incident = _redacted(document, timeline) if options.redact else Incident(document, timeline)
    return replace(incident, interrupted=interrupted)


def _diagnose(
    events: list[Event],
    sources: list[Source],
    library: patterns.Library,
    ledger: dict[str, object],
    options: Options,
    usual: frozenset[str],
) -> tuple[Timeline, dict[str, Any]]:
    from postmortem.align import Timeline, align
    from postmortem.diagnose import diagnose

    timeline = align(events)
    if options.since is not None or options.until is not None:
        lo, hi = options.since or float("-inf"), options.until or float("inf")
        kept = tuple(e for e in timeline.events if e.at is None or lo <= e.at <= hi)
        timeline = Timeline(kept, timeline.clocks)
    return timeline, diagnose(timeline, sources, library, ledger, options.job, usual)


def _usual(baseline: Path | None, options: Options) -> frozenset[str]:
    """Line shapes of a run that went well."""
    if baseline is None:
        return frozenset()
    from postmortem.diagnose import novelty

    reads = _read_all(collect.collect([str(baseline)]).containers, options)
    return novelty.shapes(e for r in reads for e in r.events)


def _redacted(document: dict[str, Any], timeline: Timeline) -> Incident:
    """Secrets out of everything that leaves, with the same marks in the document and in the timeline."""
    from postmortem.redact import Redactor

    redactor = Redactor()
    cleaned = cast(dict[str, Any], redactor.document(document))
    events = tuple(e._replace(text=redactor.text(e.text), context=(), fields={}) for e in timeline.events)
    return Incident(cleaned, replace(timeline, events=events))


def _nothing(paths: Sequence[str], skips: Sequence[Skip], sources: Sequence[Source]) -> str:
    named = ", ".join(str(p) for p in paths)
    if skips:
        first = skips[0]
        return f"{named}: no readable log ({first.path}: {first.reason}{'; ' + str(len(skips) - 1) + ' more' if len(skips) > 1 else ''})"
    return f"{named}: no readable log ({len(sources)} files, all empty or binary)"


class _Job(NamedTuple):
    """What a worker is given with each container."""

    container: Container
    extra: tuple[Path, ...]
    lines: int
    digest: str = ""  # of the patterns, where the worker may be another machine


_INTERRUPTED = "interrupted before it was read"


def _read_all(containers: Sequence[Container], options: Options) -> list[Read]:
    """Read all containers, in this process or side by side; the results in their order."""
    if not containers:
        return []
    sizes = [c.size for c in containers]
    workers = options.workers or pool.workers_for(sizes)
    low, high = LINES_EACH
    lines = min(high, max(low, LINES // len(containers)))
    far = options.executor is not None
    jobs = [_Job(c, options.patterns, lines, patterns.load(*options.patterns).digest if far else "") for c in containers]
    watch = _Watch(containers, options.progress)
    if not far and (workers == 1 or len(containers) == 1):
        return _read_here(jobs, watch)
    patterns.load(*options.patterns)  # a mistake in a pattern file is told here, and the workers find the library read
    with nullcontext(pool.elsewhere(options.executor)) if options.executor is not None else pool.local(min(workers, len(jobs))) as place:
        results = pool.run(jobs, sizes, _read_bundle, place, watch.read)
    return [_lost(c, r) if isinstance(r, pool.Failure) else r for c, r in zip(containers, results, strict=True)]


def _read_here(jobs: Sequence[_Job], watch: _Watch) -> list[Read]:
    reads: list[Read] = []
    try:
        for index, job in enumerate(jobs):
            reads.append(read(job.container, job.extra, job.lines))
            watch.read(index, True)
    except KeyboardInterrupt:
        reads += [_lost(job.container, pool.INTERRUPTED) for job in jobs[len(reads) :]]
    return reads


class _Watch:
    """Bytes done so far, told to the caller."""

    def __init__(self, containers: Sequence[Container], progress: Progress | None) -> None:
        self.containers, self.progress = containers, progress
        self.total, self.done = sum(c.size for c in containers), 0

    def read(self, index: int, _well: bool) -> None:
        self.done += self.containers[index].size
        if self.progress:
            self.progress(self.done, self.total, self.containers[index].label)


def _lost(container: Container, failure: pool.Failure) -> Read:
    """The ledger's row of a container whose worker came to grief."""
    reason = _INTERRUPTED if failure is pool.INTERRUPTED else f"the worker that read it {failure.reason}"
    return Read((), (), (), (Skip(container.label, container.size, reason),))


def _read_bundle(jobs: tuple[_Job, ...]) -> list[Read]:
    """A worker's task."""
    for job in jobs if jobs[0].digest else ():
        if not job.container.path.exists():
            raise UsageError(
                f"{platform.node()}, a worker, cannot see {job.container.path}", "mount the logs under the same path where the workers run"
            )
    if jobs[0].digest and _tools(jobs[0].extra)[0].digest != jobs[0].digest:
        raise PatternError(
            f"{platform.node()}, a worker, has other patterns than this machine", "install the same version of postmortem on both"
        )
    return [read(job.container, job.extra, job.lines) for job in jobs]


def read(container: Container, extra: tuple[Path, ...] = (), lines: int = LINES_EACH[1]) -> Read:
    """Scan and parse one container. Runs in this process or in a worker. `lines` is the share of ordinary lines of each source."""
    library, engine = _tools(extra)
    sources: list[Source] = []
    events: list[Event] = []
    scanned: list[Scanned] = []
    skips: list[Skip] = []
    for source, stream in collect.open_sources(container):
        one = scan.scan(source, stream, engine, want_content=source.kind in parsers.DOCUMENT_KINDS)
        events.extend(parsers.parse(one, library, lines))
        sources.append(source)
        scanned.append(Scanned(one.source, one.bytes, one.lines, (), (), {}, None, one.skips))
    return Read(tuple(sources), tuple(events), tuple(scanned), tuple(skips))


_OWN = threading.local()  # an engine's scratch memory is no two threads' at once


def _tools(extra: tuple[Path, ...]) -> tuple[patterns.Library, scan.Engine]:
    library = patterns.load(*extra)
    if getattr(_OWN, "digest", None) != library.digest:
        _OWN.digest, _OWN.engine = library.digest, scan.Engine.compile([*library.signatures(), *parsers.OPENERS])
    return library, _OWN.engine
