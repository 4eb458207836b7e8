"""A path -> one of the two runs: its document, the distinct lines of its logs, and the versions and settings in them.

    process group ready: rank 0 of 4, torch 2.5.1          versions  torch: 2.5.1
    Namespace(lr=0.1, batch_size=64, run_name='x-17')      settings  lr: 0.1, batch_size: 64
    NCCL_IB_HCA set by environment to mlx5_0               settings  NCCL_IB_HCA: mlx5_0

A setting is printed once in a file. Left out is what differs between two healthy runs of one job: process ids, ports,
times, names of the run, output folders, measured values. The regexes are in settings.yaml.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postmortem.analyze import Options, analyze_observed
from postmortem.diagnose.who import elimination
from postmortem.diagnose.wording import iso
from postmortem.errors import PathMissing, UsageError
from postmortem.library import load
from postmortem.model.frame import plain
from postmortem.privacy.rules import secret_key
from postmortem.reading import Progress, distinct
from postmortem.reading.distinct import Once, Pace, RunLines
from postmortem.replay import documents
from postmortem.system import forms

if TYPE_CHECKING:
    import pandas as pd

HEAD = 4096  # bytes of a file that hold its schema or the name of its generator
LEAST = 6  # pairs of steps needed for a pace
LONGEST_STEP = 86_400.0


@dataclass(frozen=True)
class Steps:
    """Seconds of a step: the median and the quartiles."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Run:
    """One of the two runs. Without `lines` only its document is known."""

    path: str
    document: Mapping[str, Any]
    lines: RunLines | None = None
    versions: Named = field(default_factory=dict)
    settings: Named = field(default_factory=dict)
    steps: Steps | None = None
    names: frozenset[str] = frozenset()
    context: frozenset[tuple[str, int | None]] = frozenset()  # lines that a pattern knows to be harmless
    times: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    timeline: pd.DataFrame | None = field(default=None, repr=False, compare=False)
    secrets: Sequence[tuple[str, str, bool]] = field(default=(), repr=False)

    @property
    def outcome(self) -> str:
        return str(self.document["verdict"].get("outcome"))

    def time(self, source: str, line: int) -> float | None:
        """Return the time of a line, or of the last line before it that has one."""
        known = self.times.get(source, ())
        place = bisect_right(known, (line, float("inf")))
        return known[place - 1][1] if place else None

    def moment(self, source: str, line: int) -> str | None:
        return iso(self.time(source, line))


def both(a: str, b: str, patterns: tuple[Path, ...], progress: Progress | None = None) -> tuple[Run, Run]:
    """Read two runs, each once. Raise PostmortemError, for a missing path before any is read."""
    for path in (a, b):
        if path == "-":
            raise UsageError("standard input is not compared", "name a folder or a file")
        if not Path(path).exists() and "://" not in path:
            raise PathMissing(f"{path} does not exist", "name a folder of logs, an archive, or a document")
    return _read(a, patterns, _named(progress, "A")), _read(b, patterns, _named(progress, "B"))


def _named(progress: Progress | None, name: str) -> Progress | None:
    return None if progress is None else lambda done, total, what: progress(done, total, f"{name}: {what}")


def _read(path: str, patterns: tuple[Path, ...], progress: Progress | None) -> Run:
    """Read logs, or a document or page of `analyze`."""
    if _is_document(Path(path)):
        document = documents.read(Path(path))
        return Run(path, document, versions=_versions(document, {}))
    return _of_logs(path, Options(patterns=patterns, progress=progress))


def _is_document(path: Path) -> bool:
    if path.suffix.lower() not in (".json", ".html", ".htm") or not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(HEAD)
    return b"postmortem/incident/" in head or b'content="postmortem"' in head


def _of_logs(path: str, options: Options) -> Run:
    incident, reads = analyze_observed([path], options, distinct.LineObserver)
    if incident.interrupted:
        raise KeyboardInterrupt
    document = incident.document
    library = load(*options.patterns)
    events = [e for r in reads for e in r.events]
    registry = elimination.known(events, {s.path: s for r in reads for s in r.sources}, library)
    names = frozenset({*document["job"]["hosts"], *registry.host_of.values(), *(e.host for e in events if e.host)})
    lines = distinct.run_lines(reads, registry.rank_of, names)
    harmless = {name for name, pattern in library.patterns.items() if pattern.role == "context"}
    dated = incident.timeline.dropna(subset=["time", "line"])
    times = {
        str(source): sorted(zip(plain(rows["line"]), plain(rows["time"]), strict=True))
        for source, rows in dated.groupby("source", observed=True)
    }
    return Run(
        path,
        document,
        lines,
        _versions(document, versions(lines.once)),
        settings(lines.once),
        pace(lines.paces),
        names,
        frozenset((e.where.source, e.where.line) for e in events if e.pattern in harmless),
        times,
        incident.timeline,
        incident.redactor.memory() if incident.redactor else (),
    )


