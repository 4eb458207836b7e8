"""The incident document -> what the store keeps of it: one row, and the hosts and GPUs of the job.

    row(document, report="postmortem-report.html")
    -> Row(uid="9c0e…", happened="2026-11-21T13:18:36.950Z", category="host-oom", …,
    involved=(Involved("host", "node-b", True), …))

The document may be a file that anybody wrote: nothing in it is trusted, and all is bounded. What no database
takes (NUL, halves of surrogate pairs) is cleaned.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from postmortem.report import text, view

Document = Mapping[str, Any]
OUTCOMES = ("incident", "undetermined", "recovered", "healthy")
NAME, PATH, SENTENCE = 255, 4096, 1000  # characters that are kept
HOSTS = 20_000
GREATEST = 2**31 - 1
_UNKEPT = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Involved:
    """A host of the job, or a GPU at fault (`host/bus address`)."""

    kind: str  # host | gpu
    name: str
    fault: bool  # whether the verdict names it


@dataclass(frozen=True, slots=True)
class Row:
    """What the store keeps of one incident. Times are ISO 8601 in UTC, so that their text sorts."""

    uid: str  # the content's hash: the same logs are the same incident, whoever analyzes them how often
    outcome: str
    category: str | None
    pattern: str | None
    confidence: str | None
    headline: str
    fingerprint: str | None  # cause, and behind a hyphen the hardware at fault
    cause: str | None  # the fingerprint without the hardware
    code: str | None
    job: str | None
    world_size: int | None
    attempts: int
    happened: str | None  # when the root's first evidence was written; else the end of the job
    begun: str | None
    ended: str | None
    hours: float | None  # how long the job ran; of each host its exposure
    lost_rank_hours: float | None  # ranks times hours of the attempts that failed
    torch: str | None
    nccl: str | None
    version: str | None  # of the postmortem that wrote the document
    library: str | None
    report: str | None  # where the report lies
    logs: str | None  # what was analyzed
    involved: tuple[Involved, ...] = ()


def row(document: Document, report: str = "", logs: str = "") -> Row:
    """What is kept of the document."""
    found = dict(document)
    verdict, job = view.part(found, "verdict"), view.part(found, "job")
    outcome = view.known(verdict.get("outcome"))
    lives = view.rows(found.get("attempts"))
    begun = min(filter(None, (moment(life.get("begin")) for life in lives)), default=None)
    ended = max(filter(None, (moment(life.get("end")) for life in lives)), default=None)
    fingerprint = kept(found.get("fingerprint"), 80)
    evidence = view.rows(verdict.get("evidence"))
    proved = next(filter(None, (moment(item.get("time")) for item in evidence)), None)
    tool = view.part(found, "tool")
    return Row(
        uid=uid(found),
        outcome=outcome if outcome in OUTCOMES else "undetermined",
        category=kept(verdict.get("category")),
        pattern=kept(verdict.get("pattern")),
        confidence=kept(verdict.get("confidence")),
        headline=kept(verdict.get("headline"), SENTENCE) or "",
        fingerprint=fingerprint,
        cause=fingerprint.partition("-")[0] if fingerprint else None,
        code=kept(view.part(verdict, "culprit").get("code")),
        job=kept(job.get("id")),
        world_size=count(job.get("world_size")),
        attempts=count(job.get("attempts")) or 1,
        happened=proved or ended,
        begun=begun,
        ended=ended,
        hours=hours(begun, ended),
        lost_rank_hours=_lost(outcome, lives, count(job.get("world_size"))),
        torch=kept(job.get("torch")),
        nccl=kept(job.get("nccl")),
        version=kept(tool.get("version")),
        library=kept(tool.get("library")),
        report=kept(report, PATH),
        logs=kept(logs, PATH),
        involved=tuple(_involved(found)),
    )


def uid(document: Document) -> str:
    """The hash of what was read: names and sizes of the logs, and when the job ran. A later version that
    reads the same logs and judges otherwise corrects the row, and adds none. Logs without any time are told
    apart by the lines that prove the verdict."""
    found = dict(document)
    sources = sorted(
        (PurePosixPath(view.known(s.get("path")).replace("!/", "/")).name, count(s.get("bytes")) or 0)
        for s in view.rows(found.get("sources"))
    )
    spans = [[moment(a.get("begin")), moment(a.get("end"))] for a in view.rows(found.get("attempts"))]
    content: list[Any] = [view.known(view.part(found, "job").get("id")), sources, spans]
    if not any(any(span) for span in spans):
        content += [view.known(e.get("text")) for e in view.rows(view.part(found, "verdict").get("evidence"))]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def kept(value: object, limit: int = NAME) -> str | None:
    """A text as every database takes it; None where there is none."""
    if value is None or value == "":
        return None
    return _UNKEPT.sub("\ufffd", str(value)[:limit])


def _involved(document: dict[str, Any]) -> Iterator[Involved]:
    """All hosts of the job once, those at fault first; a GPU by its host, since every host has its own
    0000:3b:00."""
    culprit = view.part(view.part(document, "verdict"), "culprit")
    at_fault = _names(culprit.get("hosts"))
    own = view.words(view.part(document, "job").get("hosts"))
    of_ranks = [view.known(rank.get("host")) for rank in view.rows(document.get("ranks"))]
    for name in _names([*at_fault, *own, *of_ranks])[:HOSTS]:
        yield Involved("host", name, name in at_fault)
    for gpu in _names(culprit.get("gpus"))[:HOSTS]:
        yield Involved("gpu", f"{at_fault[0]}/{gpu}"[:NAME] if len(at_fault) == 1 else gpu, True)


def _names(values: object) -> list[str]:
    return list(dict.fromkeys(filter(None, (kept(name) for name in view.words(values)))))


def moment(value: object) -> str | None:
    """A moment of the document with three digits of seconds, so that texts compare as times do."""
    at = text.epoch(value) if isinstance(value, str) else None
    return stamp(at) if at is not None else None


def stamp(at: float) -> str | None:
    """Seconds since 1970 as the store writes them; None of what no calendar has."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (OverflowError, ValueError, OSError):
        return None


def count(value: object) -> int | None:
    """A number of things that is none of nonsense, as every database takes it."""
    number = view.whole(value)
    return number if number is not None and 0 <= number <= GREATEST else None


def hours(begun: str | None, ended: str | None) -> float | None:
    """Between two moments; None where one is unknown."""
    low, high = text.epoch(begun), text.epoch(ended)
    return None if low is None or high is None or high < low else round((high - low) / 3600, 6)


def _lost(outcome: str, lives: Sequence[Mapping[str, Any]], ranks: int | None) -> float | None:
    """Ranks times the hours of the attempts that failed: no more than that could have been lost."""
    if outcome == "healthy":
        return 0.0
    failed = [life for life in lives if life.get("outcome") in ("incident", "undetermined")]
    each = [hours(moment(life.get("begin")), moment(life.get("end"))) for life in failed]
    known = [h for h in each if h is not None]
    return round(sum(known) * ranks, 6) if known and ranks else None
