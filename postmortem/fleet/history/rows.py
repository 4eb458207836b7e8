"""The incident document -> its row in the store, with the hosts and GPUs of the job.

    row(document, report="postmortem-report.html")
    -> Row(uid="9c0e…", happened="2026-11-21T13:18:36.950Z", category="host-oom", …,
    involved=(Involved("host", "node-b", True), …))

Anyone may have written the document: nothing in it is trusted, everything is bounded, and characters that a
database rejects (NUL, halves of surrogate pairs) are replaced.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from postmortem.model.vocabulary import CAUSES
from postmortem.report import text, view

Document = Mapping[str, Any]
OUTCOMES = ("incident", "undetermined", "recovered", "healthy")
NAME, PATH, SENTENCE = 255, 4096, 1000  # maximum lengths in characters
HOSTS, SHOWN = 20_000, 5
INPUTS, LEAST = 200, 64  # sources by which a job is recognized, and bytes of one
GREATEST = 2**31 - 1
_REPLACED = dict.fromkeys((0, *range(0xD800, 0xE000)), "\ufffd")


@dataclass(frozen=True, slots=True)
class Involved:
    """A host of the job, or a GPU at fault (`host/bus address`)."""

    kind: str  # host | gpu
    name: str
    fault: bool  # whether the verdict blames it


class Usual(NamedTuple):
    """A row of `causes`."""

    cause: str
    title: str


@dataclass(frozen=True, slots=True)
class Row:
    """One incident in the store. Times are ISO 8601 in UTC, which sorts as text."""

    uid: str  # hash of the content: the same logs are the same incident in every analysis
    outcome: str
    headline: str
    attempts: int
    category: str | None = None
    pattern: str | None = None
    confidence: str | None = None
    fingerprint: str | None = None  # cause, and after a hyphen the hardware at fault
    cause: str | None = None  # the fingerprint without the hardware
    code: str | None = None
    job: str | None = None
    world_size: int | None = None
    happened: str | None = None  # time of the root's first evidence; else the end of the job
    begun: str | None = None
    ended: str | None = None
    hours: float | None = None  # duration of the job: the exposure of each host
    lost_rank_hours: float | None = None  # ranks times hours of the attempts that failed
    torch: str | None = None
    nccl: str | None = None
    version: str | None = None  # of the postmortem that wrote the document
    library: str | None = None
    report: str | None = None  # path
    logs: str | None = None  # paths that were analyzed
    involved: tuple[Involved, ...] = ()
    usual: tuple[Usual, ...] = ()
    inputs: tuple[str, ...] = ()  # digests of the largest sources


def row(document: Document, report: str = "", logs: str = "") -> Row:
    verdict, job, tool = (view.part(document, name) for name in ("verdict", "job", "tool"))
    outcome = view.known(verdict.get("outcome"))
    attempts = view.rows(document.get("attempts"))
    begun = min(filter(None, (moment(attempt.get("begin")) for attempt in attempts)), default=None)
    ended = max(filter(None, (moment(attempt.get("end")) for attempt in attempts)), default=None)
    fingerprint = clean(document.get("fingerprint"), 80)
    proofs = (moment(item.get("time")) for item in view.rows(verdict.get("evidence")))
    named: dict[str, Any] = {name: clean(verdict.get(name)) for name in ("category", "pattern", "confidence")}
    named |= {name: clean(job.get(name)) for name in ("torch", "nccl")}
    named |= {name: clean(tool.get(name)) for name in ("version", "library")}
    return Row(
        uid=uid(document),
        outcome=outcome if outcome in OUTCOMES else "undetermined",
        headline=clean(verdict.get("title") or verdict.get("headline"), SENTENCE) or "",
        attempts=count(job.get("attempts")) or 1,
        fingerprint=fingerprint,
        cause=fingerprint.partition("-")[0] if fingerprint else None,
        code=clean(view.part(verdict, "culprit").get("code")),
        job=clean(job.get("id")),
        world_size=count(job.get("world_size")),
        happened=next(filter(None, proofs), None) or ended,
        begun=begun,
        ended=ended,
        hours=hours(begun, ended),
        lost_rank_hours=_lost(outcome, attempts, count(job.get("world_size"))),
        report=clean(report, PATH),
        logs=clean(logs, PATH),
        involved=tuple(_involved(document)),
        usual=tuple(_usual(document)),
        inputs=tuple(_inputs(document)),
        **named,
    )


def uid(document: Document) -> str:
    """Return the hash of the input: job id, names and sizes of the logs, times of the attempts; without any time,
    also the evidence. So a later version that comes to another verdict corrects the row instead of adding one."""
    sources = sorted(_sources(document))
    spans = [[moment(a.get("begin")), moment(a.get("end"))] for a in view.rows(document.get("attempts"))]
    content: list[Any] = [view.known(view.part(document, "job").get("id")), sources, spans]
    if not any(any(span) for span in spans):
        content += [view.known(e.get("text")) for e in view.rows(view.part(document, "verdict").get("evidence"))]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _sources(document: Document) -> Iterator[tuple[str, int]]:
    """Yield name and size of each source."""
    for s in view.rows(document.get("sources")):
        yield PurePosixPath(view.known(s.get("path")).replace("!/", "/")).name, count(s.get("bytes")) or 0


def _inputs(document: Document) -> Iterator[str]:
    """Yield a digest of each of the largest sources: other jobs have small files of the same name and size."""
    found = sorted({s for s in _sources(document) if s[1] >= LEAST}, key=lambda s: (-s[1], s[0]))[:INPUTS]
    yield from (hashlib.sha256(json.dumps(source).encode()).hexdigest()[:32] for source in found)


def _usual(document: Document) -> Iterator[Usual]:
    for each in view.rows(document.get("causes"))[:SHOWN]:
        if each.get("id") in CAUSES:
            yield Usual(each["id"], clean(each.get("title"), SENTENCE) or each["id"])


def clean(value: object, limit: int = NAME) -> str | None:
    """Return a text that every database accepts; None for an empty one."""
    return None if value is None or value == "" else str(value)[:limit].translate(_REPLACED)


def _involved(document: Document) -> Iterator[Involved]:
    """Yield each host of the job once, those at fault first, and the GPUs at fault. A GPU is named with its host:
    every host has its own 0000:3b:00."""
    culprit = view.part(view.part(document, "verdict"), "culprit")
    at_fault = _names(culprit.get("hosts"))
    of_job = view.words(view.part(document, "job").get("hosts"))
    of_ranks = [view.known(rank.get("host")) for rank in view.rows(document.get("ranks"))]
    for name in _names([*at_fault, *of_job, *of_ranks])[:HOSTS]:
        yield Involved("host", name, name in at_fault)
    for gpu in _names(culprit.get("gpus"))[:HOSTS]:
        yield Involved("gpu", f"{at_fault[0]}/{gpu}"[:NAME] if len(at_fault) == 1 else gpu, True)


def _names(values: object) -> list[str]:
    return list(dict.fromkeys(filter(None, map(clean, view.words(values)))))


def moment(value: object) -> str | None:
    """Return a time of the document with milliseconds, so that texts compare as times do."""
    at = text.epoch(value)
    return None if at is None else stamp(at)


def stamp(at: float) -> str | None:
    """Format seconds since 1970 as the store has them; None outside the calendar."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (OverflowError, ValueError, OSError):
        return None


def count(value: object) -> int | None:
    """Return a number of things that every database accepts; None for anything else."""
    number = view.whole(value)
    return number if number is not None and 0 <= number <= GREATEST else None


def hours(begun: str | None, ended: str | None) -> float | None:
    """Return the hours between two times; None where one is unknown."""
    low, high = text.epoch(begun), text.epoch(ended)
    return None if low is None or high is None or high < low else round((high - low) / 3600, 6)


def _lost(outcome: str, attempts: Sequence[Document], ranks: int | None) -> float | None:
    """Return ranks times hours of the attempts that failed: the upper limit of the loss."""
    if outcome == "healthy":
        return 0.0
    failed = [attempt for attempt in attempts if attempt.get("outcome") in ("incident", "undetermined")]
    each = [hours(moment(attempt.get("begin")), moment(attempt.get("end"))) for attempt in failed]
    known = [h for h in each if h is not None]
    return round(sum(known) * ranks, 6) if known and ranks else None
