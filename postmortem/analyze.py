"""Paths -> Incident: collect, scan, parse, align, diagnose; the document leaves redacted.

incident = analyze(["./logs"])
incident.document["verdict"]["headline"]
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from postmortem import input as collect
from postmortem import reading
from postmortem.errors import NothingReadable, PostmortemError, UsageError, ours
from postmortem.input import Container
from postmortem.library import Library, load
from postmortem.model import Event, Skip, Source
from postmortem.model.contract import Document
from postmortem.model.contract.incident import Ledger, Skipped
from postmortem.model.vocabulary import WINDOW
from postmortem.system.process import load_pandas, uncollected

_FIRST, _LAST = 1e8, 7e9  # 1973 to 2191: stamps without a year are kept as of 1972

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pandas as pd

    from postmortem.align import Timeline
    from postmortem.privacy import Redactor


@dataclass(frozen=True)
class Options:
    """What the caller may choose."""

    job: str | None = None
    """Id of the job to analyze; without it the latest that failed"""
    job_name: str | None = None
    """Your name of the job, for the outputs"""
    since: float | None = None
    """Earlier events are left out; seconds since 1970, UTC"""
    until: float | None = None
    """Later events are left out; seconds since 1970, UTC"""
    patterns: tuple[Path, ...] = ()
    """Folders of patterns of your own"""
    baseline: Path | None = None
    """Logs of a healthy run, for comparison"""
    workers: int = 0
    """Processes that read; 0: as many as pay off"""
    resolved: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """How often each usual cause was the true one at this site, by category; it changes their order"""
    redact: bool = True
    """Mask secrets"""
    progress: reading.Progress | None = None
    """Called with bytes done, bytes in all, and the name of the current step"""
    executable: str = ""
    """The Python of core files, whose stacks pystack then reads (extra `cores`)"""
    executor: Executor | None = None
    """An engine of yours that reads, in place of processes on this machine"""


@dataclass(frozen=True)
class Evidence:
    """All events on one clock: the input of the diagnosis. Secrets are still in it."""

    timeline: Timeline
    sources: Sequence[Source]
    ledger: Ledger
    usual: frozenset[str] = frozenset()
    """Line shapes of a healthy run"""
    interrupted: bool = False
    """Whether an interrupt (Ctrl-C) cut the reading short"""


@dataclass(frozen=True)
class Incident:
    """The incident document and the timeline behind it."""

    document: Document
    """The incident document, plain values that `json.dumps` takes"""
    timeline: pd.DataFrame = field(repr=False, compare=False)
    """All events on one clock: a row per event, columns as in `postmortem.model.frame`"""
    interrupted: bool = False
    """Whether an interrupt (Ctrl-C) cut the reading short"""
    as_written: bool = False
    """Whether texts are as in the logs, secrets included (`redact=False`)"""
    redacted: bool = False
    """Whether secrets are masked in the timeline too"""
    redactor: Redactor | None = field(default=None, repr=False, compare=False)
    """Masks the same secrets in texts that are shown later; `redactor.text(line)`"""

    @property
    def processes(self) -> pd.DataFrame:
        """The document's `processes`: one row per process; the timeline's `process_id` is the row's number"""
        return _table(self.document["processes"], "process_id")

    @property
    def runs(self) -> pd.DataFrame:
        """The document's `runs`"""
        return _table(self.document["runs"], "run_id")

    def _repr_html_(self) -> str:
        from postmortem import report

        return str(report.card(self.document))


def _table(rows: Sequence[Any], index: str) -> pd.DataFrame:
    """Return rows of the document as a frame, numbers as Int64."""
    import pandas as pd

    return pd.DataFrame(rows, index=pd.RangeIndex(len(rows), name=index)).convert_dtypes(convert_string=False)


def analyze(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], options: Options = Options()) -> Incident:
    """Read everything under one path or several and diagnose it; `-` is standard input. Raises UsageError,
    PathMissing, NothingReadable and PatternError; an OSError where the system refuses a path."""
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    return analyze_observed([os.fspath(path) for path in several], options, None)[0]


