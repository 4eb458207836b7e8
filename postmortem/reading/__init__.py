"""Containers -> what they say: scanned and parsed in this process, side by side, or on a cluster.

    read_all(containers, Ways(workers=2))   ->   [Read(sources, events, ...), ...], in their order

A large log is scanned in parts, as if it were several. The result does not depend on who reads: the parts and
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
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from postmortem import blocks as parsers
from postmortem import input as collect
from postmortem import scan
from postmortem.errors import PatternError, PostmortemError, UsageError, ours
from postmortem.formats import unwrap
from postmortem.input import Container
from postmortem.library import Library, load
from postmortem.model import Event, Scanned, Skip, Source
from postmortem.system import pool
from postmortem.system.process import OutOfTime, bounded

if TYPE_CHECKING:
    from concurrent.futures import Executor

Progress = Callable[[int, int, str], None]
LINES = 32_000  # ordinary lines that are read of all logs together, in equal shares; those with hits come on top
LINES_EACH = (12, 1000)  # the smallest and the largest share
INTERRUPTED = "interrupted before it was read"
HEARING = 8  # times that a log weighs more to whom each line of it is told
SOON = 2 / 3  # of a source's time, after which no more of it is read: the rest is for the parsers


class Ear(Protocol):
    """Who hears all bytes of one source while it is scanned. It never raises."""

    def hear(self, piece: bytes, /) -> None: ...
    def missed(self) -> None: ...
    def told(self) -> object: ...


@dataclass(frozen=True)
class Ways:
    """How to read. `workers` 0: as many as pay off.
    `executor`: an engine of the caller's, in place of processes of ours.
    `meanwhile` is called in a thread while others read.
    `ear` makes who hears a source; workers import it by its name, and no log is read in parts."""

    patterns: tuple[Path, ...] = ()
    workers: int = 0
    executor: Executor | None = None
    progress: Progress | None = None
    meanwhile: Callable[[], None] | None = None
    ear: Callable[[Source], Ear] | None = None


@dataclass(frozen=True)
class Read:
    """What one container gave: small values only, so that they travel between processes."""

    sources: tuple[Source, ...]
    events: tuple[Event, ...]
    scanned: tuple[Scanned, ...]  # without hits and contents: what the ledger needs
    skips: tuple[Skip, ...] = ()
    heard: tuple[object, ...] = ()  # what an ear tells of each source


class Job(NamedTuple):
    """A container, or a part of one, and what a worker has to know.
    `digest` is of the patterns, where that may be another machine."""

    container: Container
    extra: tuple[Path, ...]
    lines: int
    digest: str = ""
    source: Source | None = None  # with `part`
    part: scan.Part | None = None
    ear: Callable[[Source], Ear] | None = None

    @property
    def size(self) -> int:
        return self.part.stop - self.part.start if self.part else self.container.size

    @property
    def weight(self) -> int:
        weight = self.size if self.part else self.container.weight
        return weight * HEARING if self.ear else weight


Result = Read | Scanned | pool.Failure  # of a container, of a part of one, or of neither


def read_all(containers: Sequence[Container], ways: Ways = Ways()) -> list[Read]:
    """Read all containers, in this process or by several; the results in their order."""
    if not containers:
        return []
    jobs = list(_jobs(containers, ways))
    weights = [job.weight for job in jobs]
    workers = ways.workers or pool.workers_for(weights)
    watch = _Watch(jobs, ways.progress)
    if ways.executor is None and (workers == 1 or len(jobs) == 1):
        return _put_together(jobs, _here(jobs, watch))
    load(*ways.patterns)  # a mistake in a pattern file is told here, and the workers find the library read
    with (
        nullcontext(pool.elsewhere(ways.executor))
        if ways.executor is not None
        else pool.local(min(workers, len(jobs))) as place
    ):
        if ways.meanwhile is not None:
            threading.Thread(target=ways.meanwhile, daemon=True).start()
        results: list[Result] = [*pool.run(jobs, weights, read_bundle, place, watch.read)]
    return _put_together(jobs, results)


def _jobs(containers: Sequence[Container], ways: Ways) -> Iterator[Job]:
    low, high = LINES_EACH
    lines = min(high, max(low, LINES // sum(map(collect.logs_in, containers))))
    digest = load(*ways.patterns).digest if ways.executor is not None else ""
    for container in containers:
        divided = not ways.ear and len(scan.parts(container.size)) > 1
        source = collect.divisible(container) if divided else None
        if source is None or source.kind in parsers.DOCUMENT_KINDS or _wrapped(container, source):
            yield Job(container, ways.patterns, lines, digest, ear=ways.ear)
        else:
            yield from (
                Job(container, ways.patterns, lines, digest, source, part) for part in scan.parts(container.size)
            )


def _wrapped(container: Container, source: Source) -> bool:
    """Whether a log has to be read from its beginning, because its lines are records."""
    try:
        with collect.open_at(container, source, 0) as stream:
            return isinstance(unwrap.of(source, stream), unwrap.Unwrapped)
    except Exception:  # whoever reads it as one tells of it
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
    """Do a job in this process, with a worker's limits; what it raises costs no other job."""
    try:
        with bounded(pool.seconds_for(job.weight)):
            return _read(job)
    except PostmortemError:
        raise
    except (Exception, OutOfTime) as error:
        return pool.Failure(pool.why(error))