def _versions(document: Mapping[str, Any], printed: Named) -> Named:
    job = document.get("job") or {}
    known: dict[str, Values] = {name: {str(job[name]): {None}} for name in ("torch", "nccl") if job.get(name)}
    return {**known, **printed}


def pace(paces: Sequence[Pace]) -> Steps | None:
    """Return the time of a step, from pairs of lines of one writer; None for too few."""
    by_writer: dict[object, list[tuple[float, int]]] = defaultdict(list)
    for each in paces:
        by_writer[each.writer].append((each.time, each.step))
    durations = []
    for series in by_writer.values():
        for (time, step), (then, later) in pairwise(sorted(series)):
            if later > step and 0 < then - time < LONGEST_STEP:
                durations.append((then - time) / (later - step))
    if len(durations) < LEAST:
        return None
    low, median, high = statistics.quantiles(durations, n=4)
    return Steps(median, low, high)


Values = dict[str, set[int | None]]  # a value, and the ranks that print it
Named = Mapping[str, Values]
MOST_NAMES = 2000  # names


# ── versions and settings ───────────────────────────────────────────────────────────────────────────────────

_FILE = "fleet/diff/settings"
_SAME = {"pytorch": "torch", "nvidia driver": "driver"}
_OWN, _BARE, _SETTINGS = (frozenset(forms.rows(_FILE)[name]["words"].split()) for name in ("own", "bare", "settings"))
_REGEXES = forms.regexes(_FILE)


def versions(once: Iterable[Once]) -> Named:
    """Return the libraries and GPUs by name."""
    found: dict[str, Values] = {}
    for line in once:
        if line.kind == "environment":
            continue
        for m in _REGEXES["version"].finditer(line.text):
            name = m["name"].lower().replace("-", "_")
            _add(found, _SAME.get(name, name), m["version"].rstrip(".:"), line.rank)
        for m in _REGEXES["gpu"].finditer(line.text):
            _add(found, "GPU", m["name"], line.rank)
    return found


def settings(once: Iterable[Once]) -> Named:
    """Return the settings by name, without those to which one rank gives two values."""
    found: dict[str, Values] = {}
    for line in once:
        for name, value in _pairs(line):
            _add(found, name, value, line.rank)
    return {name: values for name, values in found.items() if _unambiguous(values)}


def _add(found: dict[str, Values], name: str, value: str, rank: int | None) -> None:
    if name in found or len(found) < MOST_NAMES:
        found.setdefault(name, defaultdict(set))[value].add(rank)


def _unambiguous(values: Values) -> bool:
    ranks = [rank for group in values.values() for rank in group]
    return len(ranks) == len(set(ranks))


def _pairs(line: Once) -> Iterator[tuple[str, str]]:
    if line.kind == "environment":
        m = _REGEXES["declared"].match(line.text)
        if m and not _is_own(m["name"]) and not secret_key(m["name"]):
            yield m["name"], m["value"]
        return
    for m in _REGEXES["set"].finditer(line.text):
        yield m["name"], m["value"].rstrip(".:")
    for m in _REGEXES["pair"].finditer(line.text):
        name = (m["flag"] or m["quoted"] or m["dotted"] or m["name"]).replace("-", "_")
        value = m["value"].strip("'\"").rstrip(".:")
        if value and not secret_key(name) and not _is_own(name) and not _REGEXES["measured"].search(value):
            yield name, value


def _is_own(name: str) -> bool:
    """Return whether every run has a value of its own."""
    plain = name.lower().strip("_")
    if plain in _SETTINGS or plain in _BARE:
        return plain in _BARE
    parts = plain.replace(".", "_").replace("-", "_").split("_")
    return any(part in _OWN or part.removesuffix("s") in _OWN for part in parts)
