"""Paths -> Incident: the pipeline in one place. collect, scan, parse, align, diagnose; the document leaves redacted.

    incident = analyze(["./logs"])
    incident.document["verdict"]["headline"]

One worker reads in this process. More read containers side by side in a pool in which a dying worker costs one task; the
result does not depend on their number, because results are put in the order of the paths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from postmortem import collect, parsers, patterns, scan
from postmortem.collect import Container
from postmortem.errors import NothingReadable
from postmortem.model import Event, Scanned, Skip, Source

if TYPE_CHECKING:
    from postmortem.align import Timeline

Progress = Callable[[int, int, str], None]
POOL_FROM = 64 << 20  # below this a pool costs more than it saves
TASK_SECONDS = 600


@dataclass(frozen=True)
class Options:
    """What the caller may choose. Times are epoch seconds; `workers` 0 means: as many as pay off."""

    job: str | None = None
    since: float | None = None
    until: float | None = None
    patterns: tuple[Path, ...] = ()
    baseline: Path | None = None
    workers: int = 1
    redact: bool = True
    verbose: bool = False
    progress: Progress | None = None


@dataclass(frozen=True)
class Incident:
    """The incident document (schema postmortem/incident/1) and the timeline behind it."""

    document: dict[str, Any]
    timeline: Timeline = field(repr=False)

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
    sources = [s for r in reads for s in r.sources]
    readable = [s for s in sources if s.kind != "binary"]
    skips = [*found.skipped, *(s for r in reads for s in r.skips)]
    if not readable or not any(x.bytes for r in reads for x in r.scanned if x.source.kind != "binary"):
        raise NothingReadable(
            _nothing(paths, skips, sources), "give logs as text, .gz, .zst, .xz, .bz2, tar or zip; see `postmortem analyze --help`"
        )
    ledger = collect.build(found.containers, [x for r in reads for x in r.scanned], skips)
    events = [e for r in reads for e in r.events]
    usual = _usual(options.baseline, options)
    timeline, document = _diagnose(events, sources, library, ledger.to_json(), options, usual)
    return _redacted(document, timeline) if options.redact else Incident(document, timeline)


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


def _read_all(containers: Sequence[Container], options: Options) -> list[Read]:
    total = sum(c.size for c in containers)
    reads: list[Read] = []
    done = 0
    if options.workers > 1 and len(containers) > 1:
        return _read_in_pool(containers, options, total)
    for container in containers:
        reads.append(read(container, options.patterns))
        done += container.size
        if options.progress:
            options.progress(done, total, container.label)
    return reads


def _read_in_pool(containers: Sequence[Container], options: Options, total: int) -> list[Read]:
    """Read containers in worker processes. One that dies or hangs costs its container, which the ledger then names."""
    from concurrent.futures import TimeoutError as Late
    from multiprocessing import get_context

    from pebble import ProcessExpired, ProcessPool

    reads: list[Read] = []
    done = 0
    with ProcessPool(max_workers=options.workers, context=get_context("spawn")) as pool:
        futures = [(c, pool.schedule(read, args=[c, options.patterns], timeout=TASK_SECONDS)) for c in containers]
        for container, future in futures:
            try:
                reads.append(future.result())
            except (ProcessExpired, Late, MemoryError) as e:
                reason = f"the worker that read it {'took too long' if isinstance(e, Late) else 'died'} ({type(e).__name__})"
                reads.append(Read((), (), (), (Skip(container.label, container.size, reason),)))
            done += container.size
            if options.progress:
                options.progress(done, total, container.label)
    return reads


def read(container: Container, extra: tuple[Path, ...] = ()) -> Read:
    """Scan and parse one container. Runs in this process or in a worker."""
    library, engine = _tools(extra)
    sources: list[Source] = []
    events: list[Event] = []
    scanned: list[Scanned] = []
    skips: list[Skip] = []
    for source, stream in collect.open_sources(container):
        one = scan.scan(source, stream, engine, want_content=source.kind in parsers.DOCUMENT_KINDS)
        events.extend(parsers.parse(one, library))
        sources.append(source)
        scanned.append(Scanned(one.source, one.bytes, one.lines, (), (), {}, None, one.skips))
    return Read(tuple(sources), tuple(events), tuple(scanned), tuple(skips))


@lru_cache(maxsize=2)
def _tools(extra: tuple[Path, ...]) -> tuple[patterns.Library, scan.Engine]:
    library = patterns.load(*extra)
    return library, scan.Engine.compile([*library.signatures(), *parsers.OPENERS])