def analyze_observed(
    paths: Sequence[str], options: Options, observe: reading.Observe | None
) -> tuple[Incident, list[reading.Read]]:
    """The same, with the results of reading, secrets included, where `observe` makes an observer of each source."""
    library = load(*options.patterns)
    with collect.held(paths, options.progress) as files:
        evidence, reads = _evidence(list(map(collect.named, paths)), files, options, observe)
        if options.progress and not evidence.interrupted:
            options.progress(evidence.ledger["bytes"], evidence.ledger["bytes"], "diagnosing")
        with uncollected():
            return _diagnose(evidence, library, options), reads


def _evidence(
    paths: Sequence[str], files: Sequence[str], options: Options, observe: reading.Observe | None
) -> tuple[Evidence, list[reading.Read]]:
    """Read `files` and align them. `paths` are the user's names of them."""
    found = collect.collect(files)
    if not found.containers and not found.skipped:
        raise NothingReadable(
            f"{', '.join(paths)}: nothing to read", "name the folder with the job's logs, or the files themselves"
        )
    usual = _usual(options.baseline, options)
    reads = _read(found.containers, options, observe)
    interrupted = any(s.reason.endswith(reading.INTERRUPTED) for r in reads for s in r.skips)
    sources = [s for r in reads for s in r.sources]
    readable = [s for s in sources if s.kind != "binary"]
    skips = [*found.skipped, *(s for r in reads for s in r.skips)]
    if interrupted and not readable:
        raise KeyboardInterrupt
    if not readable or not any(x.bytes for r in reads for x in r.scanned if x.source.kind != "binary"):
        lost = [*skips, *(s for r in reads for x in r.scanned for s in x.skips)]
        raise NothingReadable(
            _nothing(paths, lost, sources),
            "logs may be text, core files, .gz, .zst, .xz, .bz2, .lz4, tar or zip; see `postmortem analyze --help`",
        )
    ledger = collect.build(found.containers, [x for r in reads for x in r.scanned], skips)
    events = [e for r in reads for e in r.events]
    if observe is None:  # a million events take a gigabyte, and the timeline has them all
        reads = []
    with uncollected():
        timeline, sources, table = _timeline(events, sources, ledger.to_json(), options)
    return Evidence(timeline, sources, table, usual, interrupted), reads


def aligned(paths: Sequence[str], options: Options = Options()) -> Evidence:
    """Read everything under `paths` and align it; the first half of `analyze`, which raises the same."""
    with collect.held(paths, options.progress) as files:
        return _evidence(list(map(collect.named, paths)), files, options, None)[0]


def concluded(evidence: Evidence, options: Options = Options()) -> Incident:
    """Diagnose aligned events; the second half of `analyze`."""
    return _diagnose(evidence, load(*options.patterns), options)


def _read(containers: Sequence[Container], options: Options, observe: reading.Observe | None) -> list[reading.Read]:
    ways = reading.Ways(
        options.patterns, options.workers, options.executor, options.progress, _preload, observe, options.executable
    )
    return reading.read_all(containers, ways)


def _preload() -> None:
    """Import the later steps while the workers read: nearly half a second."""
    load_pandas()
    for name in ("postmortem.align.steps", "postmortem.diagnose", "postmortem.privacy"):
        import_module(name)
    import_module("postmortem.report.html").template()


def _timeline(
    events: list[Event], sources: list[Source], ledger: Ledger, options: Options
) -> tuple[Timeline, list[Source], Ledger]:
    """Separate the jobs, and align the events. An internal error costs this step: it becomes a loss in the ledger,
    shown everywhere."""
    load_pandas()
    from postmortem.align import Timeline, align, owners
    from postmortem.runs import folders

    try:
        events, sources = owners.with_stated_hosts(events, sources)
        timeline = align(events, folders.split(events, sources))
    except Exception as error:
        timeline = Timeline.of([e for e in events if e.kind not in ("sync", "stamp")])
        ledger = _with_loss(ledger, "the alignment of the clocks", error)
    timeline, ledger = _within(timeline, ledger, options)
    return timeline, sources, ledger