class _Watch:
    """Bytes done so far, told to the caller."""

    def __init__(self, jobs: Sequence[Job], progress: Progress | None) -> None:
        self.jobs, self.progress = jobs, progress
        self.total, self.done = sum(job.size for job in jobs), 0

    def read(self, index: int, _well: bool) -> None:
        self.done += self.jobs[index].size
        if self.progress:
            self.progress(self.done, self.total, self.jobs[index].container.label)


# ── a worker's task ─────────────────────────────────────────────────────────────────────────────────────────


def read_bundle(jobs: tuple[Job, ...]) -> list[Read | Scanned]:
    """Do some jobs, in a worker."""
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
    return [_read(job) for job in jobs]


def _read(job: Job) -> Read | Scanned:
    if job.part is None or job.source is None:
        return read(job.container, job.extra, job.lines, job.ear)
    _, engine = _tools(job.extra)
    with collect.open_at(job.container, job.source, scan.reads_from(job.part, engine)) as stream:
        return scan.scan_part(job.source, stream, engine, job.part)


def read(
    container: Container,
    extra: tuple[Path, ...] = (),
    lines: int = LINES_EACH[1],
    hearing: Callable[[Source], Ear] | None = None,
) -> Read:
    """Scan and parse one container. `lines` is the share of ordinary lines of each source."""
    library, engine = _tools(extra)
    reads: list[Read] = []
    weight = container.weight * (HEARING if hearing else 1)
    limits = collect.Limits(seconds=SOON * pool.seconds_for(weight))
    try:
        for source, stream in collect.open_sources(container, limits):
            reads.append(_one(source, stream, engine, library, lines, hearing))
    except PostmortemError:
        raise
    except Exception as error:  # of the file, or of the archive: what was read of it counts
        rest = max(0, container.size - sum(s.size for one in reads for s in one.sources))
        reads.append(Read((), (), (), (Skip(container.label, rest, _why(error)),)))
    return Read(*(tuple(x for one in reads for x in getattr(one, field.name)) for field in fields(Read)))


def read_piece(source: Source, data: bytes, library: Library) -> tuple[Event, ...]:
    """What a piece of a log says: whole lines, and in front of them those that tell how lines are built."""
    return _one(source, io.BytesIO(data), parsers.engine(library), library, LINES_EACH[1]).events


def _why(error: Exception) -> str:
    """What the system says where it fails (ESTALE, EIO of a file server); anything else is our own."""
    if isinstance(error, OSError) and error.errno:
        return f"cannot be read to its end: {os.strerror(error.errno)}"
    return ours(error)


