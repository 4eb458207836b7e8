"""Containers -> their events: scanned and parsed in this process, side by side, or on a cluster.

    read_all(containers, Ways(workers=2))   ->   [Read(sources, events, ...), ...], in their order

A large log is scanned in parts, as if it were several. The result does not depend on the workers: the parts and
how much of each log is read depend on the logs alone, and results are put together in their order.
"""

from __future__ import annotations

import io
import os
import platform
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from postmortem import blocks as parsers
from postmortem import documents, scan
from postmortem import input as collect
from postmortem.errors import PatternError, PostmortemError, UsageError, ours
from postmortem.formats import unwrap
from postmortem.input import Container
from postmortem.library import Library, load
from postmortem.model import Event, Scanned, Skip, Source
from postmortem.reading import python_stacks
from postmortem.reading.columns import Results
from postmortem.system import pool
from postmortem.system.process import OutOfTime, bounded

if TYPE_CHECKING:
    from concurrent.futures import Executor

Progress = Callable[[int, int, str], None]
LINES = 8_000  # ordinary lines that are read of all logs together, in equal shares; those with hits come on top
LINES_EACH = (12, 1000)  # the smallest and the largest share
INTERRUPTED = "interrupted before it was read"
LARGE = 32 << 20  # bytes of logs with whole seconds of work
OBSERVED = 8  # times the weight of a log for an observer of each line
SOON = 2 / 3  # of a source's time, after which no more of it is read: the rest is for the parsers


class Observer(Protocol):
    """Receives all bytes of one source while it is scanned. It never raises."""

    def feed(self, piece: bytes, /) -> None: ...
    def fail(self) -> None: ...  # the rest of the source cannot be read
    def result(self) -> object: ...


Observe = Callable[[Source], Observer]


@dataclass(frozen=True)
class Ways:
    """How to read. `workers` 0: as many as pay off. `executor`: an engine of the caller's, in place of processes
    of ours. `meanwhile` is called in a thread while workers read. `observe` makes an observer for each source;
    workers import it by its name, and no log is read in parts."""

    patterns: tuple[Path, ...] = ()
    workers: int = 0
    executor: Executor | None = None
    progress: Progress | None = None
    meanwhile: Callable[[], None] | None = None
    observe: Observe | None = None
    executable: str = ""  # the interpreter of core files, for their Python stacks


@dataclass(frozen=True)
class Read:
    """The result of one container: small values only, because they travel between processes."""

    sources: tuple[Source, ...] = ()
    events: tuple[Event, ...] = ()
    scanned: tuple[Scanned, ...] = ()  # without hits and contents: the ledger's input
    skips: tuple[Skip, ...] = ()
    observed: tuple[object, ...] = ()  # the results of the observers


class Job(NamedTuple):
    """A container, or a part of one, for a worker. `digest` is of the patterns, for workers on other machines."""

    container: Container
    extra: tuple[Path, ...]
    lines: int
    digest: str = ""
    source: Source | None = None  # with `part`
    part: scan.Part | None = None
    observe: Observe | None = None
    executable: str = ""

    @property
    def size(self) -> int:
        return self.part.stop - self.part.start if self.part else self.container.size

    @property
    def weight(self) -> int:
        return (self.size if self.part else self.container.weight) * (OBSERVED if self.observe else 1)


Result = Read | Scanned | pool.Failure  # of a container, of a part of one, or of neither


def read_all(containers: Sequence[Container], ways: Ways = Ways()) -> list[Read]:
    """Read all containers, in this process or by several; return the results in their order."""
    if not containers:
        return []
    jobs = list(_jobs(containers, ways))
    weights = [job.weight for job in jobs]
    workers = ways.workers or pool.workers_for(weights)
    watch = _Watch(jobs, ways.progress)
    if ways.executor is None and (workers == 1 or len(jobs) == 1):
        if watch.total > LARGE:
            import_module("numpy")  # counts lines faster, and the alignment needs it anyway
        return _put_together(jobs, _here(jobs, watch))
    load(*ways.patterns)  # reports a mistake in a pattern file here, and fills the cache for the workers
    where = pool.local(min(workers, len(jobs))) if ways.executor is None else nullcontext(pool.elsewhere(ways.executor))
    with where as place:
        if ways.meanwhile is not None:
            threading.Thread(target=ways.meanwhile, daemon=True).start()
        results: list[Result] = [*pool.run(jobs, weights, read_bundle, place, watch.read)]
    return _put_together(jobs, results)