def _diagnose(evidence: Evidence, library: Library, options: Options) -> Incident:
    """Diagnose events without secrets: no part of a secret may get into a sentence."""
    from postmortem.privacy import Redactor
    from postmortem.privacy.timeline import for_the_report, without_secrets

    timeline, interrupted = evidence.timeline, evidence.interrupted
    if not options.redact:
        document, timeline = _concluded(timeline, evidence, library, options)
        return Incident(document, timeline.frame, interrupted, as_written=True)
    redactor = Redactor()
    for source in evidence.sources:
        redactor.path(source.path)
    rows, extras = without_secrets(timeline.frame, timeline.extras, redactor)
    document, timeline = _concluded(replace(timeline, frame=rows, extras=extras), evidence, library, options)
    cleaned = cast(Document, redactor.document(document))
    return Incident(cleaned, for_the_report(timeline.frame, redactor), interrupted, redacted=True, redactor=redactor)


def _within(timeline: Timeline, ledger: Ledger, options: Options) -> tuple[Timeline, Ledger]:
    """Return the events between `since` and `until`, and those of unknown time; no events, and a loss, where no
    line of known time is there."""
    if options.since is None and options.until is None:
        return timeline, ledger
    low = float("-inf") if options.since is None else options.since
    high = float("inf") if options.until is None else options.until
    times = timeline.frame["time"]
    inside = times.between(low, high)
    if times.notna().any() and not inside.any():
        bounds = {"since": options.since, "until": options.until}
        span = " and ".join(f"{name} {_utc(t)}" for name, t in bounds.items() if t is not None)
        dated = times[times.between(_FIRST, _LAST)]
        extent = "have no dates" if dated.empty else f"run from {_utc(dated.min())} to {_utc(dated.max())}"
        row: Skipped = {"path": WINDOW, "bytes": 0, "reason": f"no event {span}; the logs {extent}", "lost": True}
        return replace(timeline, frame=timeline.frame[:0]), {**ledger, "skipped": [row, *ledger["skipped"]]}
    return replace(timeline, frame=timeline.frame[inside | times.isna()]), ledger


def _utc(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _concluded(timeline: Timeline, evidence: Evidence, library: Library, options: Options) -> tuple[Document, Timeline]:
    from postmortem.diagnose import diagnose, nothing
    from postmortem.say import document

    sources, ledger = evidence.sources, evidence.ledger
    try:
        found = diagnose(timeline, sources, library, ledger, options.job, evidence.usual)
        written = document.write(found, sources, ledger, options.resolved)
        written["job"]["name"] = options.job_name
        return written, found.timeline
    except Exception as error:
        ledger = _with_loss(ledger, "the diagnosis", error)
        return document.write(nothing(timeline, sources, library, ledger), sources, ledger), timeline


def _with_loss(ledger: Ledger, step: str, error: Exception) -> Ledger:
    """Return the ledger with the loss of a step by an internal error."""
    if os.environ.get("POSTMORTEM_DEBUG") or isinstance(error, PostmortemError):
        raise error
    row: Skipped = {"path": step, "bytes": 0, "reason": ours(error), "lost": True}
    return {**ledger, "skipped": [row, *ledger["skipped"]]}


def _usual(baseline: Path | None, options: Options) -> frozenset[str]:
    """Return the line forms of a run that went well."""
    if baseline is None:
        return frozenset()
    from postmortem.diagnose import shapes
    from postmortem.reading import distinct

    found = collect.collect([str(baseline)])
    reads = _read(found.containers, options, distinct.LineObserver)
    skips = [*found.skipped, *(s for r in reads for s in r.skips)]
    if any(s.reason.endswith(reading.INTERRUPTED) for s in skips):
        raise KeyboardInterrupt
    if not any(r.events for r in reads):
        reason = _nothing([f"--baseline {baseline}"], skips, [s for r in reads for s in r.sources])
        raise UsageError(reason, "name the logs of a healthy run, or omit --baseline")
    return shapes(e for r in reads for e in r.events) | distinct.forms(reads)


def _nothing(paths: Sequence[str], skips: Sequence[Skip], sources: Sequence[Source]) -> str:
    reason = f"{len(sources)} files, all empty or binary"
    if skips:
        reason = f"{skips[0].path}: {skips[0].reason}" + (f"; {len(skips) - 1} more" if len(skips) > 1 else "")
    return f"{', '.join(map(str, paths))}: no readable log ({reason})"