def _one(
    source: Source,
    stream: collect.Readable,
    engine: scan.Engine,
    library: Library,
    lines: int,
    hearing: Callable[[Source], Ear] | None = None,
) -> Read:
    """Scan and parse one source; an error of ours costs this source alone."""
    ear = hearing(source) if hearing else None
    try:
        told = unwrap.of(source, stream)
        heard = told if ear is None else _Heard(told, ear)
        one = scan.scan(source, heard, engine, want_content=source.kind in parsers.DOCUMENT_KINDS)
    except PostmortemError:
        raise
    except Exception as error:
        return Read((source,), (), (), (Skip(source.path, source.size, _why(error)),))
    read = _parsed(one, library, lines)
    if isinstance(told, unwrap.Unwrapped):  # the ledger counts what lies in the file
        read = replace(read, scanned=(replace(read.scanned[0], bytes=told.bytes, lines=told.lines),))
    return read if ear is None else replace(read, heard=(ear.told(),))


class _Heard:
    """A stream that somebody hears, too."""

    def __init__(self, stream: collect.Readable, ear: Ear) -> None:
        self._stream, self._ear = stream, ear

    def read(self, n: int, /) -> bytes:
        try:
            piece = self._stream.read(n)
        except BaseException:
            self._ear.missed()
            raise
        self._ear.hear(piece)
        return piece


def _parsed(one: Scanned, library: Library, lines: int, skips: tuple[Skip, ...] = ()) -> Read:
    account = Scanned(one.source, one.bytes, one.lines, (), (), {}, None, one.skips)
    lost: list[Skip] = []
    events = tuple(parsers.parse(one, library, lines, lost))
    return Read((one.source,), events, (account,), (*skips, *lost))


def _tools(extra: tuple[Path, ...]) -> tuple[Library, scan.Engine]:
    library = load(*extra)
    return library, parsers.engine(library)


# ── the parts of a log, and what was lost ───────────────────────────────────────────────────────────────────


def _put_together(jobs: Sequence[Job], results: Sequence[Result]) -> list[Read]:
    out = []
    for _, group in groupby(zip(jobs, results, strict=True), key=lambda pair: pair[0].container.label):
        pairs = list(group)
        job, result = pairs[0]
        if isinstance(result, Read):
            out.append(result)
        elif all(isinstance(result, pool.Failure) for _, result in pairs):
            out.append(
                Read(
                    (),
                    (),
                    (),
                    tuple(_lost(job, result) for job, result in pairs if isinstance(result, pool.Failure)),
                )
            )
        else:
            out.append(_joined(pairs))
    return out


def _joined(pairs: Sequence[tuple[Job, Result]]) -> Read:
    """One log from its parts."""
    job = pairs[0][0]
    assert job.source is not None
    skips = tuple(_lost(job, result) for job, result in pairs if isinstance(result, pool.Failure))
    try:
        scanned = [result if isinstance(result, Scanned) else _uncounted(job) for job, result in pairs]
        whole = scan.joined(job.source, scanned)
    except Exception as error:
        return Read((job.source,), (), (), (*skips, Skip(job.source.path, job.source.size, _why(error))))
    return _parsed(whole, load(*job.extra), job.lines, skips)


def _lost(job: Job, failure: pool.Failure) -> Skip:
    """The ledger's row of what a worker could not read."""
    where = f"bytes {job.part.start:,} to {job.part.stop:,}: " if job.part else ""
    reason = INTERRUPTED if failure is pool.INTERRUPTED else f"the worker that read it {failure.reason}"
    return Skip(job.container.label, job.size, where + reason)


def _uncounted(job: Job) -> Scanned:
    """Stand in for a part that was lost: nothing of it but its number of lines,
    for the numbers of those behind it."""
    assert job.source is not None and job.part is not None
    first = max(0, job.part.start - 1)
    left, lines = job.part.stop - first - 1, int(not job.part.start)
    with collect.open_at(job.container, job.source, first) as stream:
        while left > 0 and (piece := stream.read(min(left, 1 << 20))):
            lines += piece.count(b"\n")
            left -= len(piece)
    return Scanned(job.source, 0, lines, (), (), {})