def _jobs(containers: Sequence[Container], ways: Ways) -> Iterator[Job]:
    low, high = LINES_EACH
    lines = min(high, max(low, LINES // sum(map(collect.logs_in, containers))))
    digest = load(*ways.patterns).digest if ways.executor is not None else ""
    for container in containers:
        parts = scan.parts(container.size)
        source = collect.divisible(container) if len(parts) > 1 and not ways.observe else None
        if source is None or source.kind in documents.KINDS or _is_wrapped(container, source):
            yield Job(container, ways.patterns, lines, digest, observe=ways.observe, executable=ways.executable)
        else:
            yield from (Job(container, ways.patterns, lines, digest, source, part) for part in parts)


def _is_wrapped(container: Container, source: Source) -> bool:
    """Return whether a log has to be read from its beginning, because its lines are records."""
    try:
        with collect.open_at(container, source, 0) as stream:
            return isinstance(unwrap.of(source, stream), unwrap.Unwrapped)
    except Exception:  # reported where it is read
        return True


def _here(jobs: Sequence[Job], watch: _Watch) -> list[Result]:
    results: list[Result] = []
    try:
        for index, job in enumerate(jobs):
            results.append(_bounded(job))
            watch.read(index, not isinstance(results[-1], pool.Failure))
    except KeyboardInterrupt:
        results += [pool.INTERRUPTED] * (len(jobs) - len(results))
    return results


def _bounded(job: Job) -> Result:
    """Do a job in this process, with a worker's limits; its errors cost no other job."""
    try:
        with bounded(pool.seconds_for(job.weight)):
            return _read(job)
    except PostmortemError:
        raise
    except (Exception, OutOfTime) as error:
        return pool.Failure(pool.why(error))


class _Watch:
    """Reports the bytes done so far to the caller."""

    def __init__(self, jobs: Sequence[Job], progress: Progress | None) -> None:
        self.jobs, self.progress = jobs, progress
        self.total, self.done = sum(job.size for job in jobs), 0

    def read(self, index: int, _well: bool) -> None:
        self.done += self.jobs[index].size
        if self.progress:
            self.progress(self.done, self.total, self.jobs[index].container.label)


# ── a worker's task ─────────────────────────────────────────────────────────────────────────────────────────


def read_bundle(jobs: tuple[Job, ...]) -> list[Read | Scanned]:
    """Do some jobs, in a worker. Raise UsageError or PatternError where another machine lacks their files."""
    for job in jobs if jobs[0].digest else ():
        if not job.container.url and not job.container.path.exists():
            raise UsageError(
                f"{platform.node()}, a worker, cannot see {job.container.path}",
                "mount the logs under the same path on the workers",
            )
    if jobs[0].digest and load(*jobs[0].extra).digest != jobs[0].digest:
        raise PatternError(
            f"{platform.node()}, a worker, has other patterns than this machine",
            "install the same version of postmortem on both",
        )
    return Results(map(_read, jobs))


def _read(job: Job) -> Read | Scanned:
    if job.part is None or job.source is None:
        return read(job.container, job.extra, job.lines, job.observe, job.executable)
    engine = parsers.engine(load(*job.extra))
    with collect.open_at(job.container, job.source, scan.reads_from(job.part, engine)) as stream:
        return scan.scan_part(job.source, stream, engine, job.part)


def read(
    container: Container,
    extra: tuple[Path, ...] = (),
    lines: int = LINES_EACH[1],
    observe: Observe | None = None,
    executable: str = "",
) -> Read:
    """Scan and parse one container. `lines` is the share of ordinary lines of each source."""
    library = load(*extra)
    engine = parsers.engine(library)
    reads: list[Read] = []
    weight = container.weight * (OBSERVED if observe else 1)
    limits = collect.Limits(seconds=SOON * pool.seconds_for(weight))
    try:
        for source, stream in collect.open_sources(container, limits):
            if source.kind in documents.IN_PARTS:
                local = executable if container.form == "plain" and not container.url else ""
                reads.append(_read_parts(source, stream, library, container.path, local))
                continue
            reads.append(_read_source(source, stream, engine, library, lines, observe))
    except PostmortemError:
        raise
    except Exception as error:  # of the file, or of the archive: the sources before it count
        rest = max(0, container.size - sum(s.size for one in reads for s in one.sources))
        reads.append(Read(skips=(Skip(container.label, rest, _reason(error)),)))
    if len(reads) == 1:
        return reads[0]
    return Read(*(tuple(x for one in reads for x in getattr(one, field.name)) for field in fields(Read)))


def read_piece(source: Source, data: bytes, library: Library) -> tuple[Event, ...]:
    """Return the events of a piece of a log: whole lines, after lines that show the form of its lines."""
    return _read_source(source, io.BytesIO(data), parsers.engine(library), library, LINES_EACH[1]).events


def _reason(error: Exception) -> str:
    """Return the system's words for its failures (ESTALE, EIO of a file server); others are our own."""
    if isinstance(error, OSError) and error.errno:
        return f"cannot be read to its end: {os.strerror(error.errno)}"
    return ours(error)


def _read_source(
    source: Source,
    stream: collect.Readable,
    engine: scan.Engine,
    library: Library,
    lines: int,
    observe: Observe | None = None,
) -> Read:
    """Scan and parse one source; an internal error costs this source alone."""
    observer = observe(source) if observe else None
    try:
        plain = unwrap.of(source, stream)
        observed = _Observed(plain, observer) if observer else plain
        scanned = scan.scan(source, observed, engine, want_content=source.kind in documents.KINDS)
    except PostmortemError:
        raise
    except Exception as error:
        return Read((source,), skips=(Skip(source.path, source.size, _reason(error)),))
    read = _parsed(scanned, library, lines)
    if isinstance(plain, unwrap.Unwrapped):  # the ledger counts the bytes of the file
        read = replace(read, scanned=(replace(read.scanned[0], bytes=plain.bytes, lines=plain.lines),))
    return replace(read, observed=(observer.result(),)) if observer else read


def _read_parts(source: Source, stream: collect.Readable, library: Library, path: Path, executable: str) -> Read:
    """Read a binary document: a few parts of it, and the rest is a row of the ledger."""
    parts = documents.Parts(cast("documents.Stream", stream))
    lost: list[Skip] = []
    stacks, problem = python_stacks.of(path, executable) if executable and source.kind == "core" else ("", "")
    lost += [Skip(source.path, 0, problem, meant=True)] if problem else []
    events = parsers.parse_parts(source, parts, library, lost, stacks)
    rest = Skip(source.path, max(0, source.size - parts.taken), documents.UNREAD, meant=True)
    return Read((source,), tuple(events), (Scanned(source, parts.taken, 0, (), (), {}, None, (rest,)),), tuple(lost))


class _Observed:
    """A stream that feeds an observer with each piece that is read."""

    def __init__(self, stream: collect.Readable, observer: Observer) -> None:
        self._stream, self._observer = stream, observer

    def read(self, n: int, /) -> bytes:
        try:
            piece = self._stream.read(n)
        except BaseException:
            self._observer.fail()
            raise
        self._observer.feed(piece)
        return piece


def _parsed(one: Scanned, library: Library, lines: int, skips: tuple[Skip, ...] = ()) -> Read:
    lost: list[Skip] = []
    events = tuple(parsers.parse(one, library, lines, lost))
    account = Scanned(one.source, one.bytes, one.lines, (), (), {}, None, one.skips)
    return Read((one.source,), events, (account,), (*skips, *lost))


# ── the parts of a log, and losses ──────────────────────────────────────────────────────────────────────────


def _put_together(jobs: Sequence[Job], results: Sequence[Result]) -> list[Read]:
    out = []
    for _, group in groupby(zip(jobs, results, strict=True), key=lambda pair: pair[0].container.label):
        pairs = list(group)
        first = pairs[0][1]
        if isinstance(first, Read):
            out.append(first)
            continue
        skips = tuple(_lost(job, result) for job, result in pairs if isinstance(result, pool.Failure))
        out.append(Read(skips=skips) if len(skips) == len(pairs) else _joined(pairs, skips))
    return out


def _joined(pairs: Sequence[tuple[Job, Result]], skips: tuple[Skip, ...]) -> Read:
    """Return one log from its parts, of which some may be lost."""
    job = pairs[0][0]
    assert job.source is not None
    try:
        scanned = [result if isinstance(result, Scanned) else _uncounted(job) for job, result in pairs]
        whole = scan.joined(job.source, scanned)
    except Exception as error:
        return Read((job.source,), skips=(*skips, Skip(job.source.path, job.source.size, _reason(error))))
    return _parsed(whole, load(*job.extra), job.lines, skips)


def _lost(job: Job, failure: pool.Failure) -> Skip:
    where = f"bytes {job.part.start:,} to {job.part.stop:,}: " if job.part else ""
    reason = INTERRUPTED if failure is pool.INTERRUPTED else f"the worker that read it {failure.reason}"
    return Skip(job.container.label, job.size, where + reason)


def _uncounted(job: Job) -> Scanned:
    """Return a lost part with its number of lines only, which gives later lines their numbers."""
    assert job.source is not None and job.part is not None
    first = max(0, job.part.start - 1)
    left, lines = job.part.stop - first - 1, int(not job.part.start)
    with collect.open_at(job.container, job.source, first) as stream:
        while left > 0 and (piece := stream.read(min(left, 1 << 20))):
            lines += piece.count(b"\n")
            left -= len(piece)
    return Scanned(job.source, 0, lines, (), (), {})
